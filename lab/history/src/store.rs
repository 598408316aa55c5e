//! The database: one file.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, OpenFlags, OptionalExtension, Row, Transaction, TransactionBehavior};
use sha2::{Digest, Sha256};

use crate::schema::{self, State};
use crate::{HistoryError, PATIENCE, VERSION};

/// By what a result is looked for.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Facts {
    /// When it was begun, as in `2026-11-24T08:30:00Z`; empty if it does not say.
    pub started: String,
    /// The name of its schema.
    pub schema: String,
    /// What was measured: a trace or a benchmark.
    pub subject: String,
    /// The designs, separated by blanks.
    pub designs: String,
    /// The machine that it was measured on; empty if it does not say.
    pub host: String,
    /// What it says, in a sentence.
    pub answer: String,
    /// What the user remarked.
    pub note: String,
}

/// A kept result without its document.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// Its number, which no other result ever gets.
    pub id: i64,
    /// By what it is looked for.
    pub facts: Facts,
    /// Bytes of the document.
    pub bytes: u64,
}

/// What became of a result that was to be kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Added {
    /// It is kept under this number.
    New(i64),
    /// It had been kept before, under this number.
    Known(i64),
}

/// Results in a file.
#[derive(Debug)]
pub struct Store {
    connection: Connection,
    path: PathBuf,
}

const ENTRY: &str = "SELECT id, started, schema, subject, designs, host, answer, note, \
                     length(CAST(document AS BLOB)) FROM results";

fn entry(row: &Row<'_>) -> rusqlite::Result<Entry> {
    Ok(Entry {
        id: row.get(0)?,
        facts: Facts {
            started: row.get(1)?,
            schema: row.get(2)?,
            subject: row.get(3)?,
            designs: row.get(4)?,
            host: row.get(5)?,
            answer: row.get(6)?,
            note: row.get(7)?,
        },
        bytes: row.get::<_, i64>(8)? as u64,
    })
}

impl Store {
    /// Opens a file to read results. It is not made if it is not there.
    ///
    /// # Errors
    /// There is none, it is something else, or a newer version of the program wrote it.
    pub fn open(path: &Path) -> Result<Store, HistoryError> {
        if !path.exists() {
            return Err(HistoryError::Missing(path.to_owned()));
        }
        Self::connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE)
    }

    /// Opens a file to keep results. It is made if need be, and so is its directory.
    ///
    /// # Errors
    /// It cannot be made or written, it is something else, or a newer version of the
    /// program wrote it.
    pub fn create(path: &Path) -> Result<Store, HistoryError> {
        if let Some(directory) = path.parent().filter(|name| !name.as_os_str().is_empty()) {
            std::fs::create_dir_all(directory).map_err(|error| HistoryError::Directory {
                path: directory.to_owned(),
                error,
            })?;
        }
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE;
        let mut store = Self::connect(path, flags)?;
        // A file that cannot be written is refused before any time is spent.
        store.change(|_| Ok(()))?;
        Ok(store)
    }

    fn connect(path: &Path, flags: OpenFlags) -> Result<Store, HistoryError> {
        let failed = |error| HistoryError::of(path, error);
        let flags = flags | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(path, flags).map_err(failed)?;
        connection
            .busy_timeout(Duration::from_secs(PATIENCE))
            .map_err(failed)?;
        connection
            .pragma_update(None, "synchronous", "FULL")
            .map_err(failed)?;
        // In one transaction: somebody else may be making the tables at this moment.
        let looks = connection.unchecked_transaction().map_err(failed)?;
        known(path, schema::state(&looks).map_err(failed)?)?;
        drop(looks);
        Ok(Store {
            connection,
            path: path.to_owned(),
        })
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Makes a change, whole or not at all, with the tables up to date.
    fn change<T>(
        &mut self,
        change: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<T>,
    ) -> Result<T, HistoryError> {
        let path = self.path.clone();
        let failed = |error| HistoryError::of(&path, error);
        // Others may have written since the file was opened: a newer program, too.
        let behavior = TransactionBehavior::Immediate;
        let transaction = self.connection.transaction_with_behavior(behavior);
        let transaction = transaction.map_err(failed)?;
        let state = schema::state(&transaction).map_err(failed)?;
        known(&path, state)?;
        schema::update(&transaction, state).map_err(failed)?;
        let changed = change(&transaction).map_err(failed)?;
        transaction.commit().map_err(failed)?;
        Ok(changed)
    }

    /// Keeps a result. One that is there already, byte for byte, is not kept twice.
    ///
    /// # Errors
    /// It cannot be written; nothing was changed then.
    pub fn add(&mut self, facts: &Facts, document: &str) -> Result<Added, HistoryError> {
        let digest = digest(document.as_bytes());
        self.change(|transaction| {
            let known = "SELECT id FROM results WHERE digest = ?1";
            let known = transaction.query_row(known, [&digest], |row| row.get(0));
            if let Some(id) = known.optional()? {
                return Ok(Added::Known(id));
            }
            transaction.execute(
                "INSERT INTO results (digest, started, schema, subject, designs, host, answer, \
                 note, document) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
                (
                    &digest,
                    &facts.started,
                    &facts.schema,
                    &facts.subject,
                    &facts.designs,
                    &facts.host,
                    &facts.answer,
                    &facts.note,
                    document,
                ),
            )?;
            Ok(Added::New(transaction.last_insert_rowid()))
        })
    }

    /// All results, the oldest first.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn entries(&self) -> Result<Vec<Entry>, HistoryError> {
        if self.is_empty_file()? {
            return Ok(Vec::new());
        }
        let read = || {
            let mut query = self
                .connection
                .prepare(&format!("{ENTRY} ORDER BY started, id"))?;
            let entries: rusqlite::Result<Vec<Entry>> = query.query_map((), entry)?.collect();
            entries
        };
        read().map_err(|error| HistoryError::of(&self.path, error))
    }

    /// The result with this number and its document, if it is there.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn get(&self, id: i64) -> Result<Option<(Entry, String)>, HistoryError> {
        if self.is_empty_file()? {
            return Ok(None);
        }
        let read = || {
            let found = self
                .connection
                .query_row(&format!("{ENTRY} WHERE id = ?1"), [id], entry);
            let Some(entry) = found.optional()? else {
                return Ok(None);
            };
            let document = "SELECT document FROM results WHERE id = ?1";
            let document = self.connection.query_row(document, [id], |row| row.get(0));
            Ok(document.optional()?.map(|document| (entry, document)))
        };
        read().map_err(|error| HistoryError::of(&self.path, error))
    }

    /// Removes results, all of them or none, and gives their room back to the disk. The
    /// number of those that were there.
    ///
    /// # Errors
    /// The file cannot be written; nothing was changed then.
    pub fn remove(&mut self, ids: &[i64]) -> Result<usize, HistoryError> {
        let removed = self.change(|transaction| {
            let mut query = transaction.prepare("DELETE FROM results WHERE id = ?1")?;
            ids.iter()
                .try_fold(0, |sum, id| Ok(sum + query.execute([id])?))
        })?;
        // Needs room for a copy. Without it the file stays as large as it is, which is no
        // loss: later results fill it.
        let _ = self.connection.execute_batch("VACUUM");
        Ok(removed)
    }

    /// Whether somebody made the file and was ended before there was a table in it.
    fn is_empty_file(&self) -> Result<bool, HistoryError> {
        let state = schema::state(&self.connection);
        let state = state.map_err(|error| HistoryError::of(&self.path, error))?;
        Ok(state == State::New)
    }
}

/// Refuses a file that is not ours, or newer than this program.
fn known(path: &Path, state: State) -> Result<(), HistoryError> {
    match state {
        State::New => Ok(()),
        State::Foreign => Err(HistoryError::Foreign(path.to_owned())),
        State::Ours(found) if found > VERSION => Err(HistoryError::Newer {
            path: path.to_owned(),
            found,
            known: VERSION,
        }),
        State::Ours(_) => Ok(()),
    }
}

/// SHA-256 in hexadecimal digits.
pub fn digest(bytes: &[u8]) -> String {
    let hash = Sha256::digest(bytes);
    hash.iter().map(|byte| format!("{byte:02x}")).collect()
}
