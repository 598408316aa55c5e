//! Files seen through a space of the verifier's own, and the final checks.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use vellum_engine::{Access, Backing, FileSlot, Op, Prot, Sharing, SpaceSlot};

use super::check::{Checked, Verifier, count};
use super::clocks::Place;
use super::refute::{Location, Refutation, Symptom, describe};
use super::word::Page;
use super::{Verification, Verified, end_state};

/// Where a helper maps a file, as a page number of any format.
const HELPER_PAGE: u64 = 1 << 16;

impl Verifier<'_> {
    /// The verifier's own space for `cpu`.
    fn helper(&self, cpu: u32) -> SpaceSlot {
        SpaceSlot(self.workload.spaces() + cpu)
    }

    /// Makes the helper spaces, one for each CPU.
    pub(super) fn create_helpers(&self) -> Checked {
        for cpu in 0..self.workload.cpus() as u32 {
            let space = self.helper(cpu);
            self.execute(Place { cpu, ..Place::END }, &Op::Create { space })?;
        }
        Ok(())
    }

    /// Checks pages of a file after it was read or written, through a mapping.
    pub(super) fn probe_file(&self, at: Place, file: FileSlot, pages: Range<u64>) -> Checked {
        let space = self.helper(at.cpu);
        let count_pages = pages.end - pages.start;
        let map = Op::Map {
            space,
            page: HELPER_PAGE,
            pages: count_pages,
            prot: Prot {
                read: true,
                ..Prot::default()
            },
            sharing: Sharing::Shared,
            backing: Backing::File {
                file,
                page: pages.start,
            },
            grows_down: false,
        };
        self.execute(at, &map)?;
        for page in pages.clone() {
            self.probe_file_page(at, file, page, HELPER_PAGE + (page - pages.start))?;
        }
        let unmap = Op::Unmap {
            space,
            page: HELPER_PAGE,
            pages: count_pages,
        };
        self.execute(at, &unmap)
    }

    fn probe_file_page(&self, at: Place, file: FileSlot, page: u64, mapped: u64) -> Checked {
        let space = self.helper(at.cpu);
        for index in [0, 1] {
            let location = Location::File(file, self.word_at(page, index));
            let from = self.word_at(mapped, index);
            let found = self
                .engine
                .load(at.cpu as usize, space, from, Access::Read)
                .map_err(|error| {
                    self.wrongly_refused(error, location, "a readable page of the file", at)
                })?;
            let content = self.model().file_content(file, page);
            let expected = &content.words[index];
            if !expected.admits(found, at, &self.clocks) {
                let symptom = Symptom::LostWrite;
                return Err(self.mismatch(symptom, location, expected, found, at));
            }
        }
        count(&self.counts.after_access);
        Ok(())
    }

    /// Reads back what is left, then checks the backing store, then the core.
    pub(super) fn finish(&self) -> Result<Verification, Box<Refutation>> {
        let end = Place::END;
        let left: Vec<SpaceSlot> = (0..self.workload.spaces())
            .map(SpaceSlot)
            .filter(|slot| self.model().space(*slot).is_some())
            .collect();
        for space in left {
            self.read_back(end, space)?;
        }
        let end_state = end_state(self.workload, self.engine);
        if let Err(error) = self.engine.sync(0) {
            return Err(self.wrongly_refused(error, Location::Nowhere, "sync succeeds", end));
        }
        self.check_stored()?;
        self.audit("every invariant holds at the end of the workload")?;
        self.engine.clear(0);
        self.audit("every invariant holds after the end of all spaces and files")?;
        self.verified(end_state)
    }

    /// The core's own audit, between slices or at the end.
    pub(super) fn audit(&self, expected: &'static str) -> Checked {
        self.engine.audit().map_err(|text| {
            self.refute(
                Symptom::Audit,
                Location::Nowhere,
                expected,
                text,
                Place::END,
            )
        })
    }

    /// Every written page of every file must be in the backing store; of a file on a tmpfs it must
    /// be in the file.
    fn check_stored(&self) -> Checked {
        let mut written: Vec<(FileSlot, u64, Page)> = Vec::new();
        for (slot, file) in self.model().files.iter().enumerate() {
            let Some(file) = file else { continue };
            let pages = file.written.iter();
            let pages = pages.filter(|(page, _)| **page < file.pages);
            written.extend(
                pages.map(|(page, content)| (FileSlot(slot as u32), *page, content.clone())),
            );
        }
        written.sort_by_key(|(file, page, _)| (*file, *page));
        for (file, page, content) in written {
            let in_memory = self.model().is_in_memory(file);
            for (index, expected) in content.words.iter().enumerate() {
                let at = self.word_at(page, index);
                let found = match in_memory {
                    true => self.engine.file_word(file, at),
                    false => self.engine.stored_word(file, at),
                };
                if found.is_none_or(|word| !expected.admits(word, Place::END, &self.clocks)) {
                    return Err(self.refute(
                        Symptom::LostDirty,
                        Location::File(file, at),
                        describe(expected.expected(), self.workload),
                        found.map_or("nothing".into(), |word| describe(word, self.workload)),
                        Place::END,
                    ));
                }
            }
            count(&self.counts.stored);
        }
        Ok(())
    }

    fn verified(&self, end_state: u64) -> Result<Verification, Box<Refutation>> {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let counts = &self.counts;
        let verified = Verified {
            ops: get(&counts.ops),
            written: get(&counts.written),
            read_back: get(&counts.read_back),
            after_access: get(&counts.after_access),
            stored: get(&counts.stored),
            refused: get(&counts.refused),
            unreadable: get(&counts.unreadable),
            raced: get(&counts.raced),
        };
        let checked = verified.read_back + verified.stored;
        if checked < verified.written {
            let expected = format!("at least {} pages read back", verified.written);
            let found = format!("{checked}");
            let nowhere = Location::Nowhere;
            return Err(self.refute(Symptom::TooFewChecks, nowhere, expected, found, Place::END));
        }
        Ok(Verification {
            verified,
            end_state,
        })
    }
}
