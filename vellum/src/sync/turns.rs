//! Words that many CPUs change by compare-and-exchange, one after the other.
//!
//! A compare-and-exchange fails if another CPU has changed the word since it was read.
//! With hundreds of CPUs at one word nearly all of them fail, and each failure moves the
//! word's cache line as a change would. So whoever has failed waits in a queue, of which
//! only the first tries again.

use alloc::boxed::Box;

use super::queue::Tail;
use super::report::{Kind, name, report_lock};
use super::{CachePadded, Pin};

/// Times that somebody tries who is in no queue.
const TRIES: u32 = 2;

/// The queues, which words share by their numbers.
pub struct Turns(Box<[CachePadded<Tail>]>);

impl Turns {
    /// For as many CPUs; with none of them, nobody waits.
    pub(super) fn new(cpus: usize) -> Turns {
        let queues = if cpus > 1 {
            cpus.next_power_of_two()
        } else {
            0
        };
        let tails: Box<[CachePadded<Tail>]> = (0..queues).map(|_| CachePadded::default()).collect();
        name("queues at counts", &[], tails.as_ptr(), tails.len());
        Turns(tails)
    }

    /// Where those wait who change word `number`.
    fn queue(&self, number: u32) -> Option<&Tail> {
        let hash = number.wrapping_mul(0x9e37_79b1) >> 16;
        let place = hash as usize & self.0.len().wrapping_sub(1);
        Some(&self.0.get(place)?.0)
    }
}

/// A pinned CPU's access to a word that others may be changing too.
///
/// The number, a frame's or a handle's, chooses the queue. Two words of one number may
/// share it, and nothing but time is lost by that.
#[derive(Clone, Copy)]
pub struct Turn<'p> {
    pin: &'p Pin<'p>,
    number: u32,
}

impl<'p> Turn<'p> {
    /// For the word with this number.
    #[inline]
    pub fn at(pin: &'p Pin<'p>, number: u32) -> Turn<'p> {
        Turn { pin, number }
    }

    /// Calls `attempt` with what the word holds, which is `now` at first, until it returns
    /// its result. It returns what it has found instead if the word has changed.
    #[inline]
    pub fn change<W: Copy, T>(self, now: W, attempt: impl Fn(W) -> Result<T, W>) -> T {
        let mut now = now;
        for _ in 0..TRIES {
            match attempt(now) {
                Ok(result) => return result,
                Err(found) => now = found,
            }
        }
        self.change_in_turn(now, attempt)
    }

    #[cold]
    #[inline(never)]
    fn change_in_turn<W: Copy, T>(self, now: W, attempt: impl Fn(W) -> Result<T, W>) -> T {
        self.first(|| {
            let mut now = now;
            loop {
                match attempt(now) {
                    Ok(result) => break result,
                    Err(found) => now = found,
                }
            }
        })
    }

    /// Has the caller, who has found a spin lock taken, wait for it by `lock` when nobody is before
    /// it who waits for a lock of this number. Meanwhile nothing of the lock's line moves on its
    /// behalf. The caller holds no spin lock: those behind it in the queue may wait for others.
    #[cold]
    #[inline(never)]
    pub fn lock_in_turn<T>(self, lock: impl FnOnce() -> T) -> T {
        self.pin.assert_holds(0);
        self.first(lock)
    }

    /// Calls `work` as the first of its queue.
    fn first<T>(self, work: impl FnOnce() -> T) -> T {
        let Turn { pin, number } = self;
        let queues = pin.queues();
        let place = pin.turns().queue(number).and_then(|queue| {
            report_lock(Kind::LockAwaited, queue);
            let place = queues.enter_pinned(queue, pin)?;
            report_lock(Kind::LockTaken, queue);
            Some((queue, place))
        });
        let result = work();
        if let Some((queue, place)) = place {
            report_lock(Kind::LockReleased, queue);
            queues.leave_pinned(queue, place, pin);
        }
        result
    }
}

#[cfg(all(test, not(vellum_loom)))]
mod tests {
    use super::*;
    use crate::frame::PhysicalMemory;
    use crate::sync::atomic::{AtomicU32, Ordering};
    use crate::testing::{TestMachine, run_on};

    const CPUS: usize = 4;

    fn memory() -> PhysicalMemory<TestMachine> {
        run_on(0);
        PhysicalMemory::new(TestMachine::simple(CPUS, 1024)).unwrap()
    }

    #[test]
    fn who_fails_again_and_again_changes_the_word_in_turn_and_leaves_the_queue() {
        let memory = memory();
        let pin = memory.pin();
        // More often than there are nodes of queues.
        for _ in 0..10 {
            let word = AtomicU32::new(0);
            // As if another CPU had been there between, three times.
            let found = Turn::at(&pin, 7).change(0, |old| match old {
                0..3 => {
                    let queue = pin.turns().queue(7).expect("several CPUs");
                    let is_alone = pin.queues().is_free(queue);
                    assert_eq!(is_alone, old < TRIES, "who waits is in the queue");
                    Err(word.fetch_add(1, Ordering::Relaxed) + 1)
                }
                _ => Ok(old),
            });
            assert_eq!(found, 3);
            let queue = pin.turns().queue(7).unwrap();
            assert!(pin.queues().is_free(queue));
        }
    }

    #[test]
    fn no_change_is_lost() {
        const TIMES: u32 = 2_000;
        let (memory, word) = (memory(), AtomicU32::new(0));
        std::thread::scope(|scope| {
            for cpu in 0..CPUS as u16 {
                let (memory, word) = (&memory, &word);
                scope.spawn(move || {
                    run_on(cpu);
                    for _ in 0..TIMES {
                        let pin = memory.pin();
                        Turn::at(&pin, 1).change(word.load(Ordering::Relaxed), |old| {
                            let order = Ordering::Relaxed;
                            // Others come between more often.
                            std::thread::yield_now();
                            word.compare_exchange(old, old + 1, order, order)
                        });
                    }
                });
            }
        });
        assert_eq!(word.load(Ordering::Relaxed), TIMES * CPUS as u32);
    }
}
