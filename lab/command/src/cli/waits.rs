//! `--profile-out` of commands on simulated machines: where CPUs waited, as files.

use std::path::{Path, PathBuf};

use super::{Failure, OrFail};
use crate::scale::waits::{lock_profile, profile};
use vellum_profile::diffprofile::{self, Options, diffprofile};
use vellum_profile::files::PendingDirectory;
use vellum_profile::{Profile, flame};
use vellum_results::scale::{Lock, Ticks};

/// A design that was simulated, and where its CPUs waited.
pub struct Side<'s> {
    /// The design.
    pub design: &'s str,
    /// Where the time went.
    pub waits: &'s [Ticks],
    /// The locks.
    pub locks: &'s [Lock],
}

/// The directory that the user asked for, if they did.
#[derive(Debug)]
pub struct WaitFiles(Option<(PathBuf, PendingDirectory)>);

impl WaitFiles {
    /// Makes sure that the directory can be written, before any time is spent.
    ///
    /// # Errors
    /// It cannot.
    pub fn create(path: Option<&Path>) -> Result<WaitFiles, Failure> {
        let Some(path) = path else {
            return Ok(WaitFiles(None));
        };
        let directory = PendingDirectory::create(path);
        let directory = directory.doing(|| format!("writing {}", path.display()))?;
        Ok(WaitFiles(Some((path.to_owned(), directory))))
    }

    /// Writes the files of all designs, of which the first is the base.
    ///
    /// # Errors
    /// They cannot be written.
    pub fn write(self, sides: &[Side<'_>], work: &str) -> Result<(), Failure> {
        let Some((path, directory)) = self.0 else {
            return Ok(());
        };
        let written = directory.commit(&files(sides, work));
        written.doing(|| format!("writing {}", path.display()))
    }
}

fn files(sides: &[Side<'_>], work: &str) -> Vec<(String, String)> {
    let letters = 'a'..='z';
    let named = letters.zip(sides).map(|(letter, side)| {
        let name = format!("{} {}", letter.to_uppercase(), side.design);
        let profiles = [profile(&name, side.waits), lock_profile(&name, side.locks)];
        (letter, profiles)
    });
    let named: Vec<(char, [Profile; 2])> = named.collect();
    let mut files = Vec::new();
    let mut differences = String::new();
    for (letter, [waits, locks]) in &named {
        files.push((format!("{letter}.folded"), waits.folded()));
        files.push((format!("{letter}-locks.folded"), locks.folded()));
    }
    let Some((_, [base, _])) = named.first() else {
        return files;
    };
    for (letter, [waits, _]) in &named[1..] {
        let options = Options {
            title: work.to_owned(),
            ..Options::new(letter.to_uppercase().to_string())
        };
        let difference = diffprofile(base, waits, &options);
        differences += &diffprofile::text(&difference, &options);
        differences.push('\n');
        let name = match named.len() {
            2 => "diff.svg".to_owned(),
            _ => format!("diff-{letter}.svg"),
        };
        files.push((name, flame::svg(base, waits, work)));
    }
    if !differences.is_empty() {
        files.push(("diffprofile.txt".to_owned(), differences));
    }
    files
}
