//! Region locks whose readers write only their own CPU's line.
//!
//! A fault must keep its region from changing while it works, and many CPUs
//! fault in one region at a time; a reader count in the region would bounce
//! between them. So a reader *announces* the region in a slot of its CPU and
//! then checks the region's gate; a writer closes the gate and then waits
//! until no CPU announces the region (a big-reader lock that exists only while
//! it is used). Both sides put a full fence between their store and their
//! load, so at least one of them sees the other.
//!
//! Most regions are one CPU's. So each notes the CPU that has entered it, until there is a second
//! one, and whoever waits for the readers of one region has one slot to look at.

use alloc::boxed::Box;
use core::marker::PhantomData;

use super::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use super::percpu::CachePadded;
use super::report::name;
use super::{ActiveSet, CpuRoom, Pin};
use crate::platform::CpuId;

const CLOSED: u32 = 1;

/// The writer's side of a region's lock: a generation with a closed bit.
///
/// The generation counts how often the memory of the region was used anew, so
/// that a stale handle is noticed.
#[derive(Debug)]
pub struct RegionGate {
    state: AtomicU32,
    /// The only CPU that may have entered, or [`ANYBODY`].
    visitor: AtomicU32,
}

/// More than one CPU may have entered.
const ANYBODY: u32 = u32::MAX;

impl Default for RegionGate {
    fn default() -> Self {
        RegionGate {
            state: AtomicU32::new(CLOSED),
            visitor: AtomicU32::new(ANYBODY),
        }
    }
}

impl RegionGate {
    /// The region begins: nobody has entered it, and the first to do so is likely to be `cpu`.
    /// The gate is closed, and opens later.
    #[inline]
    pub fn begin(&self, cpu: CpuId) {
        self.visitor.store(u32::from(cpu.0), Ordering::Relaxed);
    }

    /// Whether it is known that this CPU may enter.
    #[inline]
    fn knows(&self, cpu: CpuId) -> bool {
        let visitor = self.visitor.load(Ordering::Relaxed);
        visitor == u32::from(cpu.0) || visitor == ANYBODY
    }

    /// Makes known that this CPU may enter. A full fence follows before it looks whether
    /// the gate is open.
    #[inline]
    fn note(&self, cpu: CpuId) {
        if !self.knows(cpu) {
            self.visitor.store(ANYBODY, Ordering::Relaxed);
        }
    }

    /// Whether readers may enter.
    #[inline]
    pub(crate) fn is_open(&self) -> bool {
        self.state.load(Ordering::Acquire) & CLOSED == 0
    }

    /// What the gate is or was when it was opened last. It changes with each time it is opened, and
    /// so with each change of the region and when the region's memory is used anew.
    #[inline]
    pub fn opened(&self) -> u32 {
        self.state.load(Ordering::Relaxed) & !CLOSED
    }

    /// Keeps new readers out. Those inside have left when
    /// `Announcements::wait_out` returns. Writers exclude each other by a
    /// lock of their own, so that nobody else changes the gate meanwhile.
    #[inline]
    pub fn close(&self) {
        let value = self.state.load(Ordering::Relaxed);
        self.state.store(value | CLOSED, Ordering::Relaxed);
    }

    /// Lets readers in again, publishing the changes.
    #[inline]
    pub fn open(&self) {
        let value = self.state.load(Ordering::Relaxed);
        self.state
            .store((value & !CLOSED).wrapping_add(2), Ordering::Release);
    }
}

/// One slot a CPU: the key of the region it is working in, or 0.
pub struct Announcements {
    slots: Box<[CachePadded<AtomicU64>]>,
}

impl Announcements {
    /// Slots for `cpus` CPUs.
    pub fn new(cpus: usize) -> Self {
        let slots = (0..cpus).map(|_| CachePadded(AtomicU64::new(0)));
        let slots: Box<[CachePadded<AtomicU64>]> = slots.collect();
        name("Announcements", &[], slots.as_ptr(), cpus);
        Announcements { slots }
    }

    /// Enters as a reader of the region with this `gate`, unless it is closed.
    /// `key` is not 0 and belongs to the region alone. A CPU is in one region
    /// at a time.
    #[inline]
    pub fn enter<'a>(
        &'a self,
        gate: &RegionGate,
        key: u64,
        pin: &'a Pin<'_>,
    ) -> Option<SharedAccess<'a>> {
        let slot = &self.slots[pin.cpu().0 as usize].0;
        debug_assert!(
            slot.load(Ordering::Relaxed) == 0,
            "a CPU is in one region at a time"
        );
        gate.note(pin.cpu());
        // Release for a writer that finds this announcement in place of the one
        // that it waits for: what was done under that is done.
        slot.store(key, Ordering::Release);
        fence(Ordering::SeqCst);
        let access = SharedAccess {
            _announced: Announced(slot),
            pinned: PhantomData,
        };
        (gate.is_open() && gate.knows(pin.cpu())).then_some(access)
    }

    /// Announces a key before it is known that its region will be entered. The
    /// caller has bound itself to `cpu` and passes a full fence, that of its pin,
    /// before it uses what is returned.
    #[inline]
    pub fn expect(&self, cpu: CpuId, key: u64) -> Expected<'_> {
        let slot = &self.slots[cpu.0 as usize].0;
        debug_assert!(
            slot.load(Ordering::Relaxed) == 0,
            "a CPU is in one region at a time"
        );
        // Release for the same reason.
        slot.store(key, Ordering::Release);
        Expected {
            key,
            announced: Announced(slot),
        }
    }

    /// Waits until no CPU announces `key`, which is that of the region with this gate alone. It is
    /// closed, so that nobody enters anew. For `active` see [`Announcements::wait_out`].
    #[inline]
    pub(crate) fn wait_out_one(
        &self,
        gate: &RegionGate,
        key: u64,
        active: ActiveSet<'_>,
        pin: &Pin<'_>,
    ) {
        // Whoever enters makes that known before a fence, and sees after it that the gate is
        // closed, or else is seen here.
        fence(Ordering::SeqCst);
        match gate.visitor.load(Ordering::Relaxed) {
            ANYBODY => self.wait_out(active, pin, |other| other == key),
            cpu => self.wait_for(CpuId(cpu as u16), pin, |other| other == key),
        }
    }

    /// Waits until no CPU announces a key that `concerns` accepts. The gates of
    /// those regions are closed, so that nobody enters anew. Looks at the CPUs that
    /// are in `active`, where a CPU enters before it announces such a key.
    pub(crate) fn wait_out(
        &self,
        active: ActiveSet<'_>,
        pin: &Pin<'_>,
        concerns: impl Fn(u64) -> bool,
    ) {
        // One fence for both: the set and then the slots are read after the gates
        // were closed.
        let mut room = CpuRoom::new();
        let cpus = active.after_change(&mut room);
        for cpu in cpus.iter(self.slots.len()) {
            self.wait_for(cpu, pin, &concerns);
        }
    }

    /// The same for one CPU.
    #[inline]
    fn wait_for(&self, cpu: CpuId, pin: &Pin<'_>, concerns: impl Fn(u64) -> bool) {
        let slot = &self.slots[cpu.0 as usize].0;
        let mut spins = 0;
        loop {
            let key = slot.load(Ordering::Acquire);
            if key == 0 || !concerns(key) {
                break;
            }
            pin.relax(spins);
            spins += 1;
        }
    }
}

/// A CPU's slot, cleared when this is dropped.
struct Announced<'a>(&'a AtomicU64);

impl Drop for Announced<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.store(0, Ordering::Release);
    }
}

/// An announcement made ahead.
pub struct Expected<'a> {
    key: u64,
    announced: Announced<'a>,
}

impl<'a> Expected<'a> {
    /// Enters the region with this `gate` and `key`, if it is the one that was
    /// announced, and the gate is as it was when this CPU was last inside ([`RegionGate::opened`]);
    /// else the announcement ends. `pin` is the one that was entered with the announcement.
    #[inline]
    pub fn enter(
        self,
        (gate, opened): (&RegionGate, u32),
        key: u64,
        _pin: &'a Pin<'_>,
    ) -> Option<SharedAccess<'a>> {
        let access = SharedAccess {
            _announced: self.announced,
            pinned: PhantomData,
        };
        let is_as_then = gate.state.load(Ordering::Acquire) == opened;
        (self.key == key && is_as_then).then_some(access)
    }
}

/// A reader's stay in a region, which ends before its pin, and on its pin's thread:
///
/// ```
/// use vellum::sync::{Announcements, Pin, RegionGate};
/// fn stay(announcements: &Announcements, gate: &RegionGate, pin: Pin<'_>) {
///     let access = announcements.enter(gate, 1, &pin);
///     drop(access);
///     drop(pin);
/// }
/// ```
/// ```compile_fail,E0505
/// use vellum::sync::{Announcements, Pin, RegionGate};
/// fn stay(announcements: &Announcements, gate: &RegionGate, pin: Pin<'_>) {
///     let access = announcements.enter(gate, 1, &pin);
///     drop(pin);
///     drop(access);
/// }
/// ```
/// ```compile_fail,E0277
/// use vellum::sync::{Announcements, Pin, RegionGate};
/// fn stay(announcements: &Announcements, gate: &RegionGate, pin: Pin<'_>) {
///     let access = announcements.enter(gate, 1, &pin);
///     std::thread::scope(|scope| { scope.spawn(move || drop(access)); });
/// }
/// ```
pub struct SharedAccess<'a> {
    _announced: Announced<'a>,
    /// Binds the stay to its pin, and to the pin's thread.
    pinned: PhantomData<&'a Pin<'a>>,
}
