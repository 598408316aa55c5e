//! Processes as `/proc` shows them.

use std::collections::BTreeMap;
use std::fs;
use std::io;

/// The task is one of the kernel's own (`PF_KTHREAD`).
const OF_KERNEL: u64 = 0x20_0000;

/// A process with its descendants. One that was seen stays in it when its parent ends; one whose
/// parent ended before it was seen does not come into it.
pub struct Tree {
    /// When each began, by process id: ids are used again.
    known: BTreeMap<u32, u64>,
}

/// A line of `/proc/PID/stat`, as far as it matters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Process {
    pub pid: u32,
    pub parent: u32,
    /// When it began, in ticks since the system did.
    pub began: u64,
    /// It has ended, and its parent has not asked how.
    pub is_zombie: bool,
    /// It is a thread of the kernel.
    pub is_of_kernel: bool,
    /// Where its heap begins; 0 if that is not shown.
    pub heap: u64,
}

impl Tree {
    /// The processes `roots` and what descends from them.
    pub fn of(roots: &[u32]) -> Tree {
        let began = |pid| read(pid).map_or(0, |process| process.began);
        Tree {
            known: roots.iter().map(|&pid| (pid, began(pid))).collect(),
        }
    }

    /// Those that there are now.
    pub fn processes(&mut self) -> Vec<u32> {
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        self.follow(&pids.filter_map(read).collect::<Vec<_>>());
        self.known.keys().copied().collect()
    }

    fn follow(&mut self, all: &[Process]) {
        let known = std::mem::take(&mut self.known);
        let same = all.iter().filter(|p| known.get(&p.pid) == Some(&p.began));
        self.known = same.map(|process| (process.pid, process.began)).collect();
        loop {
            let before = self.known.len();
            for process in all {
                if self.known.contains_key(&process.parent) {
                    self.known.entry(process.pid).or_insert(process.began);
                }
            }
            if self.known.len() == before {
                return;
            }
        }
    }
}

/// What `/proc` says of a process; `None` if there is none of this id.
pub fn read(pid: u32) -> Option<Process> {
    parse(pid, &fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// The threads of a process, its first one before the others.
pub fn threads(pid: u32) -> io::Result<Vec<u32>> {
    let entries = fs::read_dir(format!("/proc/{pid}/task"))?.flatten();
    let tids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let mut tids: Vec<u32> = tids.collect();
    tids.sort_unstable_by_key(|&tid| (tid != pid, tid));
    Ok(tids)
}

/// The name, in parentheses, may hold anything.
fn parse(pid: u32, stat: &str) -> Option<Process> {
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_ascii_whitespace().collect();
    let number = |at: usize| fields.get(at)?.parse::<u64>().ok();
    Some(Process {
        pid,
        parent: fields.get(1)?.parse().ok()?,
        began: number(19)?,
        is_zombie: matches!(*fields.first()?, "Z" | "X"),
        is_of_kernel: number(6)? & OF_KERNEL != 0,
        heap: number(44).unwrap_or(0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(pid: u32, parent: u32, began: u64) -> Process {
        Process {
            pid,
            parent,
            began,
            is_zombie: false,
            is_of_kernel: false,
            heap: 0,
        }
    }

    #[test]
    fn orphans_stay_and_ids_that_are_used_again_do_not() {
        let mut tree = Tree {
            known: BTreeMap::from([(10, 5)]),
        };
        let names = |tree: &Tree| tree.known.keys().copied().collect::<Vec<_>>();
        // Children may have lower ids than their parents.
        let all = [
            process(3, 12, 9),
            process(10, 1, 5),
            process(12, 10, 8),
            process(99, 1, 1),
        ];
        tree.follow(&all);
        assert_eq!(names(&tree), [3, 10, 12]);
        // 12 ends; init takes 3; another program gets the id 12.
        tree.follow(&[process(3, 1, 9), process(10, 1, 5), process(12, 1, 70)]);
        assert_eq!(names(&tree), [3, 10]);
    }

    #[test]
    fn this_process_is_found_with_its_parent_whatever_its_name_is() {
        let own = read(std::process::id()).expect("there is /proc");
        assert_eq!(own.parent, std::os::unix::process::parent_id());
        let fields: Vec<String> = (4..=52).map(|number| number.to_string()).collect();
        let stat = format!("7 (a) R (b) Z {}\n", fields.join(" "));
        let expected = Process {
            is_zombie: true,
            heap: 47,
            ..process(7, 4, 22)
        };
        assert_eq!(parse(7, &stat), Some(expected));
        assert_eq!(threads(own.pid).unwrap()[0], own.pid);
    }
}
