//! What the host's kernel does in a replay that the core does not, and the other
//! way round. It stands beside every comparison of the two.

use vellum_results::linux::{Coverage, Environment};

/// The list for a host.
pub fn rows(host: &Environment) -> Vec<Coverage> {
    let row = |subject: &str, host: &str, core: &str| Coverage {
        subject: subject.to_owned(),
        host: host.to_owned(),
        core: core.to_owned(),
    };
    let group = match host.memory_group.as_str() {
        "" => "none found".to_owned(),
        path => format!("each page is charged to the group {path}"),
    };
    let lists = match host.lru_gen.as_str() {
        "" => "pages go to the active and inactive lists, in batches".to_owned(),
        enabled => format!("pages go to generations (lru_gen {enabled})"),
    };
    vec![
        row(
            "trap and system call entry",
            "each fault and each call enters the kernel: measured, and taken off in the second ratio",
            "none: calls of functions",
        ),
        row(
            "flushes of the TLB",
            "real ones, of the one CPU that everything runs on; none between CPUs",
            "of a simulated TLB, counted",
        ),
        row(
            "processes",
            "task, descriptors, signals, scheduling: the same in the empty replay, and subtracted",
            "none: address spaces only",
        ),
        row("memory cgroups", &group, "none"),
        row("reclaim lists", &lists, "none"),
        row(
            "fault-around",
            "16 pages by default, only those in the page cache",
            "as the design says (faultaround=)",
        ),
        row(
            "huge pages",
            &format!(
                "off for the replay, as for the recording; setting: {}",
                host.huge_pages
            ),
            "none",
        ),
        row(
            "file data",
            "sparse files in memory; read and written bytes are copied",
            "read from a simulated device once; reads copy nothing",
        ),
        row(
            "instruction fetches",
            "replayed as loads: the same path, and the page need not hold code",
            "as recorded",
        ),
        row(
            "heap and stack",
            "heap: mappings that grow (no brk); stack: grown by the kernel at touches",
            "heap: brk; stack: grown at touches",
        ),
        row(
            "overcommit, limits, accounting, security hooks",
            "checked at each call",
            "none",
        ),
    ]
}
