//! The first kernel of docs/embedding.md: its files are taken from the page, written to a
//! folder of their own outside of the repository, built there, and started.

use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use super::qemu::{Machine, Medium, Outcome};
use super::{Arch, cargo_build};
use crate::command::cargo;

/// What stands for the repository on the page.
const REPOSITORY: &str = "/path/to/vellum";

/// What the kernel prints at its end.
const DONE: &str = "the first kernel is done";

/// The files of a page: blocks of code with `file=NAME` behind their language.
pub fn files_of(page: &str) -> Vec<(String, String)> {
    let mut files = Vec::new();
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        let name = line
            .strip_prefix("```")
            .and_then(|rest| rest.split_once(" file="));
        let Some((_, name)) = name else {
            continue;
        };
        let block = lines.by_ref().take_while(|line| *line != "```");
        let text: String = block.flat_map(|line| [line, "\n"]).collect();
        files.push((name.to_owned(), text));
    }
    files
}

/// Follows the page.
///
/// # Errors
/// A text says what failed.
pub fn follow(root: &Path) -> Result<(), String> {
    let page = root.join("docs/embedding.md");
    let text = fs::read_to_string(&page).map_err(|error| format!("{}: {error}", page.display()))?;
    let files = files_of(&text);
    if files.is_empty() {
        return Err(format!("{}: there are no files on it", page.display()));
    }
    let folder = std::env::temp_dir().join(format!("vellum-first-kernel-{}", std::process::id()));
    let done = build_and_start(root, &folder, &files);
    let removed = fs::remove_dir_all(&folder);
    done?;
    removed.map_err(|error| format!("{}: {error}", folder.display()))
}

fn build_and_start(root: &Path, folder: &Path, files: &[(String, String)]) -> Result<(), String> {
    for (name, text) in files {
        let file = folder.join(name);
        let text = text.replace(REPOSITORY, &root.display().to_string());
        let directory = file.parent().unwrap_or(folder);
        fs::create_dir_all(directory)
            .and_then(|()| fs::write(&file, text))
            .map_err(|error| format!("{}: {error}", file.display()))?;
    }
    // The page has no lock file: the kernel has no dependency but the core.
    let mut command = cargo();
    command.args(["generate-lockfile", "--quiet", "--offline"]);
    let locked = command.current_dir(folder).stdout(Stdio::null()).status();
    if !locked.is_ok_and(|status| status.success()) {
        return Err("the tutorial's Cargo.toml cannot be read".to_owned());
    }
    let manifest = folder.join("Cargo.toml").display().to_string();
    cargo_build(root, &manifest, &folder.join("target"), &[])?;
    let machine = Machine {
        arch: Arch::X86_64,
        medium: Medium::Kernel(&folder.join("target/release/first")),
        cpus: 1,
        memory_mib: 128,
        kvm: false,
        icount: false,
        patience: Duration::from_secs(60),
    };
    let (outcome, lines) = machine.run("")?;
    print!("{lines}");
    match outcome {
        Outcome::Passed if lines.contains(DONE) => Ok(()),
        outcome => Err(format!("the tutorial's kernel: {outcome}")),
    }
}
