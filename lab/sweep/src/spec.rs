//! The file that describes a sweep (`docs/sweep.md`).
//!
//! Everything that can be known before a cell runs is checked here, and each message says
//! the line, what stands there and what is expected.

mod check;
mod raw;

use std::collections::HashMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::cell::{Resources, Word};
use crate::files::FileId;
use crate::kind::Kind;

/// What can be named in a spec, as the program knows it.
pub struct Known<'k> {
    /// Says what is wrong with a design.
    pub design: &'k dyn Fn(&str) -> Result<(), String>,
    /// Says what is wrong with a size of memory.
    pub size: &'k dyn Fn(&str) -> Result<(), String>,
    /// Says what is wrong with a trace.
    pub trace: &'k dyn Fn(&Path) -> Result<(), String>,
    /// Workloads of `vellum scale`.
    pub workloads: &'k [&'k str],
    /// Benchmarks of `vellum bench`.
    pub benchmarks: &'k [&'k str],
}

/// A sweep.
#[derive(Clone, PartialEq, Debug)]
pub struct Spec {
    /// What it is called.
    pub name: String,
    /// Where its results are.
    pub results: PathBuf,
    /// Cells at a time that are not timed, if it says so.
    pub jobs: Option<usize>,
    /// Its grids.
    pub grids: Vec<Grid>,
    /// How it goes to a cluster.
    pub slurm: SlurmSettings,
}

/// A grid: each combination of its values is a cell.
#[derive(Clone, PartialEq, Debug)]
pub struct Grid {
    /// What is done.
    pub kind: Kind,
    /// What it is done with: traces, workloads or benchmarks.
    pub subjects: Vec<Named>,
    /// Simulated machines.
    pub machines: Vec<Named>,
    /// Designs, the base first; empty: the default one.
    pub designs: Vec<String>,
    /// Numbers of CPUs.
    pub cpus: Vec<u64>,
    /// Numbers of copies.
    pub copies: Vec<u64>,
    /// Sizes of memory.
    pub ram: Vec<String>,
    /// Factors of benchmarks' sizes.
    pub scales: Vec<f64>,
    /// Seeds.
    pub seeds: Vec<u64>,
    /// Passes.
    pub passes: Option<u64>,
    /// Virtual microseconds in which things are counted.
    pub window: Option<u64>,
    /// Other options of the command.
    pub options: Vec<String>,
    /// What Slurm gives its cells.
    pub resources: Resources,
}

/// Something by the name that the spec has for it.
#[derive(Clone, PartialEq, Debug)]
pub struct Named {
    /// The name.
    pub name: String,
    /// What the command is given.
    pub word: Word,
}

/// Where jobs read traces.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Traces {
    /// Where they are: the path is the same on all nodes.
    #[default]
    Shared,
    /// A copy on the node.
    Copied,
}

/// How a sweep goes to a cluster.
#[derive(Clone, PartialEq, Debug)]
pub struct SlurmSettings {
    /// Nodes on each of which timed cells run.
    pub hosts: Vec<String>,
    /// The partition.
    pub partition: Option<String>,
    /// The account.
    pub account: Option<String>,
    /// What cells get whose grid says nothing.
    pub resources: Resources,
    /// Jobs of an array that run at once at the most.
    pub at_once: Option<u64>,
    /// How jobs come to traces.
    pub traces: Traces,
    /// How often a cell is tried whose job vanishes.
    pub attempts: u64,
    /// Other options of `sbatch`.
    pub options: Vec<String>,
}

impl Default for SlurmSettings {
    fn default() -> Self {
        Self {
            hosts: Vec::new(),
            partition: None,
            account: None,
            resources: Resources::default(),
            at_once: None,
            traces: Traces::Shared,
            attempts: 3,
            options: Vec::new(),
        }
    }
}

/// What is wrong with a spec: the file, the line if there is one, and what is expected.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("{}{}: {message}", .file.display(), .line.map_or_else(String::new, |line| format!(":{line}")))]
pub struct SpecError {
    /// The file.
    pub file: PathBuf,
    /// Where in it.
    pub line: Option<usize>,
    /// What is wrong, and what is expected.
    pub message: String,
}

impl Spec {
    /// Reads and checks the spec in a file. Paths in it begin at its directory.
    ///
    /// # Errors
    /// The first thing that is wrong with it.
    pub fn read(path: &Path, known: &Known<'_>) -> Result<Spec, SpecError> {
        let unread = |error: std::io::Error| SpecError {
            file: path.to_owned(),
            line: None,
            message: format!("cannot be read: {error}"),
        };
        let bytes = std::fs::read(path).map_err(unread)?;
        let text = String::from_utf8(bytes).map_err(|error| {
            let valid = error.utf8_error().valid_up_to();
            let before = &error.as_bytes()[..valid];
            SpecError {
                file: path.to_owned(),
                line: Some(1 + before.iter().filter(|&&byte| byte == b'\n').count()),
                message: "no text in UTF-8".to_owned(),
            }
        })?;
        let source = Source {
            file: path,
            text: &text,
        };
        let raw: raw::File = toml::from_str(&text).map_err(|error| {
            let line = error.span().map(|span| source.line(&span));
            SpecError {
                file: path.to_owned(),
                line,
                message: error.message().replace('\n', "; "),
            }
        })?;
        check::Checker {
            source,
            known,
            hashed: HashMap::new(),
        }
        .spec(raw)
    }
}

/// A text with the name of its file.
#[derive(Clone, Copy, Debug)]
struct Source<'t> {
    file: &'t Path,
    text: &'t str,
}

impl Source<'_> {
    fn line(&self, span: &Range<usize>) -> usize {
        let before = self.text.get(..span.start).unwrap_or(self.text);
        1 + before.matches('\n').count()
    }

    fn error(&self, span: &Range<usize>, message: impl Into<String>) -> SpecError {
        SpecError {
            file: self.file.to_owned(),
            line: Some(self.line(span)),
            message: message.into(),
        }
    }

    /// A path as the spec means it.
    fn path(&self, path: &str) -> PathBuf {
        self.file.parent().unwrap_or(Path::new("")).join(path)
    }
}

/// Files by their paths, so that each is read once.
type Hashed = HashMap<PathBuf, FileId>;
