//! What this machine consists of, as `/sys` tells it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::mem::MaybeUninit;
use std::path::{Path, PathBuf};

use vellum_description::Topology;

/// Why a machine cannot be described.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// A file is not there or does not hold what it should.
    #[error("{}: {source}", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The system call that tells the CPUs of a thread failed.
    #[error("cannot ask which CPUs this thread may run on: {0}")]
    Affinity(io::Error),
    /// A level has parts of different sizes.
    #[error(
        "not all {wholes} have the same number of {parts} ({least} to {most}), and a description \
         can only say one number; restrict the CPUs (taskset) to a regular part of the machine"
    )]
    Irregular {
        /// What should be alike.
        wholes: &'static str,
        /// What they consist of.
        parts: &'static str,
        /// Fewest of them.
        least: usize,
        /// Most of them.
        most: usize,
    },
}

/// One CPU and where it is. Equal numbers mean the same part.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HostCpu {
    /// Its number.
    pub cpu: usize,
    /// The core: its first CPU.
    pub core: usize,
    /// The cores with which it shares its last cache: their first CPU.
    pub cluster: usize,
    /// The node of its memory.
    pub node: usize,
    /// The socket.
    pub socket: usize,
}

/// CPUs of this machine.
#[derive(Clone, Debug)]
pub struct Host {
    cpus: Vec<HostCpu>,
    last_cache_bytes: usize,
    own_cache_bytes: usize,
    first_cache_bytes: usize,
}

impl Host {
    /// The CPUs that the calling thread may run on, as `system` (`/sys/devices/system`)
    /// describes them.
    ///
    /// # Errors
    /// Any [`HostError`].
    pub fn of_this_thread(system: &Path) -> Result<Host, HostError> {
        Host::of_cpus(&allowed().map_err(HostError::Affinity)?, system)
    }

    /// These CPUs.
    ///
    /// # Errors
    /// [`HostError::Read`].
    pub fn of_cpus(cpus: &[usize], system: &Path) -> Result<Host, HostError> {
        let nodes = nodes(system)?;
        let mut last_cache_bytes = 0;
        let (mut own_cache_bytes, mut first_cache_bytes) = (0, 0);
        let cpus = cpus.iter().map(|&cpu| {
            let directory = system.join(format!("cpu/cpu{cpu}"));
            let first = |name: &str, otherwise: usize| match read(&directory.join(name))? {
                Some(text) => first_of(&text, &directory.join(name)),
                None => Ok(otherwise),
            };
            let socket = first("topology/physical_package_id", 0)?;
            let core = first("topology/thread_siblings_list", cpu)?;
            let cluster = match caches_of(&directory)? {
                Some(caches) => {
                    last_cache_bytes = last_cache_bytes.max(caches.bytes);
                    own_cache_bytes = own_cache_bytes.max(caches.before);
                    first_cache_bytes = first_cache_bytes.max(caches.first);
                    caches.cluster
                }
                None => core,
            };
            Ok(HostCpu {
                cpu,
                core,
                cluster,
                node: nodes.get(&cpu).copied().unwrap_or(0),
                socket,
            })
        });
        let cpus = cpus.collect::<Result<Vec<_>, HostError>>()?;
        Ok(Host {
            cpus,
            last_cache_bytes,
            own_cache_bytes,
            first_cache_bytes,
        })
    }

    /// All CPUs, lowest number first.
    pub fn cpus(&self) -> &[HostCpu] {
        &self.cpus
    }

    /// The CPU on which what needs one is measured.
    pub(crate) fn first(&self) -> HostCpu {
        self.cpus[0]
    }

    /// Bytes of a last cache; 0 if it is not known.
    pub(crate) fn last_cache_bytes(&self) -> usize {
        self.last_cache_bytes
    }

    /// Bytes of the largest cache before the last; 0 if it is not known.
    pub(crate) fn own_cache_bytes(&self) -> usize {
        self.own_cache_bytes
    }

    /// Bytes of the first cache; 0 if it is not known.
    pub(crate) fn first_cache_bytes(&self) -> usize {
        self.first_cache_bytes
    }

    /// Up to `most` pairs of CPUs of which `holds`, spread over all of them.
    pub(crate) fn pairs(
        &self,
        most: usize,
        holds: impl Fn(HostCpu, HostCpu) -> bool,
    ) -> Vec<(HostCpu, HostCpu)> {
        let mut pairs = Vec::new();
        for (place, &one) in self.cpus.iter().enumerate() {
            let others = self.cpus[place + 1..].iter();
            pairs.extend(
                others
                    .filter(|&&other| holds(one, other))
                    .map(|&other| (one, other)),
            );
        }
        let step = pairs.len().div_ceil(most.max(1)).max(1);
        pairs.into_iter().step_by(step).collect()
    }

    /// One CPU of each core of the first CPU's node.
    pub(crate) fn cores_of_a_node(&self) -> Vec<HostCpu> {
        let node = self.first().node;
        let mut cores = BTreeSet::new();
        let of_node = self.cpus.iter().filter(|cpu| cpu.node == node);
        of_node
            .copied()
            .filter(|cpu| cores.insert(cpu.core))
            .collect()
    }

    /// How they are joined.
    ///
    /// # Errors
    /// [`HostError::Irregular`].
    pub fn topology(&self) -> Result<Topology, HostError> {
        let threads = self.regular("cores", "threads", |cpu| cpu.core, |cpu| cpu.cpu)?;
        let cores = self.regular("last caches", "cores", |cpu| cpu.cluster, |cpu| cpu.core)?;
        let clusters = self.regular(
            "sockets",
            "last caches",
            |cpu| cpu.socket,
            |cpu| cpu.cluster,
        )?;
        let nodes = self.regular("sockets", "nodes", |cpu| cpu.socket, |cpu| cpu.node)?;
        let sockets: BTreeSet<usize> = self.cpus.iter().map(|cpu| cpu.socket).collect();
        // Where several nodes share a last cache, the simulator knows one node.
        let nodes = if clusters % nodes == 0 { nodes } else { 1 };
        Ok(Topology {
            threads_per_core: threads,
            cores_per_cluster: cores,
            clusters_per_socket: clusters,
            sockets_per_board: sockets.len(),
            boards: 1,
            nodes_per_socket: nodes,
            source: "measured: /sys/devices/system, the CPUs that this process may use".to_owned(),
        })
    }

    /// How many parts each whole has.
    fn regular(
        &self,
        wholes: &'static str,
        parts: &'static str,
        whole: impl Fn(&HostCpu) -> usize,
        part: impl Fn(&HostCpu) -> usize,
    ) -> Result<usize, HostError> {
        let mut sets: BTreeMap<usize, BTreeSet<usize>> = BTreeMap::new();
        for cpu in &self.cpus {
            sets.entry(whole(cpu)).or_default().insert(part(cpu));
        }
        let counts = || sets.values().map(BTreeSet::len);
        let (least, most) = (counts().min().unwrap_or(1), counts().max().unwrap_or(1));
        match least == most {
            true => Ok(most),
            false => Err(HostError::Irregular {
                wholes,
                parts,
                least,
                most,
            }),
        }
    }

    /// Name of the processor.
    pub(crate) fn model(&self) -> String {
        let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let name = info
            .lines()
            .filter_map(|line| line.split_once(':'))
            .find(|(key, _)| ["model name", "Model", "cpu model"].contains(&key.trim()));
        name.map_or("this machine".to_owned(), |(_, name)| {
            name.trim().to_owned()
        })
    }

    /// Name and release of the kernel.
    pub(crate) fn kernel(&self) -> String {
        let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        format!("Linux {}", release.trim())
    }
}

/// The CPUs that this thread may run on.
fn allowed() -> io::Result<Vec<usize>> {
    let mut set = MaybeUninit::<libc::cpu_set_t>::zeroed();
    // SAFETY: the kernel writes at most the size that it is told, into a set that
    // outlives the call.
    let result = unsafe { libc::sched_getaffinity(0, size_of_val(&set), set.as_mut_ptr()) };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a set of bits, zeroed before, is valid whatever the kernel wrote.
    let set = unsafe { set.assume_init() };
    let all = 0..libc::CPU_SETSIZE as usize;
    // SAFETY: the numbers are below the size of the set.
    Ok(all
        .filter(|&cpu| unsafe { libc::CPU_ISSET(cpu, &set) })
        .collect())
}

/// Restricts this thread to one CPU.
pub(crate) fn pin(cpu: usize) -> io::Result<()> {
    let mut set = MaybeUninit::<libc::cpu_set_t>::zeroed();
    // SAFETY: all bits zero is the empty set.
    let set = unsafe { set.assume_init_mut() };
    // SAFETY: the number came from a set of this size.
    unsafe { libc::CPU_SET(cpu, set) };
    // SAFETY: the set outlives the call.
    match unsafe { libc::sched_setaffinity(0, size_of_val(set), set) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The text of a file, if it is there.
fn read(path: &Path) -> Result<Option<String>, HostError> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(HostError::Read {
            path: path.to_owned(),
            source,
        }),
    }
}

/// All numbers of a list as in `0-3,8`.
fn numbers(text: &str, path: &Path) -> Result<Vec<usize>, HostError> {
    let wrong = || HostError::Read {
        path: path.to_owned(),
        source: io::Error::new(
            io::ErrorKind::InvalidData,
            format!("{:?} is not a list of numbers as in 0-3,8", text.trim()),
        ),
    };
    let mut all = Vec::new();
    for part in text.trim().split(',').filter(|part| !part.is_empty()) {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        let (from, to) = (from.parse::<usize>(), to.parse::<usize>());
        let (Ok(from), Ok(to)) = (from, to) else {
            return Err(wrong());
        };
        if to < from || to > 1 << 20 {
            return Err(wrong());
        }
        all.extend(from..=to);
    }
    Ok(all)
}

fn first_of(text: &str, path: &Path) -> Result<usize, HostError> {
    // A machine without sockets says -1.
    if text.trim() == "-1" {
        return Ok(0);
    }
    let all = numbers(text, path)?;
    all.into_iter().min().ok_or_else(|| HostError::Read {
        path: path.to_owned(),
        source: io::Error::new(io::ErrorKind::InvalidData, "an empty list"),
    })
}

/// Caches of a CPU.
#[derive(Clone, Copy)]
struct Caches {
    level: usize,
    /// The first CPU of those that share the last.
    cluster: usize,
    /// Bytes of the last.
    bytes: usize,
    /// Bytes of the one before.
    before: usize,
    /// Bytes of the first.
    first: usize,
}

/// The caches of the CPU in `directory`.
fn caches_of(directory: &Path) -> Result<Option<Caches>, HostError> {
    let mut last: Option<Caches> = None;
    for index in 0..16 {
        let cache = directory.join(format!("cache/index{index}"));
        let Some(level) = read(&cache.join("level"))? else {
            break;
        };
        let level = first_of(&level, &cache.join("level"))?;
        let list = cache.join("shared_cpu_list");
        if let Some(shared) = read(&list)?
            && last.is_none_or(|known| level >= known.level)
        {
            let bytes = read(&cache.join("size"))?.map_or(0, |size| bytes_of(&size));
            let before = match last {
                Some(known) if level > known.level => known.bytes,
                Some(known) => known.before,
                None => 0,
            };
            last = Some(Caches {
                level,
                cluster: first_of(&shared, &list)?,
                bytes,
                before,
                first: last.map_or(bytes, |known| known.first),
            });
        }
    }
    Ok(last)
}

/// Bytes of a size as in `32768K`.
fn bytes_of(size: &str) -> usize {
    let size = size.trim();
    let digits = size.trim_end_matches(|c: char| !c.is_ascii_digit());
    let unit = match &size.as_bytes()[digits.len()..] {
        b"K" => 1 << 10,
        b"M" => 1 << 20,
        _ => 1,
    };
    digits.parse::<usize>().unwrap_or(0).saturating_mul(unit)
}

/// The node of each CPU.
fn nodes(system: &Path) -> Result<BTreeMap<usize, usize>, HostError> {
    let online = system.join("node/online");
    let Some(list) = read(&online)? else {
        return Ok(BTreeMap::new());
    };
    let mut nodes = BTreeMap::new();
    for node in numbers(&list, &online)? {
        let list = system.join(format!("node/node{node}/cpulist"));
        if let Some(cpus) = read(&list)? {
            nodes.extend(numbers(&cpus, &list)?.into_iter().map(|cpu| (cpu, node)));
        }
    }
    Ok(nodes)
}
