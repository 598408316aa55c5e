//! Counts of users, by which things live.

use super::atomic::{AtomicU32, Ordering};

/// One user more of what has users still. Who finds none left may not bring it back:
/// it is being ended. The caller keeps the thing from becoming another meanwhile, by a
/// pin (invariant 7).
pub(crate) fn join(users: &AtomicU32) -> bool {
    let mut before = users.load(Ordering::Relaxed);
    while before > 0 {
        let (order, failed) = (Ordering::Relaxed, Ordering::Relaxed);
        match users.compare_exchange_weak(before, before + 1, order, failed) {
            Ok(_) => return true,
            Err(now) => before = now,
        }
    }
    false
}

#[cfg(all(test, not(vellum_loom)))]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_user_left_gets_none() {
        let users = AtomicU32::new(1);
        assert!(join(&users));
        assert_eq!(users.load(Ordering::Relaxed), 2);
        users.store(0, Ordering::Relaxed);
        assert!(!join(&users));
        assert_eq!(users.load(Ordering::Relaxed), 0);
    }
}
