//! The verifier's state, and how one page is compared with the model.
//!
//! Lock order: the model's lock is a leaf; the engine is never called while it
//! is held. A page's words are read before the model is asked, and every write
//! is in the model before the engine does it: so a value that was found is
//! always known.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use vellum_engine::{Access, Engine, FileSlot, Op, OpError, SpaceSlot, reclaims};

use super::clocks::{Clocks, Place};
use super::history::history;
use super::model::Model;
use super::refute::{Location, Refutation, Symptom, describe, refused, stamped_by};
use super::word::{Page, Word, offsets};
use crate::replay::regions::Region;
use crate::replay::{Slice, Workload};

/// What a check comes to. Boxed, because failures are rare and large.
pub(super) type Checked = Result<(), Box<Refutation>>;

/// Counts of what was done, by all CPUs.
#[derive(Default)]
pub(super) struct Counts {
    pub(super) ops: AtomicU64,
    pub(super) written: AtomicU64,
    pub(super) read_back: AtomicU64,
    pub(super) after_access: AtomicU64,
    pub(super) stored: AtomicU64,
    pub(super) refused: AtomicU64,
    pub(super) unreadable: AtomicU64,
    pub(super) raced: AtomicU64,
}

/// Adds one.
pub(super) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// A verified replay under way.
pub(super) struct Verifier<'w> {
    pub(super) workload: &'w Workload,
    pub(super) engine: &'w dyn Engine,
    /// Pages may leave memory at any time.
    reclaims: bool,
    pub(super) clocks: Clocks,
    pub(super) counts: Counts,
    model: Mutex<Model>,
    failed: AtomicBool,
    refutation: Mutex<Option<Box<Refutation>>>,
}

/// Why a page is looked at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Occasion {
    /// Its space's tables map it.
    Resident,
    /// It was touched and may have been reclaimed since, unless it was written.
    Touched,
    /// It was accessed just now.
    Accessed,
}

impl<'w> Verifier<'w> {
    pub(super) fn new(workload: &'w Workload, engine: &'w dyn Engine, slices: &[Slice]) -> Self {
        let spaces = workload.spaces() as usize;
        let model = Model::new(spaces, workload.files().len(), workload.cpus());
        Self {
            workload,
            engine,
            reclaims: reclaims(&engine.design()).unwrap_or(false),
            clocks: Clocks::new(workload, slices),
            counts: Counts::default(),
            model: Mutex::new(model),
            failed: AtomicBool::new(false),
            refutation: Mutex::new(None),
        }
    }

    pub(super) fn model(&self) -> MutexGuard<'_, Model> {
        self.model.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The byte address of a watched word, 0 or 1, of a page.
    pub(super) fn word_at(&self, page: u64, word: usize) -> u64 {
        let shift = self.workload.pages().shift;
        (page << shift) + offsets(shift)[word]
    }

    fn page_of(&self, address: u64) -> u64 {
        address >> self.workload.pages().shift
    }

    pub(super) fn single_cpu(&self) -> bool {
        self.workload.cpus() == 1
    }

    /// Everything in earlier slices has happened.
    pub(super) fn begin_slice(&self, slice: &Slice) {
        self.model().barrier = slice.ops.iter().map(|ops| ops.start as u32).collect();
    }

    /// Some CPU has found something wrong: the others stop.
    pub(super) fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }

    pub(super) fn record(&self, refutation: Box<Refutation>) {
        let mut first = self
            .refutation
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        first.get_or_insert(refutation);
        self.failed.store(true, Ordering::Relaxed);
    }

    /// What was found wrong, if anything.
    pub(super) fn verdict(&self) -> Checked {
        let mut first = self
            .refutation
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        first.take().map_or(Ok(()), Err)
    }

    /// A failure at `location`, with its history.
    pub(super) fn refute(
        &self,
        symptom: Symptom,
        location: Location,
        expected: impl Into<String>,
        found: impl Into<String>,
        at: Place,
    ) -> Box<Refutation> {
        let file = match location {
            Location::Space(space, address) => self.backing_file(space, self.page_of(address)),
            Location::File(file, _) => Some(file),
            Location::Nowhere => None,
        };
        Box::new(Refutation {
            symptom,
            location,
            expected: expected.into(),
            found: found.into(),
            at: (at != Place::END).then_some(at),
            history: history(self.workload, location, file, at),
        })
    }

    fn backing_file(&self, space: SpaceSlot, page: u64) -> Option<FileSlot> {
        let model = self.model();
        let region = model.space(space)?.regions.at(page)?;
        region.file_page(page).map(|(file, _)| file)
    }

    /// The symptom and text of an engine's refusal.
    pub(super) fn wrongly_refused(
        &self,
        error: OpError,
        location: Location,
        expected: &str,
        at: Place,
    ) -> Box<Refutation> {
        let symptom = match error {
            OpError::OutOfMemory => Symptom::OutOfMemory,
            OpError::GroupLimit => Symptom::GroupLimit,
            _ => Symptom::WronglyRefused,
        };
        self.refute(symptom, location, expected, refused(error), at)
    }

    /// Compares the two watched words of `page` with the model.
    pub(super) fn check_page(
        &self,
        at: Place,
        space: SpaceSlot,
        page: u64,
        occasion: Occasion,
    ) -> Checked {
        let cpu = at.cpu as usize;
        let mut words = [0, 1].map(|word| self.engine.peek(cpu, space, self.word_at(page, word)));
        let mut seen = match self.seen(at, space, page)? {
            Some(seen) => seen,
            None => return Ok(()),
        };
        if words.contains(&None) {
            if !seen.region.prot.read {
                count(&self.counts.unreadable);
                return Ok(());
            }
            match (occasion, seen.written) {
                // Only a written page must be somewhere: a load brings it back.
                (Occasion::Touched | Occasion::Accessed, false) => return Ok(()),
                // It has left between the two looks.
                (Occasion::Resident, false) if self.reclaims => return Ok(()),
                (Occasion::Resident, false) => {
                    let location = Location::Space(space, self.word_at(page, 0));
                    let expected = "a translation, because the tables map the page";
                    let symptom = Symptom::WrongContent;
                    return Err(self.refute(symptom, location, expected, "none", at));
                }
                // It was given up with `MADV_FREE`, and taken.
                (_, true) if seen.content.may_be_absent() => {
                    count(&self.counts.read_back);
                    return Ok(());
                }
                (_, true) => {}
            }
            for (index, word) in words.iter_mut().enumerate() {
                *word = Some(self.load(at, space, self.word_at(page, index))?);
            }
            match self.seen(at, space, page)? {
                Some(again) => seen = again,
                None => return Ok(()),
            }
        }
        for (index, word) in words.into_iter().enumerate() {
            let found = word.unwrap_or(0);
            let expected = &seen.content.words[index];
            if !expected.admits(found, at, &self.clocks) {
                let location = Location::Space(space, self.word_at(page, index));
                let symptom = self.diagnose(&seen.region, (space, page), found, expected);
                return Err(self.mismatch(symptom, location, expected, found, at));
            }
        }
        count(match occasion {
            Occasion::Accessed => &self.counts.after_access,
            Occasion::Resident | Occasion::Touched => &self.counts.read_back,
        });
        Ok(())
    }

    /// What the model has for `page` now. `None`: another CPU is changing the
    /// file behind it, so nothing is certain.
    fn seen(
        &self,
        at: Place,
        space: SpaceSlot,
        page: u64,
    ) -> Result<Option<Seen>, Box<Refutation>> {
        let model = self.model();
        let known = model.space(space).and_then(|space| {
            let region = *space.regions.at(page)?;
            Some((region, space.private.contains_key(&page)))
        });
        let content = model.content(space, page);
        let (Some((region, written)), Some(content)) = (known, content) else {
            drop(model);
            let location = Location::Space(space, self.word_at(page, 0));
            let expected = "nothing mapped: there is no region";
            return Err(self.refute(Symptom::StrayPage, location, expected, "a mapped page", at));
        };
        let Some((file, file_page)) = region.file_page(page) else {
            return Ok(Some(Seen {
                region,
                written,
                content,
            }));
        };
        let changed = match model.files.get(file.0 as usize) {
            Some(Some(file)) => file.changed,
            _ => None,
        };
        let settled = changed.is_none_or(|by| by == at || self.clocks.precedes(by, at));
        let pages = model.file_pages(file);
        drop(model);
        if !settled {
            count(&self.counts.raced);
            return Ok(None);
        }
        if file_page >= pages {
            let location = Location::Space(space, self.word_at(page, 0));
            let expected = format!("nothing mapped: file {} ends at page {pages}", file.0);
            let found = format!("page {file_page} of the file");
            let symptom = Symptom::SurvivedTruncation;
            return Err(self.refute(symptom, location, expected, found, at));
        }
        Ok(Some(Seen {
            region,
            written,
            content,
        }))
    }

    fn load(&self, at: Place, space: SpaceSlot, address: u64) -> Result<u64, Box<Refutation>> {
        self.engine
            .load(at.cpu as usize, space, address, Access::Read)
            .map_err(|error| {
                let location = Location::Space(space, address);
                self.wrongly_refused(error, location, "a written page, readable", at)
            })
    }

    pub(super) fn mismatch(
        &self,
        symptom: Symptom,
        location: Location,
        expected: &Word,
        found: u64,
        at: Place,
    ) -> Box<Refutation> {
        let expected = describe(expected.expected(), self.workload);
        let found = describe(found, self.workload);
        self.refute(symptom, location, expected, found, at)
    }

    /// Names what went wrong when `found` stands in the place of `expected`.
    pub(super) fn diagnose(
        &self,
        region: &Region,
        (space, page): (SpaceSlot, u64),
        found: u64,
        expected: &Word,
    ) -> Symptom {
        let before = match region.file_page(page) {
            Some((file, page)) => {
                if expected.expected() == 0 && self.model().was_cut(file, page) {
                    return Symptom::SurvivedTruncation;
                }
                self.model().pristine(file, page)
            }
            None => 0,
        };
        let Some(writer) = stamped_by(found, self.workload) else {
            return match found == 0 || found == before {
                true => Symptom::LostWrite,
                false => Symptom::WrongContent,
            };
        };
        let op = self.workload.streams()[writer.cpu as usize].ops()[writer.position as usize];
        let same = matches!(op, Op::Touch { space: s, page: p, .. } if (s, p) == (space, page));
        match stamped_by(expected.expected(), self.workload) {
            Some(wanted) if self.clocks.precedes(writer, wanted) => Symptom::LostWrite,
            Some(_) if same => Symptom::LostWrite,
            None if same => Symptom::StaleTranslation,
            _ => Symptom::LeakedWrite,
        }
    }
}

/// What the model says about one page.
struct Seen {
    region: Region,
    /// It has words of its own: it was written in this space.
    written: bool,
    content: Page,
}
