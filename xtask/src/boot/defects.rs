//! Known defects: each must be found.

use std::fs;
use std::path::Path;

use vellum_mutants::{list, tree};

use super::qemu::{Machine, Outcome};
use super::{Arch, Args, Disk, build, command_line};

/// Defects of the platform, by the names of `embed/boot/src/check/defect.rs`.
const PLATFORM: [&str; 5] = [
    "local-flush",
    "remote-flush",
    "acknowledge",
    "last-page",
    "whole-space",
];

/// Defects of the core that leave something in a TLB, by their names in `test/verify/mutants/list`.
const CORE: [&str; 9] = [
    "cow-replace-without-flush",
    "zap-nothing-stale",
    "fork-does-not-flush",
    "protect-does-not-flush",
    "remap-does-not-flush",
    "truncate-does-not-flush",
    "gather-stale-to-the-first-page",
    "gather-not-flushed-when-dropped",
    "active-only-the-first",
];

/// Switches on each defect of the platform in turn: the tests must fail.
pub fn of_the_platform(disk: &Disk, kernel: &Path, args: &Args) -> Result<(), String> {
    let cpus = if args.arch == Arch::X86_64 { 2 } else { 1 };
    for defect in PLATFORM.iter().filter(|defect| shows(args.arch, defect)) {
        let machine = disk.machine(kernel, cpus, args);
        find(&machine, &short(args), defect, Some(defect))?;
    }
    Ok(())
}

/// Whether anything can show it.
fn shows(arch: Arch, defect: &str) -> bool {
    match defect {
        // With one CPU there is nobody else to forget.
        "remote-flush" | "acknowledge" => arch == Arch::X86_64,
        // QEMU forgets everything when it is to forget a page of more than 4 KiB.
        "last-page" => arch != Arch::Aarch64Pages16k,
        _ => true,
    }
}

/// Puts each defect of the core into a copy of it in turn.
pub fn of_the_core(
    root: &Path,
    out: &Path,
    rmap: &str,
    disk: &Disk,
    args: &Args,
) -> Result<(), String> {
    let copy = out.join("mutant");
    let mutants = list::read(root)?;
    write_workspace(root, &copy)?;
    for name in CORE {
        let mutant = mutants.iter().find(|mutant| mutant.name == name);
        let mutant = mutant.ok_or_else(|| format!("there is no mutant `{name}` any more"))?;
        for directory in ["embed/boot", "vellum"] {
            copy_directory(&root.join(directory), &copy.join(directory))?;
        }
        let file = copy.join("vellum/src").join(&mutant.file);
        let failed = |error: std::io::Error| format!("{}: {error}", file.display());
        let mut text = fs::read_to_string(&file).map_err(failed)?;
        let place = tree::find(&text, mutant)?;
        // What `find` leaves out at both ends is in the replacement, too.
        let (head, tail) = mutant.frame();
        text.replace_range(place, &mutant.mutated[head..mutant.mutated.len() - tail]);
        fs::write(&file, text).map_err(failed)?;
        let (kernel, _) = build(&copy, &copy.join("target"), (args.arch, rmap))?;
        find(&disk.machine(&kernel, 2, args), &short(args), name, None)?;
    }
    Ok(())
}

/// Gives the copy a workspace, from which the core takes what it inherits.
fn write_workspace(root: &Path, copy: &Path) -> Result<(), String> {
    let manifest = root.join("Cargo.toml");
    let text = fs::read_to_string(&manifest);
    let text = text.map_err(|error| format!("{}: {error}", manifest.display()))?;
    let package = text
        .split("\n[")
        .find(|table| table.starts_with("workspace.package]"));
    let package = package.ok_or("the workspace says nothing of its packages")?;
    let members =
        "[workspace]\nresolver = \"3\"\nmembers = [\"vellum\"]\nexclude = [\"embed/boot\"]\n";
    let copied = fs::create_dir_all(copy)
        .and_then(|()| fs::write(copy.join("Cargo.toml"), format!("{members}\n[{package}")));
    copied.map_err(|error| format!("{}: {error}", copy.display()))
}

/// The tests that find defects, without the replay.
fn short(args: &Args) -> Args {
    let tests = "touch,fork,vfork,files,protect,remap,stack,threads,device,random";
    Args {
        tests: tests.to_owned(),
        ..args.clone()
    }
}

/// Runs a machine that must fail.
fn find(
    machine: &Machine<'_>,
    args: &Args,
    name: &str,
    defect: Option<&str>,
) -> Result<(), String> {
    let (outcome, lines) = machine.run(&command_line(args, defect))?;
    let failed = lines.lines().find(|line| line.starts_with("FAILED"));
    match (outcome, failed) {
        (Outcome::Failed(_), Some(line)) => println!("defect {name}: found ({line})"),
        (outcome, _) => return Err(format!("defect {name} was not found: {outcome}\n{lines}")),
    }
    Ok(())
}

/// Copies the files of a directory that are not as they are in the copy, so that cargo
/// builds little anew.
fn copy_directory(from: &Path, to: &Path) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("{}: {error}", from.display());
    fs::create_dir_all(to).map_err(failed)?;
    for entry in fs::read_dir(from).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let target = to.join(entry.file_name());
        if entry.file_type().map_err(failed)?.is_dir() {
            if entry.file_name() != "target" {
                copy_directory(&entry.path(), &target)?;
            }
            continue;
        }
        let bytes = fs::read(entry.path()).map_err(failed)?;
        if fs::read(&target).ok().as_ref() != Some(&bytes) {
            fs::write(&target, bytes).map_err(failed)?;
        }
    }
    Ok(())
}
