//! `cargo xtask boot`: builds the kernel in `embed/boot/` and its RAM disk, runs it under QEMU,
//! and checks what it says.

mod defects;
mod fault_path;
mod iso;
mod model;
#[path = "../../../embed/boot/src/protocol.rs"]
#[allow(unexpected_cfgs, reason = "features are the kernel's")]
mod protocol;
mod qemu;
mod size;
mod slice;
#[cfg(test)]
mod tests;
mod tutorial;

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use vellum_engine::Pages;

use crate::command::cargo;
use qemu::{Machine, Medium, Outcome};

/// What to run.
#[derive(clap::Args, Clone)]
pub struct Args {
    /// The machine: x86_64, or aarch64 with pages of 4 or of 16 KiB
    #[arg(long, value_name = "ARCHITECTURE", default_value = "x86_64")]
    arch: Arch,
    /// CPUs of the machine, 1 to 8; several numbers are run one after the other [default: 4
    /// for x86_64; aarch64 has 1]
    #[arg(long, value_name = "N", value_delimiter = ',',
          value_parser = clap::value_parser!(u32).range(1..=8))]
    cpus: Vec<u32>,
    /// Reverse mapping: family, chains, anon_vma_chain; several are run one after the other
    #[arg(long, value_name = "DESIGN", value_delimiter = ',', default_value = "family",
          value_parser = ["family", "chains", "anon_vma_chain"])]
    rmap: Vec<String>,
    /// Only these: touch, fork, vfork, files, protect, remap, stack, threads, device, random,
    /// replay
    #[arg(long, value_name = "NAMES", default_value = "all")]
    tests: String,
    /// The trace of which a slice is replayed
    #[arg(
        long,
        value_name = "FILE",
        default_value = "traces/kernel-build.vellum"
    )]
    trace: PathBuf,
    /// Where the slice begins, in seconds of the recording
    #[arg(long, value_name = "SECONDS", default_value_t = 0.0)]
    from: f64,
    /// Where it ends
    #[arg(long, value_name = "SECONDS", default_value_t = 3.0)]
    to: f64,
    /// Operations of the random test
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    random: u64,
    /// Seed of the random test
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(..1 << 16))]
    seed: u64,
    /// x86_64 only: run by the processor itself, where Linux's KVM works: times are cycles, and
    /// spaces are tagged
    #[arg(long, conflicts_with = "icount")]
    kvm: bool,
    /// Count instructions instead of time; CPUs take turns then
    #[arg(long)]
    icount: bool,
    /// Also compare instructions of the fault path with those on the hosted machine; needs
    /// qemu-user, too
    #[arg(long, requires = "icount")]
    fault_path: bool,
    /// Also build in each known defect in turn, and fail if one is not found
    #[arg(long)]
    defects: bool,
    /// Also put defects of the core that a TLB shows into it, one at a time, from the list
    /// of `cargo xtask mutants`; builds the kernel for each
    #[arg(long)]
    mutants: bool,
    /// Also follow the tutorial of docs/embedding.md in an empty folder, and start its kernel
    #[arg(long)]
    tutorial: bool,
    /// Also print how much code the core is, and fail if it is more than it may have
    #[arg(long)]
    size: bool,
    /// x86_64 only: write a disc to this file from which real machines start, and start the
    /// emulated ones from it
    #[arg(long, value_name = "FILE", conflicts_with_all = ["defects", "mutants"])]
    iso: Option<PathBuf>,
    /// Start them by UEFI firmware (package ovmf) instead of a BIOS
    #[arg(long, requires = "iso")]
    uefi: bool,
    /// Fail if QEMU is not installed, instead of skipping
    #[arg(long)]
    require: bool,
    /// Seconds after which a machine is stopped, and has failed
    #[arg(long, value_name = "SECONDS", default_value_t = 170)]
    patience: u64,
}

/// The machines.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq)]
#[value(rename_all = "verbatim")]
pub enum Arch {
    #[value(name = "x86_64")]
    X86_64,
    #[value(name = "aarch64")]
    Aarch64,
    #[value(name = "aarch64-16k")]
    Aarch64Pages16k,
}

impl Arch {
    /// Its name on the command line.
    fn name(self) -> &'static str {
        match self {
            Arch::X86_64 => "x86_64",
            Arch::Aarch64 => "aarch64",
            Arch::Aarch64Pages16k => "aarch64-16k",
        }
    }

    /// The target to build for, if it is not the host's.
    fn target(self) -> Option<&'static str> {
        (self != Arch::X86_64).then_some("aarch64-unknown-none-softfloat")
    }

    /// Pages as the replay counts them.
    fn pages(self) -> Pages {
        match self {
            Arch::Aarch64Pages16k => Pages {
                shift: 14,
                user_end: 1 << 34,
            },
            Arch::Aarch64 => Pages {
                shift: 12,
                user_end: 1 << 36,
            },
            Arch::X86_64 => Pages::X86_64,
        }
    }
}

/// Runs the command.
pub fn run(args: &Args) -> Result<(), String> {
    if !qemu::is_installed(args.arch) {
        let how = format!(
            "QEMU is not installed: apt-get install --no-install-recommends {}",
            qemu::package(args.arch)
        );
        if args.require {
            return Err(how);
        }
        println!("skipped: {how}");
        return Ok(());
    }
    let args = &Args {
        cpus: match (&args.cpus[..], args.arch) {
            ([], Arch::X86_64) => vec![4],
            ([], _) => vec![1],
            (cpus, Arch::X86_64) => cpus.to_vec(),
            ([1], _) => vec![1],
            _ => return Err("the machine for aarch64 has one CPU".to_owned()),
        },
        ..args.clone()
    };
    if args.mutants && args.arch != Arch::X86_64 {
        return Err(
            "--mutants needs several CPUs, which the machine for aarch64 has not".to_owned(),
        );
    }
    if args.iso.is_some() && args.arch != Arch::X86_64 {
        return Err("--iso is for x86_64".to_owned());
    }
    if args.uefi && !Path::new(iso::UEFI).exists() {
        return Err(format!("{} is not there: apt-get install ovmf", iso::UEFI));
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .ok_or("the workspace has no directory")?;
    let out = root.join("target/boot");
    fs::create_dir_all(&out).map_err(|error| format!("{}: {error}", out.display()))?;
    if args.tutorial {
        tutorial::follow(root)?;
    }
    let mut disk = None;
    for rmap in &args.rmap {
        let (kernel, programs) = build(root, &out, (args.arch, rmap))?;
        let disk = match &disk {
            Some(disk) => disk,
            None => disk.insert(Disk::make(root, &out, &programs, args)?),
        };
        let line = command_line(args, None);
        if let Some(file) = &args.iso {
            iso::write(file, &out, (&kernel, &disk.path), &line)?;
            println!("written: {}", file.display());
        }
        for &cpus in &args.cpus {
            let machine = disk.machine(&kernel, cpus, args);
            let (outcome, lines) = machine.run(&line)?;
            print!("{lines}");
            if outcome != Outcome::Passed {
                return Err(format!("{rmap} on {cpus} CPUs: {outcome}"));
            }
            check(&lines, args, cpus, disk.tasks)?;
            if args.fault_path {
                fault_path::compare(root, &out, lines.lines().last().unwrap_or(""))?;
            }
        }
        if args.size {
            size::print(root, &out, rmap)?;
        }
        if args.defects {
            defects::of_the_platform(disk, &kernel, args)?;
        }
        if args.mutants {
            defects::of_the_core(root, &out, rmap, disk, args)?;
        }
    }
    Ok(())
}

fn command_line(args: &Args, defect: Option<&str>) -> String {
    let mut line = format!(
        "tests={} random={} seed={} icount={}",
        args.tests,
        args.random,
        args.seed,
        u8::from(args.icount)
    );
    if let Some(defect) = defect {
        line += &format!(" defect={defect}");
    }
    line
}

/// Builds the kernel and the programs; where they are.
///
/// # Errors
/// A text says what failed.
fn build(
    root: &Path,
    out: &Path,
    (arch, rmap): (Arch, &str),
) -> Result<(PathBuf, PathBuf), String> {
    let features = match arch {
        Arch::Aarch64Pages16k => format!("{rmap},pages16k"),
        _ => rmap.to_owned(),
    };
    let mut arguments = vec!["--no-default-features", "--features", &features];
    let mut built = out.to_owned();
    if let Some(target) = arch.target() {
        arguments.extend(["--target", target]);
        built.push(target);
    }
    built.push("release");
    let tried = cargo_build(root, "embed/boot/Cargo.toml", out, &arguments);
    tried.map_err(|error| match arch.target() {
        Some(target) => format!("{error}; it needs: rustup target add {target}"),
        None => error,
    })?;
    let kernel = out.join(format!("kernel-{}-{rmap}", arch.name()));
    fs::copy(built.join("kernel"), &kernel)
        .map_err(|error| format!("{}: {error}", kernel.display()))?;
    Ok((kernel, built.join("programs")))
}

/// Builds a crate outside of the workspace.
fn cargo_build(root: &Path, manifest: &str, out: &Path, arguments: &[&str]) -> Result<(), String> {
    cargo_build_with(root, manifest, out, arguments, &[])
}

/// The same with variables of the environment.
fn cargo_build_with(
    root: &Path,
    manifest: &str,
    out: &Path,
    arguments: &[&str],
    variables: &[(&str, &str)],
) -> Result<(), String> {
    let mut command = cargo();
    command
        .current_dir(root)
        .envs(variables.iter().copied())
        .args([
            "build",
            "--release",
            "--quiet",
            "--locked",
            "--manifest-path",
            manifest,
        ])
        .args(arguments)
        .arg("--target-dir")
        .arg(out);
    let status = command
        .status()
        .map_err(|error| format!("cargo: {error}"))?;
    status
        .success()
        .then_some(())
        .ok_or_else(|| format!("{manifest} does not build"))
}

/// The RAM disk, and what the machine needs for it.
struct Disk {
    path: PathBuf,
    /// Processes that are replayed.
    tasks: u64,
    memory_mib: u64,
}

impl Disk {
    fn make(root: &Path, out: &Path, programs: &Path, args: &Args) -> Result<Disk, String> {
        let microseconds = |seconds: f64| (seconds * 1e6) as u64;
        let cut = out.join(format!("slice-{}.vellum", args.arch.name()));
        if args.from >= args.to {
            return Err("--from must lie before --to".to_owned());
        }
        let given = args.trace.exists();
        let trace = if given {
            args.trace.clone()
        } else {
            root.join(&args.trace)
        };
        let slice = slice::make(
            &trace,
            &cut,
            (microseconds(args.from), microseconds(args.to)),
            args.arch.pages(),
        )?;
        if slice.tasks == 0 {
            return Err("nothing happens in the trace in that time".to_owned());
        }
        println!(
            "slice: {} processes, {} operations, {} KiB of words",
            slice.tasks,
            slice.ops,
            slice.words.len() / 128
        );
        let image =
            fs::read(programs).map_err(|error| format!("{}: {error}", programs.display()))?;
        let words = slice
            .words
            .iter()
            .flat_map(|word| word.to_le_bytes())
            .collect();
        let disk = assemble(&[loaded_part(&image)?.to_vec(), words]);
        let path = out.join(format!("disk-{}", args.arch.name()));
        fs::write(&path, &disk).map_err(|error| format!("{}: {error}", path.display()))?;
        // A quarter is for written pages, and some for heap and disk.
        let memory = slice.ram + disk.len() as u64 + (64 << 20);
        let memory_mib = ((memory / 2 * 3) >> 20).next_multiple_of(64).min(3 << 10);
        Ok(Disk {
            path,
            tasks: slice.tasks as u64,
            memory_mib,
        })
    }

    fn machine<'a>(&'a self, kernel: &'a Path, cpus: u32, args: &'a Args) -> Machine<'a> {
        Machine {
            arch: args.arch,
            medium: match &args.iso {
                Some(iso) => Medium::Disc {
                    iso,
                    firmware: args.uefi.then_some(Path::new(iso::UEFI)),
                },
                None => Medium::Files {
                    kernel,
                    disk: &self.path,
                },
            },
            cpus,
            memory_mib: self.memory_mib,
            kvm: args.kvm,
            icount: args.icount,
            patience: std::time::Duration::from_secs(args.patience),
        }
    }
}

/// The part of an ELF file that its one loadable segment covers.
fn loaded_part(image: &[u8]) -> Result<&[u8], String> {
    let word = |at: usize| {
        let bytes = image
            .get(at..at + 8)
            .and_then(|bytes| bytes.try_into().ok());
        bytes
            .map(u64::from_le_bytes)
            .ok_or("the programs are no ELF file")
    };
    let first = word(32)? as usize;
    image
        .get(..word(first + 32)? as usize)
        .ok_or_else(|| "the programs are cut short".to_owned())
}

/// Puts files behind one another, as `protocol::DISK_MAGIC` says.
fn assemble(files: &[Vec<u8>]) -> Vec<u8> {
    const PAGE: usize = protocol::DISK_ALIGN;
    let mut head = vec![protocol::DISK_MAGIC, files.len() as u64];
    let mut body = Vec::new();
    for file in files {
        head.extend([(PAGE + body.len()) as u64, file.len() as u64]);
        body.extend(file);
        body.resize(body.len().next_multiple_of(PAGE), 0);
    }
    let mut disk: Vec<u8> = head.iter().flat_map(|word| word.to_le_bytes()).collect();
    disk.resize(PAGE, 0);
    disk.extend(body);
    disk
}

/// Checks the report, which is the last line.
fn check(lines: &str, args: &Args, cpus: u32, tasks: u64) -> Result<(), String> {
    let last = lines.lines().last().unwrap_or("");
    let report: Value =
        serde_json::from_str(last).map_err(|error| format!("no report: {error}"))?;
    let number = |name: &str| {
        report[name]
            .as_u64()
            .ok_or(format!("the report has no `{name}`"))
    };
    let replays = ["all", "replay"].map(|name| args.tests.split(',').any(|test| test == name));
    let replayed = if replays.contains(&true) { tasks } else { 0 };
    let exactly = [
        ("replayed", replayed),
        ("failures", 0),
        ("spaces_left", 0),
        ("entries_left", 0),
        ("cpus", u64::from(cpus)),
    ];
    for (name, expected) in exactly {
        let found = number(name)?;
        if found != expected {
            return Err(format!("`{name}` is {found}, expected {expected}"));
        }
    }
    if args.tests == "all" {
        for name in [
            "checks",
            "stores",
            "refusals",
            "cow_copies",
            "forks",
            "written_back",
            "ops",
        ] {
            if number(name)? == 0 {
                return Err(format!("`{name}` is 0: something did not run"));
            }
        }
    }
    Ok(())
}
