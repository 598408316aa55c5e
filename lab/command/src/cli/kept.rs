//! Results that are kept: which database, and keeping what a command measured.

#[cfg(feature = "history")]
mod keeper;
#[cfg(not(feature = "history"))]
#[path = "kept/absent.rs"]
mod keeper;

use std::path::{Path, PathBuf};

use clap::Args;
use clap::builder::ValueHint;

use super::{Failure, OrFail};
use crate::history::Kept;
pub use keeper::Keeper;
#[cfg(feature = "history")]
pub use keeper::{document, kept_in};

/// Which database.
#[derive(Args, Clone, Debug, Default)]
pub struct DbArgs {
    /// The database [default: vellum/history.db in the user's data directory,
    /// ~/.local/share]
    #[arg(long, value_name = "FILE", global = true, value_hint = ValueHint::FilePath,
          help_heading = "Kept results", hide_short_help = true)]
    db: Option<PathBuf>,
}

impl DbArgs {
    /// The database's path.
    ///
    /// # Errors
    /// Nobody says where the user's data are.
    pub fn path(&self) -> Result<PathBuf, Failure> {
        if let Some(path) = &self.db {
            return Ok(path.clone());
        }
        let absolute = |path: PathBuf| Some(path).filter(|path| path.is_absolute());
        let data = std::env::var_os("XDG_DATA_HOME")
            .map(PathBuf::from)
            .and_then(absolute);
        let home = || {
            Some(
                std::env::home_dir()
                    .and_then(absolute)?
                    .join(".local/share"),
            )
        };
        let data = data.or_else(home);
        let data = data.ok_or_else(|| {
            Failure::usage("no home directory: say with --db FILE where results are kept")
        })?;
        Ok(data.join("vellum/history.db"))
    }

    /// A result that somebody calls by its number, or by the name of its file.
    ///
    /// # Errors
    /// There is no such result, or it cannot be read.
    pub fn find(&self, name: &str) -> Result<Kept, Failure> {
        if let (Ok(id), false) = (name.parse(), Path::new(name).exists()) {
            return keeper::kept(self, id);
        }
        let document = std::fs::read_to_string(name).doing(|| format!("reading {name}"));
        Kept::parse(name, &document.blame_input()?).blame_input()
    }
}
