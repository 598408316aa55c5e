//! A memory control group for the processes of a program, of version 1 or 2, below the group
//! that this program is in, or beside it.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use crate::host::scratch::Sweeper;
use vellum_record::groups::Location;
pub use vellum_record::groups::Version;

/// Times that removing a group is tried: processes that were killed go on ending for a while.
const TRIES: u32 = 100;

/// Between two of them.
const PAUSE: Duration = Duration::from_millis(20);

/// Removes a group when this program has ended without doing so. Its processes end with it.
const SWEEP: &str = "read -r line; i=0; while [ -d \"$0\" ] && [ $i -lt 100 ]; do rmdir -- \"$0\" \
     2>/dev/null || sleep 0.1; i=$((i+1)); done";

/// The file that counts processes that were killed for want of memory.
fn kills(version: Version) -> &'static str {
    match version {
        Version::One => "memory.oom_control",
        Version::Two => "memory.events",
    }
}

/// Directories in which a group may be made, the best first.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Places {
    /// Of which version they are.
    pub version: Version,
    /// The directories.
    pub directories: Vec<PathBuf>,
}

impl Places {
    /// Those of this process.
    ///
    /// # Errors
    /// There are none, and why.
    pub fn find() -> Result<Places, String> {
        let read = |path: &str| {
            fs::read_to_string(path).map_err(|error| format!("{path} cannot be read: {error}"))
        };
        let (groups, mounts) = (read("/proc/self/cgroup")?, read("/proc/self/mountinfo")?);
        let places = Places::of(&groups, &mounts)?;
        match places.version {
            Version::One => Ok(places),
            // A group whose children have no memory controller is left as it is: who runs the
            // host decides that.
            Version::Two => places.that(|directory| {
                let path = directory.join("cgroup.subtree_control");
                let has = fs::read_to_string(path).unwrap_or_default();
                has.split_whitespace().any(|name| name == "memory")
            }),
        }
    }

    fn that(mut self, gives_memory: impl Fn(&Path) -> bool) -> Result<Places, String> {
        self.directories.retain(|directory| gives_memory(directory));
        match self.directories.is_empty() {
            false => Ok(self),
            true => Err(
                "no control group above this program gives its children the memory controller; \
                 start it by `systemd-run --scope -p Delegate=yes`, or as root"
                    .to_owned(),
            ),
        }
    }

    /// The same from the text of `/proc/self/cgroup` and of `/proc/self/mountinfo`.
    fn of(groups: &str, mounts: &str) -> Result<Places, String> {
        let location = Location::of(groups, mounts)?;
        let version = location.version;
        let directories = location.directories();
        let directories = match version {
            // Its own is enough: whoever may not make a group there may not make one above.
            Version::One => directories.take(1).collect(),
            Version::Two => directories.collect(),
        };
        Ok(Places {
            version,
            directories,
        })
    }

    /// Whether a group made here may have no pages in swap, as a group above it says.
    pub fn forbid_swap(&self) -> bool {
        let none = |path: &Path| {
            let most = fs::read_to_string(path.join("memory.swap.max"));
            most.is_ok_and(|most| most.trim() == "0")
        };
        let above = self.directories.iter().flat_map(|path| path.ancestors());
        above.into_iter().any(none)
    }
}

/// A group. It is removed when it is dropped, and also if the program ends before that.
#[derive(Debug)]
pub struct Group {
    path: PathBuf,
    version: Version,
    _sweeper: Sweeper,
}

impl Group {
    /// A group that may have `bytes` of memory.
    ///
    /// # Errors
    /// What the kernel refused in each place.
    pub fn new(places: &Places, bytes: u64) -> Result<Group, String> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("vellum-reclaim-{}-{number}", std::process::id());
        let mut refusals = Vec::new();
        for directory in &places.directories {
            let path = directory.join(&name);
            match Group::at(path, places.version, bytes) {
                Ok(group) => return Ok(group),
                Err(error) => refusals.push(format!("{}: {error}", directory.display())),
            }
        }
        Err(format!(
            "no memory control group can be made: {}",
            refusals.join("; ")
        ))
    }

    fn at(path: PathBuf, version: Version, bytes: u64) -> io::Result<Group> {
        fs::create_dir(&path)?;
        let limited = Sweeper::running(SWEEP, &path).and_then(|sweeper| {
            fs::write(path.join(version.limit()), bytes.to_string())?;
            Ok(sweeper)
        });
        match limited {
            Ok(sweeper) => Ok(Group {
                path,
                version,
                _sweeper: sweeper,
            }),
            Err(error) => {
                fs::remove_dir(&path)?;
                Err(error)
            }
        }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The file through which a process enters: it writes `0`.
    ///
    /// # Errors
    /// It cannot be opened.
    pub fn entrance(&self) -> io::Result<File> {
        OpenOptions::new()
            .write(true)
            .open(self.path.join("cgroup.procs"))
    }

    /// Whether the process is in it.
    pub fn holds(&self, pid: u32) -> bool {
        let text = fs::read_to_string(self.path.join("cgroup.procs")).unwrap_or_default();
        text.lines().any(|line| line.trim() == pid.to_string())
    }

    /// Processes that were killed because the group had no memory.
    pub fn kills(&self) -> u64 {
        let text = fs::read_to_string(self.path.join(kills(self.version))).unwrap_or_default();
        value(&text, "oom_kill").unwrap_or(0)
    }

    /// What the kernel counted, by our names; what it does not count is left out.
    pub fn counts(&self) -> Vec<(&'static str, u64)> {
        let text = fs::read_to_string(self.path.join("memory.stat")).unwrap_or_default();
        counts(&text)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for _ in 0..TRIES {
            if fs::remove_dir(&self.path).is_ok() {
                return;
            }
            thread::sleep(PAUSE);
        }
        eprintln!("vellum: {} cannot be removed", self.path.display());
    }
}

/// The number after `name` in lines of a name and a number.
fn value(text: &str, name: &str) -> Option<u64> {
    let of_line = |line: &str| {
        let (key, number) = line.split_once(' ')?;
        (key == name).then(|| number.trim().parse().ok())?
    };
    text.lines().find_map(of_line)
}

/// The counts of `memory.stat` that say something of reclaim.
fn counts(text: &str) -> Vec<(&'static str, u64)> {
    let rows = [
        ("faults", &["pgfault"][..]),
        ("faults that read a device", &["pgmajfault"]),
        ("reclaim: pages scanned", &["pgscan"]),
        ("reclaim: pages reclaimed", &["pgsteal"]),
        (
            "reclaim: refaults",
            &["workingset_refault_anon", "workingset_refault_file"],
        ),
        ("pages swapped in", &["pswpin"]),
        ("pages swapped out", &["pswpout"]),
        ("charges", &["pgpgin"]),
        ("uncharges", &["pgpgout"]),
    ];
    let row = |(name, keys): (&'static str, &[&str])| {
        let values: Option<Vec<u64>> = keys.iter().map(|key| value(text, key)).collect();
        values.map(|values| (name, values.iter().sum()))
    };
    rows.into_iter().filter_map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const V1: &str = "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n\
         41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n";

    #[test]
    fn the_memory_controller_is_found_in_both_versions() {
        let groups = "5:cpu,cpuacct:/a\n4:memory:/user/one\n0::/\n";
        let places = Places::of(groups, V1).expect("there is a place");
        assert_eq!(places.version, Version::One);
        let own = PathBuf::from("/sys/fs/cgroup/memory/user/one");
        assert_eq!(places.directories, [own]);

        let mounts = "30 23 0:26 / /sys/fs/cgroup rw shared:9 - cgroup2 cgroup2 rw,nsdelegate\n";
        let places = Places::of("0::/user.slice/me.scope\n", mounts).expect("there is a place");
        assert_eq!(places.version, Version::Two);
        let above = ["user.slice/me.scope", "user.slice", ""];
        let above = above.map(|path| Path::new("/sys/fs/cgroup").join(path));
        assert_eq!(places.directories, above);
    }

    #[test]
    fn a_mount_that_begins_at_the_container_s_group_is_the_group() {
        let mounts = "35 31 0:32 /docker/x /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n";
        let places = Places::of("4:memory:/docker/x/inner\n", mounts).expect("there is a place");
        let own = PathBuf::from("/sys/fs/cgroup/memory/inner");
        assert_eq!(places.directories, [own]);
    }

    #[test]
    fn a_host_without_the_controller_is_told_so() {
        let refused = |groups, mounts| Places::of(groups, mounts).expect_err("no place");
        assert!(refused("", V1).contains("no control groups"));
        assert!(refused("4:memory:/\n", "").contains("not mounted"));
        let places = Places::of("0::/\n", V1).expect("mounted");
        let refused = places.that(|_| false).expect_err("no controller");
        assert!(refused.contains("systemd-run"), "{refused}");
    }

    #[test]
    fn counts_are_those_that_the_kernel_has() {
        let text = "workingset_refault_anon 2\nworkingset_refault_file 40\npgfault 7\npgscan 9\n";
        let expected = [
            ("faults", 7),
            ("reclaim: pages scanned", 9),
            ("reclaim: refaults", 42),
        ];
        assert_eq!(counts(text), expected);
        assert_eq!(value("low 0\noom_kill 3\n", "oom_kill"), Some(3));
    }
}
