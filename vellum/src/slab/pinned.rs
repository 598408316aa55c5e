//! Arenas whose frames go back: what is in them is followed under a pin.

use super::arena::{Arena, Item};
use super::handle::Handle;
use crate::frame::{Kind, PhysicalMemory};
use crate::platform::{CpuId, Machine};
use crate::sync::Pin;
use crate::sync::limbo::Chain;

/// How long frames stay an arena's that it took.
pub trait Stay: sealed::Sealed + 'static {
    /// Whether a frame that has become empty goes back.
    const RETURNS: bool;
}

/// For good: a handle or an address can be followed by anybody at any time.
#[derive(Debug)]
pub enum ForGood {}

/// While they hold a slot in use, and as long as anybody is pinned who was when they no longer did:
/// what is in the arena is followed under a pin ([`Arena::under`]).
#[derive(Debug)]
pub enum WhilePinned {}

mod sealed {
    /// Keeps other types from saying how long frames stay.
    pub trait Sealed {}
    impl Sealed for super::ForGood {}
    impl Sealed for super::WhilePinned {}
}

impl Stay for ForGood {
    const RETURNS: bool = false;
}

impl Stay for WhilePinned {
    const RETURNS: bool = true;
}

/// An arena as somebody who is pinned sees it.
///
/// ```
/// # use vellum::object::RadixNode;
/// # use vellum::slab::{Arena, Handle, WhilePinned};
/// # use vellum::sync::Pin;
/// fn follow(nodes: &Arena<RadixNode, WhilePinned>, handle: Handle<RadixNode>, pin: Pin<'_>) {
///     let node = nodes.under(&pin).get(handle);
///     println!("{node:?}");
/// }
/// ```
/// ```compile_fail,E0505
/// # use vellum::object::RadixNode;
/// # use vellum::slab::{Arena, Handle, WhilePinned};
/// # use vellum::sync::Pin;
/// fn follow(nodes: &Arena<RadixNode, WhilePinned>, handle: Handle<RadixNode>, pin: Pin<'_>) {
///     let node = nodes.under(&pin).get(handle);
///     drop(pin);
///     println!("{node:?}");
/// }
/// ```
pub struct Under<'a, T: Item> {
    arena: &'a Arena<T, WhilePinned>,
}

impl<T: Item> Clone for Under<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T: Item> Copy for Under<'_, T> {}

impl<'a, T: Item> Under<'a, T> {
    /// The slot of a handle. It may have been freed and used anew since the
    /// handle was read; the caller re-verifies.
    #[inline]
    pub fn get(self, handle: Handle<T>) -> &'a T {
        // SAFETY: the frame is the arena's as long as a pin lasts that `'a` is of.
        unsafe { self.arena.get_as(handle) }
    }

    /// The slot of a handle that may be stale or made up: `None` if there is no such
    /// slot. It need not be in use.
    #[inline]
    pub fn try_get(self, handle: Handle<T>) -> Option<&'a T> {
        // SAFETY: as above.
        unsafe { self.arena.slot(handle) }
    }
}

/// What happens to the vacant slots that a CPU has at hand when it gives frames back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AtHand {
    /// They stay, but for a spare list: the CPU goes on with what it is at, and needs some.
    Kept,
    /// They go as well.
    Given,
}

impl<T: Item> Arena<T, WhilePinned> {
    /// The arena under a pin: what is found there does not outlive it.
    #[inline]
    pub fn under<'a>(&'a self, _pin: &'a Pin<'_>) -> Under<'a, T> {
        Under { arena: self }
    }

    /// Has the frames that hold no slot in use go back to the memory: they are free when whoever is
    /// pinned no longer is. Vacant slots that other CPUs have at hand, or that wait on CPUs that are
    /// pinned, stay; `at_hand` says what does on this one. Returns how many frames went. What else is done takes time for each slot that
    /// came to the depot since it was done last.
    ///
    /// The caller has reserved no slots under its pin.
    pub(crate) fn give_back<P: Machine>(
        &self,
        pin: &Pin<'_>,
        memory: &PhysicalMemory<P>,
        at_hand: AtHand,
    ) -> u64 {
        pin.epochs().try_advance_alone(pin);
        let cache = self.caches.get(pin);
        let mut frames = 0;
        for cpu in 0..memory.platform().cpus() {
            let cpu = CpuId(cpu as u16);
            loop {
                let passed = self.caches.of(cpu).passed_of(cpu, pin);
                if passed.is_empty() {
                    break;
                }
                cache.count_frees(u64::from(passed.count));
                frames += self.send_home(pin, memory, passed);
            }
        }
        let spare = cache.take_spare().unwrap_or(Chain::EMPTY);
        frames += self.send_home(pin, memory, spare);
        if at_hand == AtHand::Given {
            for list in [cache.take_reserved(), cache.take_active()] {
                frames += self.send_home(pin, memory, list);
            }
        }
        while let Some(list) = self.depot.pop(self, self.slots, 1, pin) {
            frames += self.send_home(pin, memory, list);
        }
        frames
    }

    /// Sends slots home, which nobody else has; returns how many chunks went with that.
    #[inline(never)]
    fn send_home<P: Machine>(
        &self,
        pin: &Pin<'_>,
        memory: &PhysicalMemory<P>,
        mut list: Chain,
    ) -> u64 {
        let Some(home) = self.home() else {
            return 0;
        };
        let mut frames = 0;
        while !list.is_empty() {
            if let Some(frame) = home.send(&self.directory, self, &mut list, pin) {
                memory.frame(frame).set_kind(Kind::Allocated);
                memory.retire(pin, frame, false);
                frames += 1;
            }
        }
        frames
    }
}
