//! What a verification found wrong: one symptom, where, and what led to it.

use std::fmt;

use vellum_engine::{FileSlot, Op, OpError, SpaceSlot};

use super::clocks::Place;
use crate::replay::Workload;

/// The kinds of failure, by what a user of memory would see.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Symptom {
    /// A private page shows what another space wrote: copy on write failed.
    LeakedWrite,
    /// A page lacks a write that was made to it.
    LostWrite,
    /// An access still reaches a page that is no longer mapped there.
    StaleTranslation,
    /// A page of a file was written and the backing store does not have it.
    LostDirty,
    /// A page past the end of its file is still mapped, or came back when the file grew.
    SurvivedTruncation,
    /// A page holds something that nobody wrote there.
    WrongContent,
    /// A page is mapped where no region is.
    StrayPage,
    /// An access or operation that is allowed was refused.
    WronglyRefused,
    /// An access that is not allowed succeeded.
    NotRefused,
    /// The simulated machine has too little memory for this workload.
    OutOfMemory,
    /// The group of all processes may have too little memory for this workload.
    GroupLimit,
    /// The core's own audit failed.
    Audit,
    /// CPUs sleep, and nobody is left to wake them.
    Stuck,
    /// Fewer pages were read back than written: the verification proves nothing.
    TooFewChecks,
}

impl Symptom {
    /// Its name in messages and JSON.
    pub fn name(self) -> &'static str {
        match self {
            Symptom::LeakedWrite => "leaked-write",
            Symptom::LostWrite => "lost-write",
            Symptom::StaleTranslation => "stale-translation",
            Symptom::LostDirty => "lost-dirty",
            Symptom::SurvivedTruncation => "survived-truncation",
            Symptom::WrongContent => "wrong-content",
            Symptom::StrayPage => "stray-page",
            Symptom::WronglyRefused => "wrongly-refused",
            Symptom::NotRefused => "not-refused",
            Symptom::OutOfMemory => "out-of-memory",
            Symptom::GroupLimit => "group-limit",
            Symptom::Audit => "audit",
            Symptom::Stuck => "stuck",
            Symptom::TooFewChecks => "too-few-checks",
        }
    }

    fn sentence(self) -> &'static str {
        match self {
            Symptom::LeakedWrite => "a private page shows what another space wrote",
            Symptom::LostWrite => "a page lacks a write that was made to it",
            Symptom::StaleTranslation => {
                "an access reaches a page that is no longer mapped there (a TLB entry survived)"
            }
            Symptom::LostDirty => "a written page of a file is not in the backing store after sync",
            Symptom::SurvivedTruncation => {
                "a page past the end of its file is still mapped, or came back when it grew"
            }
            Symptom::WrongContent => "a page holds something that nobody wrote there",
            Symptom::StrayPage => "a page is mapped where no region is",
            Symptom::WronglyRefused => "something allowed was refused",
            Symptom::NotRefused => "an access that is not allowed succeeded",
            Symptom::OutOfMemory => "the simulated machine is out of memory; raise --ram",
            Symptom::GroupLimit => {
                "the group has as many pages as it may have, and none can leave; raise --group-limit"
            }
            Symptom::Audit => "the memory manager's own audit failed",
            Symptom::Stuck => "CPUs wait for each other for good",
            Symptom::TooFewChecks => "fewer pages were read back than written",
        }
    }
}

/// Where in memory something is wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Location {
    /// A byte address of a space.
    Space(SpaceSlot, u64),
    /// A byte offset of a file.
    File(FileSlot, u64),
    /// No place in particular.
    Nowhere,
}

/// A failed verification.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refutation {
    /// What kind of failure.
    pub symptom: Symptom,
    /// Where.
    pub location: Location,
    /// What should have been found, in words.
    pub expected: String,
    /// What was found, in words.
    pub found: String,
    /// The operation that was being verified, if it was one.
    pub at: Option<Place>,
    /// The last operations that concern the page, oldest first.
    pub history: Vec<String>,
}

impl fmt::Display for Refutation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let symptom = self.symptom;
        write!(f, "{}: {}", symptom.name(), symptom.sentence())?;
        match self.location {
            Location::Space(space, address) => {
                write!(f, "\n  where:    space {}, address {address:#x}", space.0)?;
            }
            Location::File(file, offset) => {
                write!(f, "\n  where:    file {}, offset {offset:#x}", file.0)?;
            }
            Location::Nowhere => {}
        }
        write!(f, "\n  expected: {}", self.expected)?;
        write!(f, "\n  found:    {}", self.found)?;
        if !self.history.is_empty() {
            write!(f, "\n  the last operations that concern the page:")?;
            for line in &self.history {
                write!(f, "\n    {line}")?;
            }
        }
        Ok(())
    }
}

impl std::error::Error for Refutation {}

/// Bits of a stamp that mark it as one.
const STAMP_MARK: u64 = 0xa5 << 56;
const STAMP_MARK_BITS: u64 = 0xff << 56;

/// The unique word that the store at `place` writes.
pub fn stamp(place: Place) -> u64 {
    STAMP_MARK | u64::from(place.cpu) << 40 | u64::from(place.position)
}

/// The store that wrote `word`, if it is a stamp of `workload`.
pub fn stamped_by(word: u64, workload: &Workload) -> Option<Place> {
    if word & STAMP_MARK_BITS != STAMP_MARK {
        return None;
    }
    let place = Place {
        cpu: (word >> 40 & 0xffff) as u32,
        position: word as u32,
    };
    let stream = workload.streams().get(place.cpu as usize)?;
    let op = stream.ops().get(place.position as usize)?;
    (matches!(op, Op::Touch { .. }) && stamp(place) == word).then_some(place)
}

/// `word` in words: its value, and whose stamp it is.
pub fn describe(word: u64, workload: &Workload) -> String {
    match stamped_by(word, workload) {
        Some(place) => {
            let line = describe_op(workload, place);
            format!("{word:#018x}, the stamp of: {line}")
        }
        None if word == 0 => "zero".into(),
        None => format!("{word:#018x}"),
    }
}

/// One line about an operation.
pub fn describe_op(workload: &Workload, place: Place) -> String {
    let stream = &workload.streams()[place.cpu as usize];
    let position = place.position as usize;
    format!(
        "cpu {} op {position} (event {}): {:?}",
        place.cpu,
        stream.origins()[position],
        stream.ops()[position],
    )
}

/// One line about an error.
pub fn refused(error: OpError) -> String {
    format!("refused: {error}")
}
