//! Frames that are taken out of use, because their memory fails or is taken away.
//!
//! Such a frame is kept as the shared zero page is: of kind [`Kind::Reserved`](super::Kind::Reserved),
//! with a reference that is never dropped, and so in no list. A flag of its record tells it from that
//! page.

use super::memory::PhysicalMemory;
use crate::addr::Pfn;
use crate::platform::Machine;
use crate::sync::Pin;
use crate::sync::atomic::Ordering;

impl<P: Machine> PhysicalMemory<P> {
    /// Takes a frame that nobody uses out of the lists of its zone. False if it is not there: it may
    /// be in use, in the list of another CPU, which gives that back when it next looks at a zone,
    /// or set aside.
    pub(crate) fn withdraw_free(&self, pin: &Pin<'_>, pfn: Pfn) -> bool {
        if self.other_lists().is_some() {
            return false;
        }
        self.drain(pin);
        let is_taken = self.zones.all.iter().any(|zone| {
            let mut lists = zone.lists.lock(pin);
            let is_taken = lists.take_frame(&self.table, pfn);
            zone.publish(&lists);
            is_taken
        });
        if !is_taken {
            self.shortage.fetch_add(1, Ordering::Relaxed);
            return false;
        }
        let frame = self.frame(pfn);
        frame.set_owner(0);
        frame.init_counts(1, 0);
        self.note_withdrawn(pfn);
        true
    }

    /// Keeps a frame to which the caller has the only reference, and that nobody can find any more.
    /// False, and nothing changed, if there is another.
    pub(crate) fn withdraw_held(&self, pin: &Pin<'_>, pfn: Pfn) -> bool {
        let frame = self.frame(pfn);
        if frame.counts().refs() != 1 {
            return false;
        }
        self.uncharge(pin, pfn, 0);
        frame.set_owner(0);
        self.note_withdrawn(pfn);
        true
    }

    /// Frees a frame that is out of use; false if it is not.
    pub(crate) fn readmit(&self, pin: &Pin<'_>, pfn: Pfn) -> bool {
        let frame = self.frame(pfn);
        if !frame.end_withdrawal() {
            return false;
        }
        self.withdrawn.fetch_sub(1, Ordering::Relaxed);
        frame.init_counts(0, 0);
        self.free(pin, pfn, 0);
        true
    }

    fn note_withdrawn(&self, pfn: Pfn) {
        self.frame(pfn).set_withdrawn();
        self.withdrawn.fetch_add(1, Ordering::Relaxed);
    }
}
