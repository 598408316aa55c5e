//! Memory groups (memory cgroups) of processes, of version 1 or 2.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use vellum_trace::MemoryGroup;

/// Version 1 says so where there is no limit: the most whole pages that it can count.
const NO_LIMIT: u64 = i64::MAX as u64 / 4096 * 4096;

/// Names of a version's files.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Version {
    /// Hierarchies of their own for controllers.
    One,
    /// The unified hierarchy.
    Two,
}

impl Version {
    /// 1 or 2.
    pub fn number(self) -> u32 {
        match self {
            Version::One => 1,
            Version::Two => 2,
        }
    }

    /// The file that holds the limit in bytes.
    pub fn limit(self) -> &'static str {
        match self {
            Version::One => "memory.limit_in_bytes",
            Version::Two => "memory.max",
        }
    }

    /// The file that counts what is charged.
    fn used(self) -> &'static str {
        match self {
            Version::One => "memory.usage_in_bytes",
            Version::Two => "memory.current",
        }
    }
}

/// Where the memory group of a process lies.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Location {
    /// The version that has the memory controller.
    pub version: Version,
    /// Where its hierarchy is mounted.
    pub mount: PathBuf,
    /// The group, below that.
    pub below: PathBuf,
}

impl Location {
    /// From the text of `/proc/PID/cgroup` and of `/proc/self/mountinfo`.
    ///
    /// # Errors
    /// There is none.
    pub fn of(groups: &str, mounts: &str) -> Result<Location, String> {
        let mut found: Vec<_> = groups.lines().filter_map(of_controller).collect();
        // Where version 1 has the controller, the unified hierarchy has not.
        found.sort_by_key(|(version, _)| *version == Version::Two);
        let (version, group) = *found.first().ok_or("this kernel has no control groups")?;
        let is_it = |kind: &str, options: &str| match version {
            Version::One => kind == "cgroup" && options.split(',').any(|name| name == "memory"),
            Version::Two => kind == "cgroup2",
        };
        let of_mount = |line: &str| {
            let (before, after) = line.split_once(" - ")?;
            let mut after = after.split(' ');
            let (kind, options) = (after.next()?, after.nth(1)?);
            let mut before = before.split(' ').skip(3);
            let (root, at) = (before.next()?, before.next()?);
            is_it(kind, options).then(|| (root.to_owned(), PathBuf::from(at)))
        };
        let mount = mounts.lines().find_map(of_mount);
        let (root, mount) = mount.ok_or("the memory controller is not mounted")?;
        // In a container the mount may begin at the group of the container.
        let below = match root.as_str() {
            "/" => group,
            root => group.strip_prefix(root).unwrap_or(""),
        };
        Ok(Location {
            version,
            mount,
            below: PathBuf::from(below.trim_start_matches('/')),
        })
    }

    /// Its directory and those above it, from the inside out.
    pub fn directories(&self) -> impl Iterator<Item = PathBuf> + '_ {
        self.below.ancestors().map(|path| self.mount.join(path))
    }

    /// The group with the least limit that applies to it; `None` without any.
    fn limited(&self) -> Option<MemoryGroup> {
        let number = |path: &Path, name: &str| -> Option<u64> {
            let text = fs::read_to_string(path.join(name)).ok()?;
            text.trim().parse().ok()
        };
        let limits = self.directories();
        let limits = limits.filter_map(|path| number(&path, self.version.limit()));
        let own = self.mount.join(&self.below);
        Some(MemoryGroup {
            path: own.display().to_string(),
            limit: limits.min().filter(|limit| *limit < NO_LIMIT)?,
            used: number(&own, self.version.used()).unwrap_or(0),
        })
    }
}

/// The version and the path of a line of `/proc/PID/cgroup`, if it is about memory.
fn of_controller(line: &str) -> Option<(Version, &str)> {
    let mut fields = line.splitn(3, ':').skip(1);
    let controllers = fields.next()?;
    let path = fields.next()?;
    match controllers {
        "" => Some((Version::Two, path)),
        names if names.split(',').any(|name| name == "memory") => Some((Version::One, path)),
        _ => None,
    }
}

/// The groups of processes, as far as they have limits; each once.
pub fn limited(pids: impl IntoIterator<Item = u32>) -> Vec<MemoryGroup> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let texts = pids
        .into_iter()
        .filter_map(|pid| fs::read_to_string(format!("/proc/{pid}/cgroup")).ok());
    let texts: BTreeSet<String> = texts.collect();
    let locations = texts
        .iter()
        .filter_map(|text| Location::of(text, &mounts).ok());
    locations
        .filter_map(|location| location.limited())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use vellum_testing::Scratch;

    #[test]
    fn the_least_limit_on_the_way_up_counts() {
        let scratch = Scratch::new("record-groups");
        let inner = Path::new(scratch.directory()).join("outer/inner");
        fs::create_dir_all(&inner).unwrap();
        let outer = inner.parent().unwrap();
        let write = |path: &Path, name: &str, text: &str| fs::write(path.join(name), text).unwrap();
        let mounts = format!(
            "30 23 0:26 / {} rw shared:9 - cgroup2 cgroup2 rw,nsdelegate\n",
            scratch.directory()
        );
        let location = Location::of("0::/outer/inner\n", &mounts).unwrap();
        write(&inner, "memory.max", "max\n");
        assert_eq!(location.limited(), None);
        write(outer, "memory.max", "8192\n");
        write(&inner, "memory.current", "4096\n");
        let found = location.limited().unwrap();
        assert_eq!((found.limit, found.used), (8192, 4096));
        assert!(found.path.ends_with("outer/inner"), "{}", found.path);
        let mounts = mounts.replace("cgroup2 cgroup2 rw", "cgroup cgroup rw,memory");
        let location = Location::of("4:memory:/outer/inner\n0::/\n", &mounts).unwrap();
        write(&inner, "memory.limit_in_bytes", "9223372036854771712\n");
        assert_eq!(location.limited(), None);
        write(&inner, "memory.limit_in_bytes", "4096\n");
        assert_eq!(location.limited().map(|group| group.limit), Some(4096));
    }
}
