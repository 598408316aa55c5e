//! The test programs of the copy, and one test as a process.

use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::tree::Place;

/// The programs: package, its folder, and the target that the program is made of.
pub(crate) const PROGRAMS: [(&str, &str, &str); 4] = [
    ("vellum", "vellum", "vellum"),
    ("vellum-loom", "test/verify/loom", "vellum_loom"),
    ("vellum-machine", "test/machine", "core"),
    ("vellum-schedules", "test/verify/schedules", "core"),
];

/// One test program.
#[derive(Clone, Debug)]
pub struct Program {
    /// The package.
    pub name: String,
    /// Where it was built.
    pub path: PathBuf,
    /// Where cargo runs it.
    pub folder: PathBuf,
    /// Its tests.
    pub tests: Vec<String>,
}

/// Builds the test programs of the copy.
///
/// # Errors
/// What cargo said.
pub fn build(place: &Place, packages: &[String]) -> Result<Vec<Program>, String> {
    let is_wanted = |package: &str| packages.is_empty() || packages.iter().any(|p| p == package);
    let wanted: Vec<_> = PROGRAMS
        .iter()
        .filter(|(package, ..)| is_wanted(package))
        .collect();
    if wanted.is_empty() {
        return Err(format!("no tests are built of {}", packages.join(", ")));
    }
    let with_core = wanted.iter().any(|(.., target)| *target == "core");
    let mut arguments = vec!["test", "--no-run", "--lib"];
    if with_core {
        arguments.extend(["--test", "core"]);
    }
    arguments.extend(wanted.iter().flat_map(|(package, ..)| ["-p", package]));
    if wanted.iter().any(|(package, ..)| *package == "vellum") {
        // As the tests of the whole workspace have it.
        arguments.extend(["--features", "vellum/published"]);
    }
    eprintln!("building the test programs with {}", place.tree.display());
    let messages = cargo(place, &arguments)?;
    wanted
        .into_iter()
        .map(|program| find(place, program, &messages))
        .collect()
}

/// Checks that the core of the copy compiles.
///
/// # Errors
/// What cargo said.
pub fn check(place: &Place) -> Result<(), String> {
    cargo(
        place,
        &["check", "-p", "vellum", "--features", "vellum/published"],
    )
    .map(|_| ())
}

/// Runs cargo in the copy, and returns its messages.
fn cargo(place: &Place, arguments: &[&str]) -> Result<Vec<Value>, String> {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo
        .args(arguments)
        .args(["--quiet", "--message-format=json"])
        .current_dir(&place.tree)
        .env("CARGO_TARGET_DIR", &place.build)
        // Choices in the place of plain expressions have braces, dead arms and
        // the like.
        .env("RUSTFLAGS", "--cap-lints=allow")
        .stderr(Stdio::inherit());
    let output = cargo
        .output()
        .map_err(|error| format!("{cargo:?}: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let messages: Vec<Value> = text
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect();
    if output.status.success() {
        return Ok(messages);
    }
    for message in messages.iter().filter(|m| m["message"]["level"] == "error") {
        let rendered = message["message"]["rendered"].as_str();
        eprintln!("{}", rendered.unwrap_or_default());
    }
    Err(format!(
        "cargo {} failed in {}. Each `mutants::is(N)` there is mutant N of `--list`, counted \
         from 0",
        arguments[0],
        place.tree.display()
    ))
}

/// The program of a package and target, as cargo reported it.
fn find(
    place: &Place,
    &(package, folder, target): &(&str, &str, &str),
    messages: &[Value],
) -> Result<Program, String> {
    let folder = place.tree.join(folder);
    let manifest = folder.join("Cargo.toml");
    let made = messages.iter().find_map(|message| {
        let is_it = message["target"]["name"] == target
            && message["manifest_path"].as_str().map(Path::new) == Some(&manifest);
        is_it.then_some(message["executable"].as_str()?)
    });
    let path = made.ok_or_else(|| format!("{package} has no test program `{target}`"))?;
    let listed = Command::new(path)
        .args(["--list", "--format", "terse"])
        .output()
        .map_err(|error| format!("{path}: {error}"))?;
    let tests = String::from_utf8_lossy(&listed.stdout)
        .lines()
        .filter_map(|line| Some(line.strip_suffix(": test")?.to_owned()))
        // They count what is allocated, and a place that notes it was reached allocates.
        .filter(|test| !test.contains("global_allocator") && !test.contains("allocation_tests"))
        .collect();
    Ok(Program {
        name: package.to_owned(),
        path: PathBuf::from(path),
        folder,
        tests,
    })
}

/// How a test ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// It passed.
    Passed,
    /// It failed, or its process died.
    Failed,
    /// It took longer than it was allowed to.
    Hung,
}

/// What a test may take.
#[derive(Clone, Copy, Debug)]
pub struct Limit {
    /// Of processors' time.
    pub cpu: Duration,
    /// By the clock.
    pub wall: Duration,
}

/// Most memory that a test's process may write to, in bytes. A mutant may make a
/// loop that allocates without end, which is not to take the machine with it.
const MEMORY: u64 = 4 << 30;

/// How long all threads of a process may sleep without using a processor before
/// it is taken to wait for something that never comes. No test sleeps for long.
const ASLEEP: Duration = Duration::from_secs(4);

/// Tells a process that waits for good from one that the machine has no
/// processor for.
struct Watch {
    used: u64,
    since: Instant,
}

impl Watch {
    fn new() -> Watch {
        Watch {
            used: 0,
            since: Instant::now(),
        }
    }

    /// Whether the process has slept for [`ASLEEP`] until now.
    fn is_stuck(&mut self, pid: libc::pid_t) -> bool {
        if self.since.elapsed() < ASLEEP / 8 {
            return false;
        }
        let used = asleep_after(pid);
        if used.is_none_or(|used| used != self.used) {
            *self = Watch {
                used: used.unwrap_or(u64::MAX),
                since: Instant::now(),
            };
        }
        self.since.elapsed() >= ASLEEP
    }
}

/// The ticks of processors' time that a process has used, if all its threads
/// sleep at the moment.
fn asleep_after(pid: libc::pid_t) -> Option<u64> {
    let mut used = 0;
    for thread in std::fs::read_dir(format!("/proc/{pid}/task")).ok()? {
        let text = std::fs::read_to_string(thread.ok()?.path().join("stat")).ok()?;
        // Behind the name, which may hold anything: state, ten others, user, system.
        let mut fields = text.rsplit_once(')')?.1.split_whitespace();
        if fields.next()? != "S" {
            return None;
        }
        used += fields.nth(10)?.parse::<u64>().ok()? + fields.next()?.parse::<u64>().ok()?;
    }
    Some(used)
}

impl Program {
    /// Runs one test with an environment; returns how it ended and the
    /// processors' time it took.
    ///
    /// # Errors
    /// The process could not be started or waited for.
    pub fn run(
        &self,
        test: &str,
        limit: Limit,
        environment: (&str, &str),
    ) -> io::Result<(End, Duration)> {
        let mut command = Command::new(&self.path);
        command
            .args([test, "--exact", "--test-threads=1", "--quiet"])
            .current_dir(&self.folder)
            .env(environment.0, environment.1)
            .env_remove("VELLUM_SEED")
            .env("RUST_BACKTRACE", "0")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let seconds = limit.cpu.as_secs() + 1;
        // SAFETY: `setrlimit` may be called between fork and exec, and the limits
        // live on this closure's stack.
        unsafe {
            command.pre_exec(move || {
                for (what, most) in [
                    (libc::RLIMIT_CPU, seconds),
                    (libc::RLIMIT_CORE, 0),
                    (libc::RLIMIT_DATA, MEMORY),
                ] {
                    let limit = libc::rlimit {
                        rlim_cur: most,
                        rlim_max: most,
                    };
                    if libc::setrlimit(what, &raw const limit) != 0 {
                        return Err(io::Error::last_os_error());
                    }
                }
                Ok(())
            });
        }
        let started = Instant::now();
        let child = command.spawn()?;
        let pid = child.id() as libc::pid_t;
        let (mut is_late, mut watch) = (false, Watch::new());
        loop {
            let (mut status, mut usage) = (0, std::mem::MaybeUninit::<libc::rusage>::zeroed());
            // SAFETY: the pointers are to variables of this frame; the process is
            // our child, which nobody else waits for.
            let done =
                unsafe { libc::wait4(pid, &raw mut status, libc::WNOHANG, usage.as_mut_ptr()) };
            if done < 0 {
                return Err(io::Error::last_os_error());
            }
            if done == pid {
                // SAFETY: a structure of integers, for which zeroes will do.
                let usage = unsafe { usage.assume_init() };
                let time = time_of(usage.ru_utime) + time_of(usage.ru_stime);
                let is_over = time >= limit.cpu && libc::WIFSIGNALED(status);
                return Ok((
                    if is_late || is_over {
                        End::Hung
                    } else if libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0 {
                        End::Passed
                    } else {
                        End::Failed
                    },
                    time,
                ));
            }
            if !is_late && (started.elapsed() > limit.wall || watch.is_stuck(pid)) {
                is_late = true;
                // SAFETY: the child has not been waited for, so the number is its.
                unsafe { libc::kill(pid, libc::SIGKILL) };
            }
            std::thread::sleep(Duration::from_millis(
                if started.elapsed().as_millis() < 100 {
                    2
                } else {
                    20
                },
            ));
        }
    }
}

fn time_of(time: libc::timeval) -> Duration {
    Duration::new(time.tv_sec as u64, time.tv_usec as u32 * 1000)
}
