//! What the core touches, told to whoever listens.
//!
//! In an instrumented build (`cfg(vellum_instrumented)`) every access is reported
//! before it happens: by the atomics of this folder, by the bytes of frames, by the
//! guards of spin locks for what they guard, and by whoever writes plain values where
//! others will find them. Not reported are values that no longer change once a manager
//! is made, and what lies on the stack of a call.
//!
//! Listeners are told one after the other, on the thread that makes the access. A
//! process may have several of them: each finds out for itself whether it is concerned.
//! In every other build a report is nothing.

/// What an access does.
#[derive(Clone, Copy)]
#[cfg_attr(vellum_instrumented, derive(PartialEq, Eq, Hash, Debug))]
pub enum Kind {
    /// Reads an atomic word.
    #[cfg(vellum_instrumented)]
    Load,
    /// Writes an atomic word.
    #[cfg(vellum_instrumented)]
    Store,
    /// Reads and writes an atomic word in one step, for which the processor must own
    /// its cache line.
    #[cfg(vellum_instrumented)]
    ReadModifyWrite,
    /// Orders other accesses, but lets loads pass earlier stores.
    #[cfg(vellum_instrumented)]
    Fence,
    /// Orders other accesses, also loads after earlier stores.
    #[cfg(vellum_instrumented)]
    FullFence,
    /// Begins to read what a spin lock guards; which of the bytes is not known.
    GuardedRead,
    /// Begins to write what a spin lock guards, or to read it, as long as the lock is
    /// held; which of the bytes is not known.
    GuardedWrite,
    /// Writes a value that is not published yet.
    #[cfg_attr(vellum_loom, expect(dead_code, reason = "who does so is in no model"))]
    PlainWrite,
    /// Reads bytes of a frame.
    BytesRead,
    /// Writes bytes of a frame.
    BytesWritten,
    /// Writes one word again and again to bytes of a frame.
    BytesFilled,
    /// Zeroes bytes of a frame.
    BytesZeroed,
    /// Zeroes bytes of a frame with stores that pass the caches by.
    BytesZeroedAround,
    /// Asks for the lines of some bytes, which need not be memory.
    Prefetch,
    /// Asks for a line that is read next and then written.
    PrefetchToWrite,
    /// Writes what only the checks of debug builds keep. It is to cost nothing, so that
    /// a simulated time is the same in every build.
    #[cfg_attr(
        not(debug_assertions),
        allow(dead_code, reason = "only debug builds do so")
    )]
    Bookkeeping,
    /// No access: a lock that is there was not free, and is waited for from now on.
    LockAwaited,
    /// No access: the caller no longer waits for a lock that is there, whether it then
    /// takes it or not.
    #[cfg_attr(vellum_loom, allow(dead_code, reason = "the models use a part of it"))]
    LockWaitEnded,
    /// No access: a lock that is there has been taken.
    LockTaken,
    /// No access: a lock that is there is about to be released.
    LockReleased,
}

/// Reports an access of `bytes` bytes from `start` on, before it happens.
#[cfg(not(vellum_instrumented))]
#[inline(always)]
pub(crate) fn report(_kind: Kind, _start: *const u8, _bytes: usize) {}

/// Reports what happens to a lock. Its word, or the first of its words, is `lock`.
#[inline(always)]
pub(crate) fn report_lock<T>(what: Kind, lock: &T) {
    report(what, core::ptr::from_ref(lock).cast(), size_of::<T>());
}

/// Says what the `count` values are that lie from `first` on, and stay there for as long
/// as the manager lives.
#[cfg(not(vellum_instrumented))]
#[inline(always)]
pub(crate) fn name<T>(_what: &'static str, _fields: Fields, _first: *const T, _count: usize) {}

/// Names of fields of a type with their offsets, ascending.
pub type Fields = &'static [(&'static str, usize)];

/// Whether `bytes` bytes from `start` on, a write of all of which has been reported, need
/// not be written.
#[cfg(not(vellum_instrumented))]
#[inline(always)]
pub(crate) fn is_spared(_start: *const u8, _bytes: usize) -> bool {
    false
}

#[cfg(vellum_instrumented)]
pub(crate) use self::spared::is_spared;
#[cfg(vellum_instrumented)]
pub use self::spared::{Sparer, spare_by};

#[cfg(vellum_instrumented)]
mod spared {
    use core::sync::atomic::{AtomicPtr, Ordering};

    /// Asked before bytes of a frame are written, but as words of it, with the address of its first
    /// byte and how many there are. If it says so they are not written: whoever reads them
    /// gets what the sparer has put there.
    pub type Sparer = fn(usize, usize) -> bool;

    static SPARER: AtomicPtr<()> = AtomicPtr::new(core::ptr::null_mut());

    /// Has `sparer` asked from now on, instead of whoever was asked before.
    pub fn spare_by(sparer: Sparer) {
        SPARER.store(sparer as *mut (), Ordering::Release);
    }

    #[inline]
    pub(crate) fn is_spared(start: *const u8, bytes: usize) -> bool {
        let pointer = SPARER.load(Ordering::Acquire);
        if pointer.is_null() {
            return false;
        }
        // SAFETY: the only non-null values stored are sparers.
        let sparer: Sparer = unsafe { core::mem::transmute(pointer) };
        sparer(start.addr(), bytes)
    }
}

#[cfg(vellum_instrumented)]
pub(crate) use self::names::name;
#[cfg(vellum_instrumented)]
pub use self::names::{Named, Namer, name_to};

#[cfg(vellum_instrumented)]
mod names {
    use core::sync::atomic::{AtomicPtr, Ordering};

    use super::Fields;

    /// Values of one type in a row.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct Named {
        /// What each of them is.
        pub what: &'static str,
        /// Address of the first.
        pub address: usize,
        /// Bytes of all of them.
        pub bytes: usize,
        /// Bytes of each.
        pub each: usize,
        /// Its fields, as far as they have names.
        pub fields: Fields,
    }

    impl Named {
        /// What is at `address`: the number of the value, and the field if it has a name,
        /// or else the offset in the value. `None` if the address is elsewhere.
        pub fn at(&self, address: usize) -> Option<(usize, &'static str, usize)> {
            let offset = address.checked_sub(self.address)?;
            if offset >= self.bytes || self.each == 0 {
                return None;
            }
            let within = offset % self.each;
            let mut before = self.fields.iter().rev();
            let field = before.find(|(_, start)| *start <= within);
            let field = field.map_or("", |(name, _)| *name);
            Some((offset / self.each, field, within))
        }
    }

    /// Called with what lies where, when it has come to its place.
    pub type Namer = fn(Named);

    static NAMER: AtomicPtr<()> = AtomicPtr::new(core::ptr::null_mut());

    /// Has `namer` told what lies where in managers that are made from now on, instead of
    /// whoever was told before.
    pub fn name_to(namer: Namer) {
        NAMER.store(namer as *mut (), Ordering::Release);
    }

    pub(crate) fn name<T>(what: &'static str, fields: Fields, first: *const T, count: usize) {
        let pointer = NAMER.load(Ordering::Acquire);
        if pointer.is_null() {
            return;
        }
        // SAFETY: the only non-null values stored are namers.
        let namer: Namer = unsafe { core::mem::transmute(pointer) };
        namer(Named {
            what,
            address: first.addr(),
            bytes: size_of::<T>() * count,
            each: size_of::<T>(),
            fields,
        });
    }
}

#[cfg(vellum_instrumented)]
pub(crate) use self::listeners::report;
#[cfg(vellum_instrumented)]
pub use self::listeners::{Access, Listener, MOST, TooMany, listen};

#[cfg(vellum_instrumented)]
mod listeners {
    use core::fmt;
    use core::sync::atomic::{AtomicPtr, Ordering};

    use super::Kind;

    /// One access.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct Access {
        /// What it does.
        pub kind: Kind,
        /// Address of the first byte; 0 for a fence.
        pub address: usize,
        /// Number of bytes; 0 for a fence.
        pub bytes: usize,
    }

    /// Called before each access. What it does with atomics and frames of an
    /// instrumented core is reported, too.
    pub type Listener = fn(Access);

    /// Listeners that there is room for.
    pub const MOST: usize = 8;

    /// [`MOST`] listeners listen already.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct TooMany;

    impl fmt::Display for TooMany {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "{MOST} listeners listen to accesses already")
        }
    }

    impl core::error::Error for TooMany {}

    /// Filled from the front, and never emptied: nobody knows whether a listener is
    /// being called.
    static LISTENERS: [AtomicPtr<()>; MOST] =
        [const { AtomicPtr::new(core::ptr::null_mut()) }; MOST];

    /// Has `listener` called before each access in this process, from now on and for
    /// good.
    ///
    /// # Errors
    /// [`TooMany`] if there is no room for another.
    pub fn listen(listener: Listener) -> Result<(), TooMany> {
        let pointer = listener as *mut ();
        let takes = |place: &AtomicPtr<()>| {
            let free = core::ptr::null_mut();
            place
                .compare_exchange(free, pointer, Ordering::SeqCst, Ordering::Relaxed)
                .is_ok()
        };
        if LISTENERS.iter().any(takes) {
            Ok(())
        } else {
            Err(TooMany)
        }
    }

    /// Reports an access of `bytes` bytes from `start` on, before it happens.
    #[inline]
    pub(crate) fn report(kind: Kind, start: *const u8, bytes: usize) {
        let is_fence = matches!(kind, Kind::Fence | Kind::FullFence);
        // Nothing is guarded by a lock around nothing.
        if bytes == 0 && !is_fence {
            return;
        }
        let access = Access {
            kind,
            address: start.addr(),
            bytes,
        };
        for place in &LISTENERS {
            let pointer = place.load(Ordering::Relaxed);
            if pointer.is_null() {
                return;
            }
            // SAFETY: the only non-null values stored are listeners.
            let listener: Listener = unsafe { core::mem::transmute(pointer) };
            listener(access);
        }
    }
}
