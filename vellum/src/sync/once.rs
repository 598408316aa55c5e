//! A value that comes once and stays.

use alloc::boxed::Box;
use core::cell::UnsafeCell;

use super::atomic::{AtomicU32, Ordering};

const EMPTY: u32 = 0;
const COMING: u32 = 1;
const THERE: u32 = 2;

/// A place for a value that is put there at most once, and read without a lock.
pub(crate) struct OnceBox<T> {
    state: AtomicU32,
    value: UnsafeCell<Option<Box<T>>>,
}

// SAFETY: whoever moves the state from empty to coming is alone with the value until it is there;
// from then on it is only shared. It may be dropped on another thread than it came from.
unsafe impl<T: Send + Sync> Sync for OnceBox<T> {}

impl<T> Default for OnceBox<T> {
    fn default() -> Self {
        OnceBox {
            state: AtomicU32::new(EMPTY),
            value: UnsafeCell::new(None),
        }
    }
}

impl<T> OnceBox<T> {
    /// The value, if it is there.
    #[inline]
    pub(crate) fn get(&self) -> Option<&T> {
        if self.state.load(Ordering::Acquire) != THERE {
            return None;
        }
        // SAFETY: it is there, and nobody changes it any more.
        unsafe { &*self.value.get() }.as_deref()
    }

    /// Puts the value there. False, and it is dropped, if another one is there or comes.
    pub(crate) fn set(&self, value: Box<T>) -> bool {
        let order = (Ordering::Acquire, Ordering::Relaxed);
        let is_ours = (self.state).compare_exchange(EMPTY, COMING, order.0, order.1);
        if is_ours.is_err() {
            return false;
        }
        // SAFETY: nobody else has moved the state from empty, and nobody reads before it is there.
        unsafe { *self.value.get() = Some(value) };
        self.state.store(THERE, Ordering::Release);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;
    use std::vec::Vec;

    #[test]
    fn one_of_many_values_stays_and_is_seen_whole() {
        for _ in 0..100 {
            let place = OnceBox::default();
            let place = &place;
            let set = thread::scope(|scope| {
                let setters: Vec<_> = (0..3_u64)
                    .map(|value| {
                        scope.spawn(move || {
                            let is_set = place.set(Box::new([value; 8]));
                            let seen = place.get().copied();
                            assert!(seen.is_none_or(|seen| seen == [seen[0]; 8]));
                            (is_set, value)
                        })
                    })
                    .collect();
                let ended = setters.into_iter().map(|setter| setter.join());
                ended.map(Result::unwrap).collect::<Vec<_>>()
            });
            let winners: Vec<u64> = set.iter().filter(|set| set.0).map(|set| set.1).collect();
            assert_eq!(winners.len(), 1);
            assert_eq!(place.get(), Some(&[winners[0]; 8]));
        }
    }
}
