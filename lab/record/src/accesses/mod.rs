//! Sampling of accessed marks: which pages the command and its descendants used since the
//! sample before.
//!
//! A fault shows the first use of a page and not the later ones. The processor sets a mark in the
//! entry at every use, which the kernel shows in two ways ([`Marks`]). A thread of its own takes
//! them from all processes of the command each interval.

mod marks;

use std::io;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::clock::monotonic_ns;
use crate::processes::Tree;
pub use marks::Marks;

/// Pages of a process that were used.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Used {
    /// Nanoseconds of the monotonic clock, as the records have them.
    pub time_ns: u64,
    /// The process.
    pub pid: u32,
    /// First page and number of pages, ascending.
    pub runs: Vec<(u64, u64)>,
}

/// A thread that samples.
pub struct Sampling {
    stop: Sender<()>,
    thread: JoinHandle<Vec<Used>>,
}

impl Sampling {
    /// Samples the processes of the tree, each `interval`.
    ///
    /// # Errors
    /// There is no room for another thread.
    pub fn start(mut tree: Tree, interval: Duration, marks: Marks) -> io::Result<Sampling> {
        let (stop, stopped) = mpsc::channel();
        let builder = std::thread::Builder::new().name("accesses".into());
        let thread = builder.spawn(move || {
            let mut used = Vec::new();
            while let Err(RecvTimeoutError::Timeout) = stopped.recv_timeout(interval) {
                let processes = tree.processes();
                marks.take(&processes, &mut |pid, runs| {
                    used.push(Used {
                        time_ns: monotonic_ns(),
                        pid,
                        runs,
                    });
                });
            }
            used
        })?;
        Ok(Sampling { stop, thread })
    }

    /// What was sampled, in order of time.
    pub fn finish(self) -> Vec<Used> {
        // A thread that has ended needs no signal.
        let _ = self.stop.send(());
        match self.thread.join() {
            Ok(used) => used,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
}
