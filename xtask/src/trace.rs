//! How the shipped traces are made.
//!
//! Each recipe builds the `vellum` command, prepares the workload, records it
//! into `traces/` and prints what the trace holds.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use clap::Subcommand;
use vellum_lab::bench::host::sdet;
use vellum_lab::bench::host::tmpfs::{mount_tmpfs, with_own_mounts};
use vellum_lab::host::scratch::Scratch;
use vellum_lab::host::tools;

use crate::command::{cargo, succeed, target};

/// Shipped traces are compressed once and downloaded often.
const SHIPPED_LEVEL: &str = "19";

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
    /// The same build with its objects on a tmpfs, so that reads and writes of them show
    ///
    /// Needs what the other build needs
    KernelBuildTmpfs {
        /// Unpack in this directory
        #[arg(long, default_value = "target/kernel-build")]
        directory: PathBuf,
    },
    /// Run the snapshot server of `cargo xtask workload snapshot-server`
    SnapshotServer,
    /// Run scripts of `vellum bench sdet --on linux`, one after the other
    ///
    /// Needs: apt-get install gcc make ed cpio groff-base bsdextrautils spell time procps
    Sdet {
        /// How many of the shipped scripts; they differ in the order of their commands
        /// only
        #[arg(long, default_value_t = sdet::SHIPPED.len())]
        scripts: usize,
        /// Seed of the order and of the text that the commands work on
        #[arg(long, default_value_t = 1)]
        seed: u64,
    },
}

/// Runs a recipe from the root of the workspace.
pub fn run(recipe: &Recipe) -> Result<(), String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent();
    let root = root.ok_or("the workspace has no directory")?;
    let build = [
        "build",
        "--release",
        "--package",
        "vellum-lab",
        "--bin",
        "vellum",
    ];
    step(cargo().args(build).current_dir(root))?;
    let vellum = target(root).join("release/vellum");
    let traces = root.join("traces");
    match recipe {
        Recipe::KernelBuild {
            directory,
            measure_overhead,
        } => kernel_build(&vellum, &traces, &root.join(directory), *measure_overhead),
        Recipe::KernelBuildTmpfs { directory } => {
            kernel_build_tmpfs(&vellum, &traces, &root.join(directory))
        }
        Recipe::SnapshotServer => {
            let own = std::env::current_exe().map_err(|error| error.to_string())?;
            let output = traces.join("snapshot-server.vellum");
            let mut record = Command::new(&vellum);
            record
                .args(["record", "--level", SHIPPED_LEVEL, "-o"])
                .arg(&output)
                .arg("--");
            // A relative name, so that the trace does not tell where it was made.
            record.arg(Path::new(".").join(own.file_name().unwrap_or_default()));
            record.args(["workload", "snapshot-server"]);
            step(record.current_dir(own.parent().unwrap_or(root)))?;
            show(&vellum, &output)
        }
        Recipe::Sdet { scripts, seed } => sdet(&vellum, &traces, *scripts, *seed),
    }
}

/// Runs a script once unrecorded, so that the programs are in memory, and then
/// each once recorded, in directories of their own.
fn sdet(vellum: &Path, traces: &Path, scripts: usize, seed: u64) -> Result<(), String> {
    let failed = |error: &dyn std::fmt::Display| format!("the directory of a script: {error}");
    tools::require(sdet::script::TOOLS).map_err(|error| error.to_string())?;
    let scratch = Scratch::new(&std::env::temp_dir(), "trace-sdet").map_err(|e| failed(&e))?;
    let prepare = |name: &str, script: usize| {
        let parent = scratch.path().join(name);
        std::fs::create_dir_all(&parent).map_err(|error| failed(&error))?;
        sdet::prepare(&parent, seed, script).map_err(|error| failed(&error))
    };
    step(sdet::shell(&prepare("first", 0)?).stdout(Stdio::null()))?;
    for (script, name) in sdet::SHIPPED.into_iter().enumerate().take(scripts) {
        let shell = sdet::shell(&prepare("recorded", script)?);
        record_script(vellum, &traces.join(name), &shell)?;
    }
    Ok(())
}

fn record_script(vellum: &Path, output: &Path, shell: &Command) -> Result<(), String> {
    let mut record = Command::new(vellum);
    record
        .args(["record", "--level", SHIPPED_LEVEL, "-o"])
        .arg(output)
        .arg("--");
    record.arg(shell.get_program()).args(shell.get_args());
    for (name, value) in shell.get_envs() {
        match value {
            Some(value) => record.env(name, value),
            None => record.env_remove(name),
        };
    }
    if let Some(directory) = shell.get_current_dir() {
        record.current_dir(directory);
    }
    step(record.stdin(Stdio::null()).stdout(Stdio::null()))?;
    show(vellum, output)
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
    record.args(["--level", SHIPPED_LEVEL, "-o"]).arg(&output);
    step(record.args(["--", "make", "-j4"]))?;
    show(vellum, &output)
}

/// Room for the objects of the build.
const OBJECTS: u64 = 1 << 30;

fn kernel_build_tmpfs(vellum: &Path, traces: &Path, directory: &Path) -> Result<(), String> {
    let source = unpack(directory)?;
    // Objects beside the sources would be in the way.
    step(make(&source).arg("mrproper"))?;
    let output = traces.join("kernel-build-tmpfs.vellum");
    let built = with_own_mounts(|objects| {
        mount_tmpfs(objects, OBJECTS)?;
        let place = format!("O={}", objects.display());
        let built = || {
            step(make(&source).args([&place, "tinyconfig"]))?;
            // Once unrecorded, so that the compiler and the sources are in memory.
            step(make(&source).args([&place, "-j4"]))?;
            step(make(&source).args([&place, "clean"]))?;
            let mut record = Command::new(vellum);
            record.args(["record", "--level", SHIPPED_LEVEL, "-o"]);
            record.arg(&output).current_dir(&source);
            step(record.args(["--", "make", &place, "-j4"]))
        };
        Ok(built())
    });
    built.map_err(|error| error.to_string())??;
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
    eprintln!("xtask: {command:?}");
    succeed(command)
}
