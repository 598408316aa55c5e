//! Planned allocation failures, so that tests reach every error path.

use alloc::boxed::Box;

use super::request::FailAt;
use super::site::Site;
use crate::sync::CachePadded;
use crate::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

const SITES: usize = Site::ALL.len();

/// At most one plan, and how often each site was reached under it.
pub(super) struct Injection {
    /// Read by every allocation and written only when a plan comes or goes.
    armed: AtomicBool,
    plan: Box<Plan>,
}

#[derive(Default)]
struct Plan {
    site: AtomicU32,
    after: AtomicU32,
    reached: [CachePadded<AtomicU64>; SITES],
}

impl Injection {
    pub(super) fn new() -> Injection {
        Injection {
            armed: AtomicBool::new(false),
            plan: Box::default(),
        }
    }

    /// Installs a plan and starts counting anew, or removes it; the counts of
    /// the last plan stay readable.
    pub(super) fn set(&self, plan: Option<FailAt>) {
        self.armed.store(false, Ordering::SeqCst);
        if let Some(plan) = plan {
            for count in &self.plan.reached {
                count.store(0, Ordering::Relaxed);
            }
            self.plan.site.store(plan.site as u32, Ordering::Relaxed);
            self.plan.after.store(plan.after, Ordering::Relaxed);
            self.armed.store(true, Ordering::SeqCst);
        }
    }

    /// Times the site was reached since a plan was last installed.
    pub(super) fn reached(&self, site: Site) -> u64 {
        self.plan.reached[site as usize].load(Ordering::Relaxed)
    }

    /// Counts an allocation and says whether it is to fail.
    #[inline]
    pub(super) fn fail_now(&self, site: Site) -> bool {
        self.armed.load(Ordering::Relaxed) && self.count(site)
    }

    #[cold]
    fn count(&self, site: Site) -> bool {
        let before = self.plan.reached[site as usize].fetch_add(1, Ordering::Relaxed);
        self.plan.site.load(Ordering::Relaxed) == site as u32
            && u64::from(self.plan.after.load(Ordering::Relaxed)) == before
    }
}
