//! How the shipped traces are made.
//!
//! Each recipe builds the `vellum` command, prepares the workload, records it
//! into `traces/` and prints what the trace holds.

use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Subcommand;

/// A shipped trace.
#[derive(Subcommand)]
pub enum Recipe {
    /// Build a tiny Linux kernel from Debian's linux-source package with make -j4
    ///
    /// Needs: apt-get install linux-source build-essential flex bison bc libelf-dev libssl-dev
    KernelBuild {
        /// Unpack and build in this directory
        #[arg(long, default_value = "target/kernel-build")]
        directory: PathBuf,
        /// Measure what recording costs instead, in this many rounds of four builds
        #[arg(long)]
        measure_overhead: Option<u16>,
    },
    /// Run the snapshot server of `cargo xtask workload snapshot-server`
    SnapshotServer,
}

/// Runs a recipe from the root of the workspace.
pub fn run(recipe: &Recipe) -> Result<(), String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent();
    let root = root.ok_or("the workspace has no directory")?;
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let build = [
        "build",
        "--release",
        "--package",
        "vellum-lab",
        "--bin",
        "vellum",
    ];
    step(Command::new(cargo).args(build).current_dir(root))?;
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or(root.join("target"), PathBuf::from);
    let vellum = target.join("release/vellum");
    let traces = root.join("traces");
    match recipe {
        Recipe::KernelBuild {
            directory,
            measure_overhead,
        } => kernel_build(&vellum, &traces, &root.join(directory), *measure_overhead),
        Recipe::SnapshotServer => {
            let own = std::env::current_exe().map_err(|error| error.to_string())?;
            let output = traces.join("snapshot-server.vellum");
            let mut record = Command::new(&vellum);
            record.arg("record").arg("-o").arg(&output).arg("--");
            // A relative name, so that the trace does not tell where it was made.
            record.arg(Path::new(".").join(own.file_name().unwrap_or_default()));
            record.args(["workload", "snapshot-server"]);
            step(record.current_dir(own.parent().unwrap_or(root)))?;
            show(&vellum, &output)
        }
    }
}

fn kernel_build(
    vellum: &Path,
    traces: &Path,
    directory: &Path,
    measure_overhead: Option<u16>,
) -> Result<(), String> {
    let source = unpack(directory)?;
    step(make(&source).arg("tinyconfig"))?;
    // Once unrecorded, so that the compiler and the sources are in memory.
    step(make(&source).arg("-j4"))?;
    let mut record = Command::new(vellum);
    record.arg("record").current_dir(&source);
    if let Some(rounds) = measure_overhead {
        let clean = "make clean > /dev/null";
        record.arg("--measure-overhead").arg(rounds.to_string());
        record.args([
            "--prepare",
            clean,
            "--",
            "sh",
            "-c",
            "make -j4 > /dev/null 2>&1",
        ]);
        return step(&mut record);
    }
    step(make(&source).arg("clean"))?;
    let output = traces.join("kernel-build.vellum");
    step(record.arg("-o").arg(&output).args(["--", "make", "-j4"]))?;
    show(vellum, &output)
}

fn make(source: &Path) -> Command {
    let mut make = Command::new("make");
    make.current_dir(source);
    make
}

/// Unpacks the newest `linux-source` and returns its directory.
fn unpack(directory: &Path) -> Result<PathBuf, String> {
    let entries = std::fs::read_dir("/usr/src").map_err(|error| format!("/usr/src: {error}"))?;
    let mut archives: Vec<PathBuf> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            name.starts_with("linux-source-") && name.contains(".tar.")
        })
        .collect();
    archives.sort();
    let archive = archives.pop().ok_or(
        "there is no /usr/src/linux-source-*.tar.xz: install it with: apt-get install linux-source",
    )?;
    let name = archive
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    let source = directory.join(name.split(".tar").next().unwrap_or_default());
    if !source.join("Makefile").is_file() {
        let failed = |error| format!("{}: {error}", directory.display());
        std::fs::create_dir_all(directory).map_err(failed)?;
        step(
            Command::new("tar")
                .arg("-xf")
                .arg(&archive)
                .arg("-C")
                .arg(directory),
        )?;
    }
    Ok(source)
}

fn show(vellum: &Path, trace: &Path) -> Result<(), String> {
    step(Command::new(vellum).arg("info").arg(trace))
}

/// Runs a command that has to succeed.
fn step(command: &mut Command) -> Result<(), String> {
    let text = format!("{command:?}");
    eprintln!("xtask: {text}");
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{text}: {status}")),
        Err(error) => Err(format!("{text}: {error}")),
    }
}
