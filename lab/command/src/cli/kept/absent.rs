//! What stands for the database of results if it is not built in.

use std::path::Path;

use vellum_results::Run;

use super::DbArgs;
use crate::built_in::HISTORY;
use crate::failure::Failure;
use crate::history::Kept;

/// Nobody can keep a result.
#[derive(Debug)]
pub enum Keeper {}

impl Keeper {
    /// Refuses to.
    ///
    /// # Errors
    /// Always: the message says what brings a database.
    pub fn open(_: &DbArgs, _: &str) -> Result<Self, Failure> {
        Err(Failure::usage(HISTORY.missing("`--keep`")))
    }

    /// The database.
    pub fn path(&self) -> &Path {
        match *self {}
    }

    /// Keeps the result.
    ///
    /// # Errors
    /// It could not be kept.
    pub fn keep(self, _: &str, _: &Run) -> Result<(), Failure> {
        match self {}
    }
}

/// Refuses a result by its number.
///
/// # Errors
/// Always: the message says what brings a database.
pub fn kept(_: &DbArgs, id: i64) -> Result<Kept, Failure> {
    let what = format!("`{id}` is no file, and the database of results");
    Err(Failure::usage(HISTORY.missing(&what)))
}
