//! A thread under sampling: its timer, what it is doing, and what was seen.

use std::cell::{RefCell, UnsafeCell};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use super::Counts;
use super::ring::{DEPTH, Ring};
use super::signal::{Registers, Timer};
use super::unwind::{Cache, Modules};

/// A signal that comes so long after its moment, in nanoseconds, was held back
/// because the thread was not running then: no CPU time was sampled.
const LATE_NS: u64 = 100_000;

/// State of one thread of one profiler. It is never freed: a signal that was
/// on its way when the timer ended still finds it.
pub(super) struct Sampled {
    /// Arm that the thread is in, counted from 1; 0 if it is in none.
    tag: AtomicU32,
    /// Stack address that everything the work does lies below.
    base: AtomicUsize,
    /// Whether the timer runs.
    armed: AtomicBool,
    timer: Timer,
    mean_ns: f64,
    /// When the timer is to fire, on its clock.
    moment_ns: AtomicU64,
    random: AtomicU64,
    modules: Arc<Modules>,
    cache: UnsafeCell<Cache>,
    ring: Ring,
}

// SAFETY: everything but `cache` is shared through atomics or immutable. `cache`
// is touched by `sample` alone, which only the signal handler calls, on the one
// thread that the timer is bound to, and never twice at once because the signal
// is blocked during its handler.
unsafe impl Sync for Sampled {}

impl std::fmt::Debug for Sampled {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sampled").finish_non_exhaustive()
    }
}

impl Sampled {
    /// State and timer of the calling thread.
    pub(super) fn new(rate_hz: u32, modules: &Arc<Modules>) -> io::Result<&'static Self> {
        let sampled: &'static Self = Box::leak(Box::new(Self {
            tag: AtomicU32::new(0),
            base: AtomicUsize::new(0),
            armed: AtomicBool::new(false),
            timer: Timer::unset(),
            mean_ns: 1e9 / f64::from(rate_hz),
            moment_ns: AtomicU64::new(0),
            random: AtomicU64::new(0),
            modules: Arc::clone(modules),
            cache: UnsafeCell::default(),
            ring: Ring::new(),
        }));
        // The address differs from thread to thread, and is never 0.
        let seed = (&raw const *sampled) as u64;
        sampled.random.store(seed, Ordering::Relaxed);
        sampled.timer.create(sampled)?;
        Ok(sampled)
    }

    /// Does `work`, which is sampled as part of arm `tag`. For the thread that
    /// this state belongs to.
    #[inline(never)]
    pub(super) fn inside(&self, tag: u32, work: impl FnOnce()) {
        let marker = std::hint::black_box(0u64);
        // The handler runs on this thread, so program order is what it sees. The
        // base comes first: a sample is taken as soon as there is a tag.
        let base = (&raw const marker).addr();
        self.base.store(base, Ordering::SeqCst);
        self.tag.store(tag, Ordering::SeqCst);
        if !self.armed.swap(true, Ordering::SeqCst) {
            self.arm();
        }
        let _outside = Outside(self);
        work();
        // Keeps the marker in its place, and this frame on the stack.
        std::hint::black_box(&marker);
    }

    /// Notes where the thread is. Called by the signal handler only.
    pub(super) fn sample(&self, registers: &Registers) {
        let tag = self.tag.load(Ordering::SeqCst);
        if tag == 0 {
            // Whoever next goes inside arms the timer again.
            self.armed.store(false, Ordering::SeqCst);
            return;
        }
        if Timer::now_ns().saturating_sub(self.moment_ns.load(Ordering::SeqCst)) > LATE_NS {
            self.arm();
            return;
        }
        let stack = registers.stack_pointer()..self.base.load(Ordering::SeqCst) as u64;
        let mut addresses = [0; DEPTH];
        // SAFETY: only here, see `Sync`.
        let cache = unsafe { &mut *self.cache.get() };
        // SAFETY: the thread is interrupted inside `inside`, so what lies between
        // its stack pointer and a local of that frame is its live stack.
        let depth = unsafe { self.modules.walk(registers, stack, cache, &mut addresses) };
        self.ring.push(tag, &addresses[..depth]);
        self.arm();
    }

    /// Sets the timer to a moment drawn from the exponential distribution.
    fn arm(&self) {
        // xorshift64*; only this thread and its signal handler get here, and what
        // they lose by overlapping is one step of the sequence.
        let mut bits = self.random.load(Ordering::Relaxed);
        bits ^= bits >> 12;
        bits ^= bits << 25;
        bits ^= bits >> 27;
        self.random.store(bits, Ordering::Relaxed);
        let uniform = (bits.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11) as f64 / (1u64 << 53) as f64;
        let delay_ns = -self.mean_ns * (1.0 - uniform).ln();
        let moment_ns = Timer::now_ns() + delay_ns as u64;
        self.moment_ns.store(moment_ns, Ordering::SeqCst);
        self.timer.set(moment_ns);
    }

    /// No further samples.
    pub(super) fn stop(&self) {
        self.timer.delete();
    }

    pub(super) fn is_half_full(&self) -> bool {
        self.ring.is_half_full()
    }

    pub(super) fn drain(&self, counts: &mut Counts) {
        self.ring.drain(counts);
    }

    pub(super) fn taken(&self) -> u64 {
        self.ring.taken()
    }

    pub(super) fn lost(&self) -> u64 {
        self.ring.lost()
    }
}

/// The thread leaves the work, by return or by panic.
struct Outside<'s>(&'s Sampled);

impl Drop for Outside<'_> {
    fn drop(&mut self) {
        self.0.tag.store(0, Ordering::SeqCst);
    }
}

/// The calling thread's state for profiler `number`, made if there is none.
pub(super) fn of_this_thread<E>(
    number: u64,
    make: impl FnOnce() -> Result<&'static Sampled, E>,
) -> Result<&'static Sampled, E> {
    thread_local! {
        static STATES: RefCell<Vec<(u64, &'static Sampled)>> = const { RefCell::new(Vec::new()) };
    }
    STATES.with_borrow_mut(|states| {
        let known = states.iter().find(|(of, _)| *of == number);
        match known {
            Some((_, sampled)) => Ok(*sampled),
            None => {
                let sampled = make()?;
                states.push((number, sampled));
                Ok(sampled)
            }
        }
    })
}
