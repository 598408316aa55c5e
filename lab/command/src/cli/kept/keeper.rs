//! The database of results.

use std::path::{Path, PathBuf};

use vellum_history::{Added, Entry, Store};
use vellum_results::Run;

use super::super::outputs::OutputPath;
use super::DbArgs;
use crate::failure::{Failure, OrFail};
use crate::history::Kept;

/// Who keeps the result.
#[derive(Debug)]
pub struct Keeper {
    store: Store,
    note: String,
}

impl Keeper {
    /// Opens the database, or makes it.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn open(db: &DbArgs, note: &str) -> Result<Self, Failure> {
        Ok(Self {
            store: Store::create(&db.path()?)?,
            note: note.to_owned(),
        })
    }

    /// The database.
    pub fn path(&self) -> &Path {
        self.store.path()
    }

    /// Keeps the result. If that fails, it is in a file beside, as what was measured must
    /// not be lost: the message says in which.
    ///
    /// # Errors
    /// It could not be kept.
    pub fn keep(mut self, text: &str, run: &Run) -> Result<(), Failure> {
        let facts = Kept::parse("this run", text).map(|kept| kept.facts(&self.note));
        let added = match facts {
            Ok(facts) => self.store.add(&facts, text).map_err(Failure::from),
            Err(error) => Err(error.into()),
        };
        let path = self.store.path();
        match added {
            Ok(Added::New(id) | Added::Known(id)) => {
                eprintln!("vellum: kept as {id} in {}", path.display());
                Ok(())
            }
            Err(failure) => {
                let name = format!("vellum-{}.json", run.started.replace(':', ""));
                let saved = OutputPath::from(PathBuf::from(&name)).create();
                Err(match saved.and_then(|file| file.commit(text)) {
                    Ok(()) => Failure::failed(format!(
                        "{}; the result is in {name}, for `vellum history add`",
                        failure.message()
                    )),
                    Err(_) => failure,
                })
            }
        }
    }
}

/// The result of a number.
///
/// # Errors
/// There is no database, or no such result.
pub fn kept(db: &DbArgs, id: i64) -> Result<Kept, Failure> {
    kept_in(&Store::open(&db.path()?).blame_input()?, id)
}

/// A result as it was kept.
///
/// # Errors
/// There is none of this number.
pub fn document(store: &Store, id: i64) -> Result<(Entry, String), Failure> {
    store.get(id)?.ok_or_else(|| {
        let path = store.path().display();
        Failure::usage(format!(
            "{path}: no result has the number {id}; see `vellum history list`"
        ))
    })
}

/// A result that is kept, read.
///
/// # Errors
/// There is none of this number, or it cannot be read.
pub fn kept_in(store: &Store, id: i64) -> Result<Kept, Failure> {
    Kept::parse(id.to_string(), &document(store, id)?.1).blame_input()
}
