//! Host threads for the machine's CPUs.

use vellum::platform::CpuId;

use crate::machine::Machine;

impl Machine {
    /// Runs `work` once on every CPU at the same time, each on a host thread
    /// of its own that is bound to a host CPU where the host allows it.
    /// Returns the results in the order of CPUs.
    ///
    /// # Panics
    /// If one of the threads panicked, or the machine's tasks are not host
    /// threads but those of another scheduler.
    pub fn spawn_cpus<R: Send>(&self, work: impl Fn(CpuId) -> R + Sync) -> Vec<R> {
        assert!(
            self.scheduler.is_none(),
            "the tasks of this machine are run by a scheduler; start them through it"
        );
        let host = HostCpus::allowed();
        let work = &work;
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..self.cpus.len())
                .map(|cpu| {
                    scope.spawn(move || {
                        host.bind_nth(cpu);
                        let cpu = CpuId(cpu as u16);
                        self.run_on(cpu, || work(cpu))
                    })
                })
                .collect();
            threads
                .into_iter()
                .map(|thread| match thread.join() {
                    Ok(result) => result,
                    Err(panic) => std::panic::resume_unwind(panic),
                })
                .collect()
        })
    }
}

/// The host CPUs that this process may use.
#[derive(Clone, Copy)]
struct HostCpus(libc::cpu_set_t);

impl HostCpus {
    fn allowed() -> HostCpus {
        // SAFETY: an all-zero set is a valid, empty set.
        let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
        // SAFETY: `set` is a valid set of the size given. On failure it stays
        // empty, and threads are then not bound.
        unsafe { libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &mut set) };
        HostCpus(set)
    }

    /// Binds the calling thread to one of the CPUs, counted round and round.
    /// Where the host does not allow it, the thread stays unbound.
    fn bind_nth(&self, nth: usize) {
        let is_allowed = |&cpu: &usize| {
            // SAFETY: `cpu` is below CPU_SETSIZE.
            unsafe { libc::CPU_ISSET(cpu, &self.0) }
        };
        let allowed = (0..libc::CPU_SETSIZE as usize).filter(is_allowed);
        let count = allowed.clone().count();
        let Some(cpu) = allowed.into_iter().nth(nth.checked_rem(count).unwrap_or(0)) else {
            return;
        };
        // SAFETY: `one` is a valid set, and `cpu` is below CPU_SETSIZE.
        unsafe {
            let mut one: libc::cpu_set_t = std::mem::zeroed();
            libc::CPU_SET(cpu, &mut one);
            libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &one);
        }
    }
}
