//! The tables, and the steps from older ones to these.
//!
//! The file says which application it belongs to and which version of the tables it has
//! (`application_id` and `user_version` of its header). A newer version is refused before
//! anything is touched. An older one is brought up to date step by step in the first
//! transaction that writes.

use rusqlite::{Connection, Transaction};

/// The version of the tables that this program writes.
pub const VERSION: i64 = STEPS.len() as i64;

/// In the header of the file: `Vllm`.
const APPLICATION: i64 = 0x566c_6c6d;

/// What leads from each version to the next.
const STEPS: &[&str] = &["
    CREATE TABLE results (
        -- Never used again, so that an id in a note or a script means one result for good.
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        -- SHA-256 of the document.
        digest TEXT NOT NULL UNIQUE,
        started TEXT NOT NULL,
        schema TEXT NOT NULL,
        subject TEXT NOT NULL,
        designs TEXT NOT NULL,
        host TEXT NOT NULL,
        answer TEXT NOT NULL,
        note TEXT NOT NULL,
        document TEXT NOT NULL
    ) STRICT;
    CREATE INDEX results_started ON results (started);
"];

/// What a file is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum State {
    /// Empty: to become one of ours.
    New,
    /// Something else.
    Foreign,
    /// Ours, with tables of this version.
    Ours(i64),
}

/// Looks at the header, within a transaction.
pub(crate) fn state(connection: &Connection) -> rusqlite::Result<State> {
    let read = |name| connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
    let (application, version) = (read("application_id")?, read("user_version")?);
    let count = "SELECT count(*) FROM sqlite_schema";
    let tables: i64 = connection.query_row(count, (), |row| row.get(0))?;
    Ok(match (application, version, tables) {
        (APPLICATION, version, _) => State::Ours(version),
        (0, 0, 0) => State::New,
        _ => State::Foreign,
    })
}

/// Brings the tables up to date.
pub(crate) fn update(transaction: &Transaction<'_>, from: State) -> rusqlite::Result<()> {
    let version = match from {
        State::Ours(version) => version,
        State::New | State::Foreign => 0,
    };
    for step in STEPS.iter().skip(version as usize) {
        transaction.execute_batch(step)?;
    }
    if version < VERSION {
        transaction.pragma_update(None, "application_id", APPLICATION)?;
        transaction.pragma_update(None, "user_version", VERSION)?;
    }
    Ok(())
}
