//! Throttling of writers that make pages dirty faster than their store takes them.
//!
//! What calls have written waits in memory until somebody writes it back: until then it cannot
//! leave memory, and is lost when the power goes. An embedder's flusher
//! ([`File::write_back`](crate::space::File::write_back)) keeps
//! it little as long as the device is as fast as the writers. If it is not, dirty pages come to be
//! as many as they may be, and then writers write back themselves: from half of that on in
//! proportion, at the limit as many pages as they have made dirty, beyond it twice as many. There
//! are three limits, and a writer pays for the one of which it owes most:
//!
//! * of its file: as many pages as the file's device writes in a second
//!   ([`Store::write_speed`]);
//! * of all files together: a fifth of memory;
//! * of what is charged to the group of the space that the CPU has loaded: a fifth of the group's
//!   limit.
//!
//! A writer writes back pages of its own file, so it never makes up for others: where they keep
//! more than the limit dirty and write no more, it writes as much as it makes dirty, and the sum
//! does not grow. What is beyond a limit comes back to it while its own writers write, and no call
//! writes more than twice what it has made dirty and the rest of a run, whatever others do, and
//! however many pages the store refuses. Stores through mappings are not counted before
//! somebody looks at their entries.

use crate::frame::Places;
use crate::object::{Object, ObjectId, ObjectKind, RUN_PAGES};
use crate::platform::Platform;
use crate::space::state::common::PageCache;
use crate::sync::Unpinned;

/// The least limit of a file in pages for the sake of its device: shorter runs would make it
/// slower than it is.
const LEAST: u64 = 2 * RUN_PAGES as u64;
/// A part of memory, and of what a group may have, may be dirty, one page in so many, however fast
/// devices are.
const PART: u64 = 5;

/// A file whose writers are throttled, as it was when a call began to write to it.
pub(in crate::space) struct Throttled {
    /// Dirty pages that it may have.
    limit: u64,
    /// Dirty pages that it had.
    before: u64,
}

impl Throttled {
    /// Pages that the call has made dirty, if it wrote to `touched` and `dirty` are now.
    fn made(&self, dirty: u64, touched: u64) -> u64 {
        let more = dirty.saturating_sub(self.before);
        // Others may have made pages dirty meanwhile, for which they write themselves.
        more.min(touched)
    }
}

/// From how many dirty pages on writers write back where `limit` may be.
fn free_of(limit: u64) -> u64 {
    limit / 2
}

/// Pages that a writer writes back who has made `made` pages dirty, where `dirty` are then and
/// `limit` may be.
fn share(dirty: u64, limit: u64, made: u64) -> u64 {
    let free = free_of(limit);
    match dirty {
        _ if dirty <= free => 0,
        _ if dirty <= limit => {
            let share = u128::from(made) * u128::from(dirty - free) / u128::from(limit - free);
            // No more than `made`, since `dirty` is no more than `limit`.
            share as u64
        }
        _ => made.saturating_mul(2).min(dirty - free),
    }
}

impl<P: Platform> PageCache<'_, P> {
    /// Whether those who write to an object are throttled.
    #[inline]
    pub(in crate::space) fn throttled(&self, object: &Object) -> Option<Throttled> {
        self.reclaim()?;
        let ObjectKind::File { store } = object.kind() else {
            return None;
        };
        let speed = self.memory.platform().write_speed(store)?;
        Some(Throttled {
            limit: speed.max(LEAST),
            before: object.dirty(),
        })
    }

    /// A call has written to so many pages of a throttled file: writes back the call's share of
    /// what is dirty. Called with no range held.
    #[cold]
    pub(in crate::space) fn throttle(
        &self,
        unpinned: Unpinned<'_>,
        id: ObjectId,
        object: &Object,
        throttled: &Throttled,
        touched: u64,
    ) {
        let dirty = object.dirty();
        let made = throttled.made(dirty, touched);
        if made == 0 {
            return;
        }
        let own = share(dirty, throttled.limit, made);
        let pages = own.max(self.share_of_memory(made));
        if pages == 0 {
            return;
        }
        // What the store refuses stays dirty, and those who sync are told of it. A file that
        // was released meanwhile has nothing to write.
        let done = self.write_back_some(unpinned, id, pages);
        if let (Ok(done), Some(reclaim)) = (done, self.reclaim()) {
            reclaim.counts.throttled.add(done.pages);
        }
    }

    /// Pages that a writer writes back who has made `made` pages dirty, for the sake of memory and
    /// of what its group may have.
    fn share_of_memory(&self, made: u64) -> u64 {
        let Some(counted) = self.memory.dirty() else {
            return 0;
        };
        // The count of the root has the pages of all.
        let share_of = |places: Places, pages: u64| {
            let limit = pages / PART;
            let dirty = counted.if_more(places, free_of(limit));
            share(dirty, limit, made)
        };
        let all = share_of(Places::only(0), self.memory.frame_count() as u64);
        let payer = self.paying_group(&self.pin());
        let Some(groups) = self.memory.groups() else {
            return all;
        };
        let limits = groups.limits_around(payer);
        let shares = limits.map(|(place, limit)| share_of(groups.within(place), limit));
        shares.fold(all, u64::max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_writer_pays_from_half_of_the_limit_on_in_proportion_and_double_beyond_it() {
        for (dirty, made, pages) in [
            (50, 10, 0),
            (60, 10, 2),
            (75, 10, 5),
            (100, 10, 10),
            (101, 10, 20),
            (101, 40, 51),
            (u64::MAX, u64::MAX, u64::MAX - 50),
            (200, 0, 0),
        ] {
            assert_eq!(share(dirty, 100, made), pages, "{made} of {dirty}");
        }
    }

    #[test]
    fn a_writer_has_made_no_more_pages_dirty_than_it_wrote_to() {
        let throttled = Throttled {
            limit: 0,
            before: 10,
        };
        assert_eq!(throttled.made(14, 5), 4);
        assert_eq!(throttled.made(50, 5), 5, "others write, too");
        assert_eq!(throttled.made(3, 5), 0, "somebody writes back");
    }

    #[test]
    fn a_limit_of_nothing_or_of_everything_is_one() {
        assert_eq!(share(1, 0, 1), 1);
        assert_eq!(share(0, 0, 0), 0);
        assert_eq!(share(u64::MAX, u64::MAX, 7), 7);
    }
}
