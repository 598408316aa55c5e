//! Kernel builds on the host as the comparison of pv locks had them: `make -s -j N`, with
//! everything that is built on a tmpfs.
//!
//! The tree itself is only read. What is built lies on a tmpfs that is mounted for the
//! purpose and goes with the thread that mounted it, or, where the user may mount nothing,
//! in a directory of `/dev/shm`. One build before the first is not timed: it brings compiler
//! and sources into memory.

use std::path::{Path, PathBuf};

use super::interleave::Interleaved;
use super::scratch::Scratch;
use super::tmpfs::{file_system, mount_tmpfs, with_own_mounts};
use super::tree::{Build, Configuration, Tree};
use super::{HostError, memory_mebibytes};
use vellum_terminal::progress::{Interrupt, Progress, Style};

/// What is mounted without being asked for.
const SHARED_MEMORY: &str = "/dev/shm";

/// What to build and how often.
#[derive(Clone, Debug)]
pub struct Options {
    /// Unpacked kernel tree, not configured.
    pub tree: PathBuf,
    /// How it is configured.
    pub configuration: Configuration,
    /// Target of `make`; none for what it builds by itself.
    pub target: Option<String>,
    /// Jobs at once.
    pub jobs: u64,
    /// Builds of each arm.
    pub passes: usize,
    /// Decides which arm is built first.
    pub seed: u64,
    /// How to show progress.
    pub style: Style,
}

/// What was measured.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// What the objects were on.
    pub place: String,
    /// The builds.
    pub builds: Interleaved<Build>,
}

/// Builds the tree as `options` says. An interruption ends the running build and keeps
/// complete passes.
///
/// # Errors
/// The tree is not one that can be built, a tool is missing, there is no tmpfs, a build
/// fails, or the user interrupted before the first pass was complete.
pub fn run(options: &Options, interrupt: &Interrupt) -> Result<Outcome, HostError> {
    let target = options.target.as_deref();
    let measure = |objects: &Path, place: String| {
        let tree = Tree::apart(&options.tree, objects, target)?;
        Ok(Outcome {
            place,
            builds: all(&tree, options, interrupt)?,
        })
    };
    let own = with_own_mounts(|directory| {
        // As by itself, half of the memory.
        let half = memory_mebibytes().unwrap_or(8 << 10) << 19;
        let place = mount_tmpfs(directory, half)?;
        measure(directory, place)
    });
    match own {
        Err(HostError::Unsupported(why)) => {
            let shared = Path::new(SHARED_MEMORY);
            if file_system(shared) != "tmpfs" {
                return Err(HostError::Unsupported(why));
            }
            let doing = HostError::io(format!("making a directory in {SHARED_MEMORY}"));
            let scratch = Scratch::new(shared, "buildkernel").map_err(doing)?;
            let place = format!("the tmpfs {SHARED_MEMORY}, as this user may mount nothing");
            measure(scratch.path(), place)
        }
        result => result,
    }
}

fn all(
    tree: &Tree<'_>,
    options: &Options,
    interrupt: &Interrupt,
) -> Result<Interleaved<Build>, HostError> {
    let steps = 1 + 2 * options.passes;
    let mut progress = Progress::new(options.style, "warming up", steps as u64, "builds");
    tree.configure(&options.configuration, interrupt)?;
    let jobs = format!("-j{}", options.jobs);
    let mut build = || {
        tree.clean(interrupt)?;
        let build = tree.build_with(&["-s", &jobs], interrupt)?;
        progress.advance(1);
        Ok(build)
    };
    build()?;
    Interleaved::collect(options.passes, options.seed, |_| build())
}
