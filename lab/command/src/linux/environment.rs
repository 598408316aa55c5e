//! The machine and the kernel that a result on the host belongs to.
//!
//! Everything is read from files of the kernel; what cannot be read is an empty
//! string or zero, never an error.

use std::fs;

use vellum_results::linux::Environment;

/// This machine.
pub fn here() -> Environment {
    Environment {
        kernel: line("/proc/sys/kernel/osrelease"),
        build: line("/proc/sys/kernel/version"),
        boot: line("/proc/sys/kernel/random/boot_id"),
        command_line: line("/proc/cmdline"),
        config: config(),
        cpu: field("/proc/cpuinfo", "model name"),
        cpus: crate::host::cpus(),
        memory: memory(),
        huge_pages: format!(
            "anonymous {}; shared {}",
            line("/sys/kernel/mm/transparent_hugepage/enabled"),
            line("/sys/kernel/mm/transparent_hugepage/shmem_enabled")
        ),
        mitigations: mitigations(),
        lru_gen: line("/sys/kernel/mm/lru_gen/enabled"),
        memory_group: memory_group(),
    }
}

/// The name that this machine has in its network.
pub fn host_name() -> String {
    line("/proc/sys/kernel/hostname")
}

/// The first line of a file.
fn line(path: &str) -> String {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.lines().next().unwrap_or("").trim().to_owned()
}

/// The value behind `name :` in a file.
fn field(path: &str, name: &str) -> String {
    let text = fs::read_to_string(path).unwrap_or_default();
    let mut lines = text.lines().filter_map(|line| line.split_once(':'));
    let found = lines.find(|(key, _)| key.trim() == name);
    found.map_or_else(String::new, |(_, value)| value.trim().to_owned())
}

fn memory() -> u64 {
    let text = field("/proc/meminfo", "MemTotal");
    let kib = text.split(' ').next().and_then(|kib| kib.parse().ok());
    kib.map_or(0, |kib: u64| kib << 10)
}

fn config() -> String {
    let release = line("/proc/sys/kernel/osrelease");
    let places = [
        format!("/boot/config-{release}"),
        format!("/lib/modules/{release}/config"),
        "/proc/config.gz".to_owned(),
    ];
    let found = places.iter().find_map(|path| {
        let bytes = fs::read(path).ok()?;
        let sum = crc32fast::hash(&bytes);
        Some(format!("{path}, {} bytes, crc32 {sum:08x}", bytes.len()))
    });
    found.unwrap_or_default()
}

fn mitigations() -> Vec<String> {
    let entries = fs::read_dir("/sys/devices/system/cpu/vulnerabilities");
    let entries = entries.into_iter().flatten().flatten();
    let mut lines: Vec<String> = entries
        .map(|entry| {
            let name = entry.file_name().to_string_lossy().into_owned();
            format!("{name}: {}", line(&entry.path().display().to_string()))
        })
        .collect();
    lines.sort_unstable();
    lines
}

fn memory_group() -> String {
    let text = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let mut groups = text.lines().filter_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        let controllers = parts.next()?;
        let path = parts.next()?;
        let memory = controllers.is_empty() || controllers.split(',').any(|one| one == "memory");
        memory.then(|| path.to_owned())
    });
    groups.next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_a_kernel_and_memory() {
        let here = here();
        assert!(!here.kernel.is_empty());
        assert!(here.memory > 1 << 20);
        let json = serde_json::to_string(&here).expect("plain data");
        assert_eq!(serde_json::from_str::<Environment>(&json).ok(), Some(here));
    }
}
