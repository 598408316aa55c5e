//! How much code the core is, linked into the kernel and optimised for size.

use std::path::Path;
use std::process::Command;

use super::cargo_build_with;

/// What the core's functions and constants may take, in KiB.
const MOST_KIB: u64 = 332;

/// As an embedder would who is short of memory.
const FOR_SIZE: [(&str, &str); 3] = [
    ("CARGO_PROFILE_RELEASE_OPT_LEVEL", "s"),
    ("CARGO_PROFILE_RELEASE_LTO", "fat"),
    ("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "1"),
];

/// Builds the kernel of one design for x86-64, and prints the size of what is the core's.
///
/// # Errors
/// It is more than [`MOST_KIB`], or could not be told.
pub fn print(root: &Path, out: &Path, rmap: &str) -> Result<(), String> {
    let target = out.join("size");
    let features = [
        "--bin",
        "kernel",
        "--no-default-features",
        "--features",
        rmap,
    ];
    cargo_build_with(root, "embed/boot/Cargo.toml", &target, &features, &FOR_SIZE)?;
    let kernel = target.join("release/kernel");
    let listed = Command::new("nm")
        .args(["--print-size", "--defined-only", "--radix=d"])
        .arg(&kernel)
        .output()
        .map_err(|error| format!("nm: {error}"))?;
    let mut sizes = [0; 2];
    for line in String::from_utf8_lossy(&listed.stdout).lines() {
        let [_, bytes, kind, name] = line.split_ascii_whitespace().collect::<Vec<_>>()[..] else {
            continue;
        };
        if "tTrR".contains(kind) {
            // Functions of the core, made for the kernel's types, too.
            let core = usize::from(name.contains("6vellum"));
            sizes[core] += bytes.parse::<u64>().unwrap_or(0);
        }
    }
    let [rest, core] = sizes.map(|bytes| bytes / 1024);
    println!(
        "size with {rmap}: {core} KiB of the core, {rest} KiB of the kernel and of Rust's own library"
    );
    match (1..=MOST_KIB).contains(&core) {
        true => Ok(()),
        false => Err(format!("the core has {core} KiB, and may have {MOST_KIB}")),
    }
}
