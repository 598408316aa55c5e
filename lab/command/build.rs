//! Compiles the stub of `lab/command/src/linux` (the crate in `lab/stub/`) with the compiler that builds the
//! lab, and links it as `lab/stub/link.ld` says. On anything but x86-64 Linux the stub is empty, and
//! the lab says so.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    let stub = Path::new(&variable("CARGO_MANIFEST_DIR")).join("../stub");
    println!("cargo:rerun-if-changed={}", stub.display());
    println!("cargo:rerun-if-changed=build.rs");
    let image = PathBuf::from(variable("OUT_DIR")).join("vellum-stub");
    let x86_64 = variable("CARGO_CFG_TARGET_ARCH") == "x86_64";
    if !(x86_64 && variable("CARGO_CFG_TARGET_OS") == "linux") {
        std::fs::write(&image, []).expect("OUT_DIR can be written");
        return;
    }
    let mut rustc = Command::new(variable("RUSTC"));
    rustc
        .args(["--crate-name", "vellum_stub", "--crate-type", "bin"])
        .args(["--edition", "2024", "--target", &variable("TARGET")])
        .args(["-C", "opt-level=2", "-C", "panic=abort"])
        .args(["-C", "relocation-model=pic", "-C", "strip=symbols"]);
    if let Ok(linker) = env::var("RUSTC_LINKER") {
        rustc.args(["-C", &format!("linker={linker}")]);
    }
    let script = format!("-Wl,-T,{}", stub.join("link.ld").display());
    let arguments = [
        "-nostartfiles",
        "-nostdlib",
        "-static",
        "-no-pie",
        "-Wl,--build-id=none",
        &script,
    ];
    for argument in arguments {
        rustc.args(["-C", &format!("link-arg={argument}")]);
    }
    rustc.arg("-o").arg(&image).arg(stub.join("src/main.rs"));
    let built = rustc.status().expect("the compiler named by RUSTC starts");
    assert!(built.success(), "the stub does not compile: {rustc:?}");
}

/// A variable that cargo sets for build scripts.
fn variable(name: &str) -> String {
    env::var(name).unwrap_or_else(|error| panic!("cargo sets {name}: {error}"))
}
