//! What a section of a reproduction is, and what it works with.

use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::bench::{Setting, Simulated};
use super::model::Section;
use super::published::Source;
use super::{
    BUILD, QUICK_BUILD, QUICK_SERVER, QUICK_SIMULATED_BUILD, SERVER, SIMULATED_BUILD, Traces,
};
use crate::failure::Failure;
use crate::scale::Kept;
use vellum_terminal::progress::Interrupt;

/// What a section works with.
pub struct Task<'t> {
    /// How to measure.
    pub setting: &'t Setting,
    /// Whether to stop.
    pub interrupt: &'t Interrupt,
    /// Simulations that need not be run again.
    pub(super) all_kept: &'t Mutex<Kept>,
    /// Where the other traces are.
    pub(super) traces: &'t Traces<'t>,
}

impl Task<'_> {
    /// Simulations that need not be run again. Nobody leaves them half changed.
    pub(super) fn kept(&self) -> MutexGuard<'_, Kept> {
        self.all_kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The machine to simulate.
    ///
    /// # Errors
    /// None is to be simulated.
    pub(super) fn simulated(&self) -> Result<&Simulated, Failure> {
        let on = self.setting.simulated.as_ref();
        on.ok_or_else(|| Failure::failed("no machine is to be simulated"))
    }

    /// The kernel build's trace, or the part of it that is replayed.
    ///
    /// # Errors
    /// It is missing or cannot be read. Only the sections that need it fail by that.
    pub fn build(&self) -> Result<PathBuf, Failure> {
        self.traces.get(BUILD, QUICK_BUILD)
    }

    /// The part of the kernel build that is replayed on simulated machines.
    ///
    /// # Errors
    /// As [`Task::build`].
    pub fn simulated_build(&self) -> Result<PathBuf, Failure> {
        let part = match self.setting.quick {
            true => QUICK_SIMULATED_BUILD,
            false => SIMULATED_BUILD,
        };
        self.traces.get(BUILD, part)
    }

    /// The snapshot server's trace, or the part of it that is replayed.
    ///
    /// # Errors
    /// It is missing or cannot be read. Only the sections that need it fail by that.
    pub fn server(&self) -> Result<PathBuf, Failure> {
        self.traces.get(SERVER, QUICK_SERVER)
    }
}

/// A function that makes one section.
pub type Make = fn(&Task<'_>, &mut Section) -> Result<(), Failure>;

/// A section: title, sources, how it is made.
pub type Entry = (&'static str, &'static [Source], Make);
