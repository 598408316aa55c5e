//! Where the results of a command go: tables on standard output, or what `--json`
//! says.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::{Failure, OrFail};
use crate::report::published::Format;
use vellum_output::PartialFile;

/// The results of a command that has `--json`.
#[derive(Debug)]
pub enum Results {
    /// Tables are printed.
    Tables,
    /// JSON is printed instead.
    Json,
    /// Tables are printed, and JSON goes to a file.
    TablesAndFile(PathBuf, PartialFile),
}

impl Results {
    /// What `--json` asks for: nothing, `-` or a file. A file that cannot be
    /// written is refused here, before any time is spent.
    pub fn open(json: Option<&Path>) -> Result<Self, Failure> {
        match json {
            None => Ok(Results::Tables),
            Some(path) if path == Path::new("-") => Ok(Results::Json),
            Some(path) => {
                let file = PartialFile::create(path);
                let file = file.doing(|| format!("writing {}", path.display()))?;
                Ok(Results::TablesAndFile(path.to_owned(), file))
            }
        }
    }

    /// Refuses what cannot be printed as `format`, before any time is spent:
    /// `passes` of `arms`.
    pub fn with(&self, format: Format, arms: usize, passes: usize) -> Result<(), Failure> {
        if matches!(self, Results::Json) {
            return Err(Failure::usage(
                "`--json -` prints no tables: leave out --format, or write the JSON to a file",
            ));
        }
        format.takes(arms, passes).map_err(Failure::usage)
    }

    /// Prints and writes them, of the two forms only what is wanted.
    pub fn print(
        self,
        tables: impl FnOnce() -> String,
        json: impl FnOnce() -> serde_json::Result<String>,
    ) -> Result<(), Failure> {
        let printed = match self {
            Results::Tables => tables(),
            Results::Json => json()?,
            Results::TablesAndFile(path, file) => {
                file.commit(&json()?)
                    .doing(|| format!("writing {}", path.display()))?;
                tables()
            }
        };
        io::stdout().lock().write_all(printed.as_bytes())?;
        Ok(())
    }
}
