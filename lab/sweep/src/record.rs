//! A finished cell: the file that it is.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use vellum_results::Loaded;
use vellum_results::run::Host;
use vellum_results::sweep::CELL_SCHEMA;

use crate::cell::{Cell, HostId};
use crate::measured::{Measured, measured};

/// What is in the file of a finished cell.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Record {
    /// [`CELL_SCHEMA`].
    pub schema: String,
    /// The cell's key.
    pub key: String,
    /// The cell.
    pub cell: Cell,
    /// The host that it ran on, as the sweep names it.
    pub ran_on: HostId,
    /// How long it took, in seconds.
    pub seconds: f64,
    /// What did not hold, if the command checked something that did not.
    pub refuted: Option<String>,
    /// The result that the command printed; none if what did not hold kept it from that.
    pub result: Option<Value>,
}

/// A finished cell without all that its result holds.
#[derive(Clone, PartialEq, Debug)]
pub struct Finished {
    /// How long it took, in seconds.
    pub seconds: f64,
    /// The host by the name that the sweep has for it.
    pub ran_on: HostId,
    /// What is known of the host.
    pub host: Host,
    /// What it measured.
    pub measured: Measured,
    /// What did not hold.
    pub refuted: Option<String>,
}

impl Record {
    /// What counts of it.
    ///
    /// # Errors
    /// It is not the finished cell `key`; the message says why.
    pub fn digest(self, key: &str) -> Result<Finished, String> {
        if self.schema != CELL_SCHEMA {
            return Err(format!(
                "its schema is `{}`, not `{CELL_SCHEMA}`",
                self.schema
            ));
        }
        if self.key != key || self.cell.key() != key {
            return Err("it is of another cell".to_owned());
        }
        let (measured, run) = match self.result {
            None if self.refuted.is_none() => return Err("it has no result".to_owned()),
            None => (Measured::default(), Host::default()),
            Some(result) => {
                let loaded = Loaded::of_value("its result", result);
                let loaded = loaded.map_err(|error| error.to_string())?;
                (measured(&loaded), loaded.run.host)
            }
        };
        let host = Host {
            name: self.ran_on.name.clone(),
            kernel: self.ran_on.kernel.clone(),
            ..run
        };
        Ok(Finished {
            seconds: self.seconds,
            ran_on: self.ran_on,
            host,
            measured,
            refuted: self.refuted,
        })
    }
}
