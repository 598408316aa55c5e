//! Kernel builds on the host as the comparison of pv locks had them: `make -s -j N`, with
//! everything that is built on a tmpfs.
//!
//! The tree itself is only read. What is built lies on a tmpfs that is mounted for the
//! purpose and goes with the thread that mounted it, or, where the user may mount nothing,
//! in a directory of `/dev/shm`. One build before the first is not timed: it brings compiler
//! and sources into memory.

use std::path::Path;

use super::tmpfs::{file_system, mount_tmpfs, with_own_mounts};
use super::tree::{Build, Configuration, Tree};
use super::{Host, RUSAGE, WALL, row_label};
use crate::bench::Run;
use crate::bench::buildkernel::jobs;
use crate::host::scratch::Scratch;
use crate::host::{HostError, cpus, memory_mebibytes};
use crate::report::buildkernel::{Builds, block};

/// What is mounted without being asked for.
const SHARED_MEMORY: &str = "/dev/shm";

/// Builds the tree as it is asked for. An interruption ends the running build and keeps
/// complete passes.
///
/// # Errors
/// The tree is not one that can be built, a tool is missing, there is no tmpfs, a build
/// fails, or the user interrupted before the first pass was complete.
pub fn measure(host: &mut Host<'_>) -> Result<(), HostError> {
    let path = host.tree("a tree")?;
    let target = host.request.target.as_deref();
    let named = host.request.configuration.as_deref().unwrap_or("defconfig");
    let configuration = Configuration::named(named)?;
    let mut build = |objects: &Path, place: String| {
        let tree = Tree::apart(path, objects, target)?;
        all(host, &tree, (named, &configuration), &place)
    };
    let own = with_own_mounts(|directory| {
        // As by itself, half of the memory.
        let half = memory_mebibytes().unwrap_or(8 << 10) << 19;
        let place = mount_tmpfs(directory, half)?;
        build(directory, place)
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
            build(scratch.path(), place)
        }
        result => result,
    }
}

/// The builds, after one that is not timed.
fn all(
    host: &mut Host<'_>,
    tree: &Tree<'_>,
    (named, configuration): (&str, &Configuration),
    place: &str,
) -> Result<(), HostError> {
    let (request, interrupt) = (host.request, host.interrupt);
    let jobs = jobs(request.sizes.get("jobs"), cpus());
    let mut progress = host.progress("warming up", 1 + 2 * request.passes, "builds");
    tree.configure(configuration, interrupt)?;
    let at_once = format!("-j{jobs}");
    let mut build = || {
        tree.clean(interrupt)?;
        let build = tree.build_with(&["-s", &at_once], interrupt)?;
        progress.advance(1);
        Ok(build)
    };
    build()?;
    let builds = host.collect(build)?;
    let target = request.target.iter().map(|target| format!(" {target}"));
    let title = format!("make -s -j {jobs}{}", target.collect::<String>());
    let arms = host.findings.arms.iter().zip(&builds.arms);
    let arms = arms.map(|(arm, builds)| Builds {
        name: row_label(arm),
        runs: builds
            .iter()
            .map(|build| [build.elapsed_s, build.usage.user_s, build.usage.system_s])
            .collect(),
    });
    let block = block(&title, &arms.collect::<Vec<_>>());
    host.findings.blocks.push(block);
    let of = |name, clock, seconds: fn(&Build) -> f64| {
        host.figure((name, "build", 1.0), clock, &builds, seconds)
    };
    let run = Run {
        title,
        facts: vec![format!(
            "configured by {named}; objects on {place}; each build follows `make clean`; {} CPUs",
            cpus()
        )],
        figures: vec![
            of("real", WALL, |build| build.elapsed_s),
            of("user", RUSAGE, |build| build.usage.user_s),
            of("sys", RUSAGE, |build| build.usage.system_s),
        ],
        ..Run::default()
    };
    host.keep(&builds, run)
}
