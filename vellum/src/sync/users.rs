//! Counts of users, by which things live.

use super::Turn;
use super::atomic::{AtomicU32, Ordering};

/// One user more of what has users still. Who finds none left may not bring it back:
/// it is being ended. The pin of the turn keeps the thing from becoming another meanwhile
/// (invariant 7).
pub(crate) fn join(users: &AtomicU32, turn: Turn<'_>) -> bool {
    turn.change(users.load(Ordering::Relaxed), |before| {
        if before == 0 {
            return Ok(false);
        }
        let (order, failed) = (Ordering::Relaxed, Ordering::Relaxed);
        let joined = users.compare_exchange_weak(before, before + 1, order, failed);
        joined.map(|_| true)
    })
}

#[cfg(all(test, not(vellum_loom)))]
mod tests {
    use super::*;
    use crate::frame::PhysicalMemory;
    use crate::testing::{TestMachine, run_on};

    #[test]
    fn what_has_no_user_left_gets_none() {
        run_on(0);
        let memory = PhysicalMemory::new(TestMachine::simple(1, 1024)).unwrap();
        let pin = memory.pin();
        let users = AtomicU32::new(1);
        assert!(join(&users, Turn::at(&pin, 1)));
        assert_eq!(users.load(Ordering::Relaxed), 2);
        users.store(0, Ordering::Relaxed);
        assert!(!join(&users, Turn::at(&pin, 1)));
        assert_eq!(users.load(Ordering::Relaxed), 0);
    }
}
