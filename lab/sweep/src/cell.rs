//! A cell of a grid: a command, and what determines its result.

use std::ffi::OsString;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use vellum_results::sweep::Place;

use crate::files::{self, FileId};

/// Changes when the same command would mean something else.
const FORMAT: &str = "1";

/// A host, as far as a timed result depends on which it is.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct HostId {
    /// Its name.
    pub name: String,
    /// Release of its kernel.
    pub kernel: String,
}

/// A word of a command.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Word {
    /// As it is.
    Text(String),
    /// The path of a file, of which only the content counts.
    File(FileId),
}

/// A cell.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Cell {
    /// Where it is in the grid.
    pub place: Place,
    /// Its seed.
    pub seed: u64,
    /// Whether it is timed, and so must be alone on its host.
    pub timed: bool,
    /// Threads that it needs.
    pub threads: u64,
    /// What Slurm is to give it, if the grid says so.
    pub resources: Resources,
    /// Arguments of `vellum`.
    pub words: Vec<Word>,
    /// SHA-256 of the program.
    pub program: String,
    /// The host of a timed cell.
    pub host: Option<HostId>,
}

/// What a job gets.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
pub struct Resources {
    /// Memory, as Slurm writes it.
    pub memory: Option<String>,
    /// Limit of its time, as Slurm writes it.
    pub time: Option<String>,
}

impl Cell {
    /// The hash of what determines the result: the program, its arguments with the content
    /// of files in place of their paths, and the host if it is timed.
    pub fn key(&self) -> String {
        let words = self.words.iter().map(|word| match word {
            Word::Text(text) => format!("text {text}"),
            Word::File(file) => format!("file {}", file.sha256),
        });
        let host = self.host.as_ref().map_or_else(String::new, |host| {
            format!("host {}, kernel {}", host.name, host.kernel)
        });
        let start = [FORMAT.to_owned(), self.program.clone(), host];
        // No part has a zero byte: none could be an argument.
        let parts: Vec<String> = start.into_iter().chain(words).collect();
        files::hash(parts.join("\0").as_bytes())
    }

    /// The arguments, with files where `place` says that they are.
    pub fn arguments(&self, place: impl Fn(&FileId) -> PathBuf) -> Vec<OsString> {
        let word = |word: &Word| match word {
            Word::Text(text) => text.into(),
            Word::File(file) => place(file).into_os_string(),
        };
        self.words.iter().map(word).collect()
    }

    /// The files that it reads.
    pub fn files(&self) -> impl Iterator<Item = &FileId> {
        self.words.iter().filter_map(|word| match word {
            Word::File(file) => Some(file),
            Word::Text(_) => None,
        })
    }

    /// The command as one types it.
    pub fn command_line(&self) -> String {
        let words = self.arguments(|file| file.path.clone());
        let words = words.iter().map(|word| word.to_string_lossy().into_owned());
        let words: Vec<String> = std::iter::once("vellum".to_owned()).chain(words).collect();
        vellum_results::run::command_line(&words)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell() -> Cell {
        Cell {
            place: Place::default(),
            seed: 1,
            timed: true,
            threads: 1,
            resources: Resources::default(),
            words: vec![
                Word::Text("compare".to_owned()),
                Word::File(FileId {
                    path: "/traces/a.vellum".into(),
                    sha256: "ab".to_owned(),
                }),
            ],
            program: "cd".to_owned(),
            host: Some(HostId {
                name: "n1".to_owned(),
                kernel: "6.1".to_owned(),
            }),
        }
    }

    #[test]
    fn what_determines_a_result_determines_the_key_and_nothing_else_does() {
        let key = cell().key();
        assert_eq!(key.len(), 64);
        let mut moved = cell();
        moved.words[1] = Word::File(FileId {
            path: "/elsewhere/b.vellum".into(),
            sha256: "ab".to_owned(),
        });
        moved.resources.memory = Some("4G".to_owned());
        moved.place.subject = "b".to_owned();
        assert_eq!(moved.key(), key);
        let changes: [fn(&mut Cell); 5] = [
            |cell| cell.program = "ce".to_owned(),
            |cell| cell.words.push(Word::Text("--seed".to_owned())),
            |cell| cell.words[1] = Word::Text("ab".to_owned()),
            |cell| cell.host = None,
            |cell| {
                if let Some(host) = &mut cell.host {
                    host.kernel = "6.2".to_owned();
                }
            },
        ];
        for (number, change) in changes.iter().enumerate() {
            let mut other = cell();
            change(&mut other);
            assert_ne!(other.key(), key, "change {number}");
        }
    }
}
