//! The manual pages: one for `vellum` and one for each of its commands, from the
//! definitions that the command line is parsed by.
//!
//! They lie in `docs/man/`, so that a package can be built without building the command first,
//! and a test holds them against the definitions.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use clap::{Command, CommandFactory};
use clap_mangen::Man;
use roff::{Roff, roman};
use vellum_lab::cli::Cli;

/// What becomes of the pages.
#[derive(clap::Args)]
pub struct Args {
    /// Only say whether they are up to date
    #[arg(long)]
    check: bool,
}

/// Writes the pages, or checks them.
pub fn run(args: &Args) -> Result<(), String> {
    let (pages, directory) = (pages()?, directory());
    let present = present(&directory)?;
    if args.check {
        return check(&pages, &present);
    }
    fs::create_dir_all(&directory).map_err(|error| format!("{}: {error}", directory.display()))?;
    for name in present.keys().filter(|name| !pages.contains_key(*name)) {
        let path = directory.join(name);
        fs::remove_file(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    for (name, text) in &pages {
        let path = directory.join(name);
        fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    Ok(())
}

/// Where the pages lie.
pub fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/man")
}

fn check(
    pages: &BTreeMap<String, String>,
    present: &BTreeMap<String, String>,
) -> Result<(), String> {
    let names = pages.keys().chain(present.keys());
    let mut stale: Vec<&str> = names
        .filter(|name| pages.get(*name) != present.get(*name))
        .map(String::as_str)
        .collect();
    stale.sort_unstable();
    stale.dedup();
    match stale.is_empty() {
        true => Ok(()),
        false => Err(format!(
            "{} in docs/man/ are not what the commands say; write them with `cargo xtask man`",
            stale.join(", ")
        )),
    }
}

/// The pages that are there, by name.
fn present(directory: &Path) -> Result<BTreeMap<String, String>, String> {
    let failed = |error: std::io::Error| format!("{}: {error}", directory.display());
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
        entries => entries.map_err(failed)?,
    };
    let read = |entry: std::io::Result<fs::DirEntry>| {
        let entry = entry?;
        let text = fs::read_to_string(entry.path())?;
        Ok((entry.file_name().to_string_lossy().into_owned(), text))
    };
    entries.map(read).collect::<Result<_, _>>().map_err(failed)
}

/// All pages, by name.
pub fn pages() -> Result<BTreeMap<String, String>, String> {
    let mut command = Cli::command();
    command.build();
    let mut pages = BTreeMap::new();
    add(&command, "vellum", &mut pages)?;
    Ok(pages)
}

/// Adds the page of a command, called `name` with dashes, and those of its subcommands.
fn add(command: &Command, name: &str, pages: &mut BTreeMap<String, String>) -> Result<(), String> {
    let text = page(command, name).map_err(|error| format!("{name}: {error}"))?;
    pages.insert(format!("{name}.1"), text);
    let parts = command
        .get_subcommands()
        .filter(|part| part.get_name() != "help");
    for part in parts.filter(|part| !part.is_hide_set()) {
        add(part, &format!("{name}-{}", part.get_name()), pages)?;
    }
    Ok(())
}

fn page(command: &Command, name: &str) -> std::io::Result<String> {
    let man = Man::new(command.clone())
        .manual("Vellum")
        .source(format!("vellum {}", env!("CARGO_PKG_VERSION")));
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    if command.has_subcommands() {
        man.render_subcommands_section(&mut page)?;
    }
    // Lines as they are: they are examples, and tables of exit codes.
    if let Some(notes) = command.get_after_help() {
        let mut section = Roff::new();
        section
            .control("SH", ["NOTES AND EXAMPLES"])
            .control("nf", []);
        for line in notes.to_string().lines() {
            match line.is_empty() {
                true => section.control("sp", []),
                false => section.text([roman(line)]),
            };
        }
        section.control("fi", []).to_writer(&mut page)?;
    }
    let mut section = Roff::new();
    section.control("SH", ["SEE ALSO"]);
    let others = match name {
        "vellum" => "The documents in /usr/share/doc/vellum, beginning with tutorial.md",
        _ => "vellum(1)",
    };
    section.text([roman(others)]);
    section.to_writer(&mut page)?;
    Ok(String::from_utf8_lossy(&page).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_manual_pages_are_those_of_the_commands() {
        let present = present(&directory()).expect("docs/man/ is there");
        assert_eq!(check(&pages().expect("rendered"), &present), Ok(()));
        for name in ["vellum.1", "vellum-compare.1", "vellum-history-trend.1"] {
            assert!(present.contains_key(name), "{name}");
        }
    }

    #[test]
    fn a_page_that_changed_is_missing_or_is_too_much_is_named() {
        let pages = |names: &[&str]| -> BTreeMap<String, String> {
            let page = |name: &&str| (name[..1].to_owned(), (*name).to_owned());
            names.iter().map(page).collect()
        };
        let check = |present: &[&str]| check(&pages(&["a1", "b1"]), &pages(present));
        assert_eq!(check(&["a1", "b1"]), Ok(()));
        for (present, named) in [
            (&["a2", "b1"][..], "a in"),
            (&["a1"], "b in"),
            (&["a1", "b1", "c1"], "c in"),
        ] {
            let stale = check(present).expect_err("stale");
            assert!(stale.starts_with(named), "{stale}");
        }
    }

    #[test]
    fn examples_keep_their_lines() {
        let pages = pages().expect("rendered");
        let compare = &pages["vellum-compare.1"];
        let examples = compare
            .lines()
            .filter(|line| line.starts_with("  vellum compare "));
        assert!(examples.count() > 5, "{compare}");
    }
}
