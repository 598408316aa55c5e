//! What can be wrong with a description that is well-formed.

use std::fmt;

use super::figure::{Basis, Figure};
use super::{Description, MOST_CPUS, Translation};

/// One thing that is wrong: which key, what it has, what was expected.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Flaw {
    /// The key, with its tables.
    pub key: String,
    /// What is wrong, and what was expected.
    pub message: String,
}

impl fmt::Display for Flaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.key, self.message)
    }
}

/// All figures that a description has in tables with fixed keys.
pub(super) fn figures(machine: &Description) -> Vec<(&'static str, &dyn Figure)> {
    fn some<F: Figure>(figure: &Option<F>) -> Option<&dyn Figure> {
        figure.as_ref().map(|figure| figure as &dyn Figure)
    }
    let Description {
        lines,
        memory,
        bandwidth,
        processor,
        flush,
        system,
        work,
        ..
    } = machine;
    let all: [(&'static str, Option<&dyn Figure>); 40] = [
        ("lines.hit", Some(&lines.hit)),
        ("lines.update", Some(&lines.update)),
        ("lines.cached", some(&lines.cached)),
        ("lines.sibling", some(&lines.sibling)),
        ("lines.cluster", some(&lines.cluster)),
        ("lines.socket", some(&lines.socket)),
        ("lines.board", some(&lines.board)),
        ("lines.system", some(&lines.system)),
        ("lines.slot", Some(&lines.slot)),
        ("memory.own", Some(&memory.own)),
        ("memory.socket", some(&memory.socket)),
        ("memory.board", some(&memory.board)),
        ("memory.system", some(&memory.system)),
        ("bandwidth.zero", Some(&bandwidth.zero)),
        ("bandwidth.copy", Some(&bandwidth.copy)),
        ("bandwidth.node", Some(&bandwidth.node)),
        ("bandwidth.zero_cached", some(&bandwidth.zero_cached)),
        ("bandwidth.copy_cached", some(&bandwidth.copy_cached)),
        ("processor.work", Some(&processor.work)),
        ("processor.store_buffer", Some(&processor.store_buffer)),
        ("processor.cache", some(&processor.cache)),
        ("processor.own_cache", some(&processor.own_cache)),
        ("processor.exposed", some(&processor.exposed)),
        ("processor.shared_speed", some(&processor.shared_speed)),
        ("flush.send", Some(&flush.send)),
        ("flush.arrive", Some(&flush.arrive)),
        ("flush.handle", Some(&flush.handle)),
        ("flush.page", Some(&flush.page)),
        ("flush.full", Some(&flush.full)),
        ("flush.full_from", Some(&flush.full_from)),
        ("system.trap", Some(&system.trap)),
        ("system.syscall", Some(&system.syscall)),
        ("system.sleep", Some(&system.sleep)),
        ("system.wake", Some(&system.wake)),
        ("system.wake_latency", Some(&system.wake_latency)),
        ("work.fault", some(&work.fault)),
        ("work.map", some(&work.map)),
        ("work.fork", some(&work.fork)),
        ("work.exit", some(&work.exit)),
        ("work.file", some(&work.file)),
    ];
    all.into_iter()
        .filter_map(|(key, figure)| Some((key, figure?)))
        .collect()
}

/// The range that a figure has to lie in, by unit.
fn range(key: &str, unit: &str) -> (f64, f64) {
    match (key, unit) {
        ("processor.store_buffer" | "flush.full_from", _) => (1.0, 4096.0),
        ("processor.cache" | "processor.own_cache", _) => (1.0, 1e8),
        ("translation.levels" | "translation.nested.levels", _) => (1.0, 6.0),
        // KiB of a cache.
        (_, "count") if key.ends_with(".size") => (1.0, 4e6),
        (_, "count") => (1.0, 65536.0),
        (_, "share") => (0.05, 1.0),
        (_, "gb_per_s") => (0.01, 10_000.0),
        // Nothing may be free: time has to pass in every loop.
        ("lines.hit" | "lines.update", _) => (0.1, 1e6),
        // More is between calls, not between accesses of one.
        ("work.fault" | "work.map" | "work.fork" | "work.exit" | "work.file", _) => (0.01, 1e4),
        _ => (0.0, 1e9),
    }
}

/// What is wrong with a source that does not say what it rests on.
pub(super) fn no_basis(source: &str) -> String {
    let words = Basis::ALL.map(|basis| format!("\"{}: \"", basis.word()));
    format!(
        "\"{source}\": expected {} and then from where",
        words.join(" or ")
    )
}

/// Everything that is wrong.
pub(super) fn flaws(machine: &Description) -> Vec<Flaw> {
    let mut flaws = Vec::new();
    let mut flaw = |key: &str, message: String| {
        let key = key.to_owned();
        flaws.push(Flaw { key, message });
    };
    let topology = &machine.topology;
    let levels = [
        ("threads_per_core", topology.threads_per_core, 2),
        ("cores_per_cluster", topology.cores_per_cluster, MOST_CPUS),
        (
            "clusters_per_socket",
            topology.clusters_per_socket,
            MOST_CPUS,
        ),
        ("sockets_per_board", topology.sockets_per_board, MOST_CPUS),
        ("boards", topology.boards, MOST_CPUS),
        ("nodes_per_socket", topology.nodes_per_socket, MOST_CPUS),
    ];
    let mut sound = true;
    for (key, count, most) in levels {
        if !(1..=most).contains(&count) {
            sound = false;
            flaw(
                &format!("topology.{key}"),
                format!("{count}: expected a number from 1 to {most}"),
            );
        }
    }
    if sound {
        if machine.cpus() > MOST_CPUS {
            let cpus = machine.cpus();
            flaw(
                "topology",
                format!("{cpus} CPUs: expected at most {MOST_CPUS}"),
            );
        }
        let (clusters, nodes) = (topology.clusters_per_socket, topology.nodes_per_socket);
        if clusters % nodes != 0 {
            flaw(
                "topology.nodes_per_socket",
                format!("{nodes}: expected a divisor of the {clusters} clusters of a socket"),
            );
        }
        for (key, exists, given, why) in optional(machine) {
            match (exists, given) {
                (true, false) => flaw(key, format!("missing: expected, because {why}")),
                (false, true) => flaw(
                    key,
                    format!("expected not to be there, because it is not so that {why}"),
                ),
                _ => {}
            }
        }
    }
    if machine.title.trim().is_empty() {
        flaw("title", "empty: expected what the machine is".to_owned());
    }
    let mut sources = vec![("topology".to_owned(), topology.source.as_str())];
    for (key, figure) in machine.figures() {
        let (least, most) = range(&key, figure.unit());
        let value = figure.value();
        let unit = figure.unit();
        if !(least..=most).contains(&value) {
            flaw(
                &format!("{key}.{unit}"),
                format!("{value}: expected {least} to {most}"),
            );
        } else if unit == "count" && value.fract() != 0.0 {
            flaw(
                &format!("{key}.{unit}"),
                format!("{value}: expected a whole number"),
            );
        }
        sources.push((key, figure.source()));
    }
    for (key, source) in sources {
        if Basis::of(source).is_none() {
            flaw(&format!("{key}.source"), no_basis(source));
        }
    }
    for (key, message) in cached(machine) {
        flaw(key, message);
    }
    for Flaw { key, message } in machine.translation.iter().flat_map(Translation::flaws) {
        flaw(&key, message);
    }
    for [near, far] in ascending(machine) {
        if let (Some((near_key, near)), Some((key, far))) = (near, far)
            && near > far
        {
            flaw(
                key,
                format!("{far} ns is less than the {near} ns of {near_key}"),
            );
        }
    }
    flaws
}

/// Keys that are there if and only if the topology has what they are about:
/// key, whether it has, whether the key is there, and what is so if it has.
fn optional(machine: &Description) -> [(&'static str, bool, bool, &'static str); 9] {
    let Description {
        topology,
        lines,
        memory,
        processor,
        ..
    } = machine;
    let threads = (
        topology.threads_per_core > 1,
        "a core has several threads (topology.threads_per_core)",
    );
    let cores = (
        topology.cores_per_cluster > 1,
        "a cluster has several cores (topology.cores_per_cluster)",
    );
    let clusters = (
        topology.clusters_per_socket > 1,
        "a socket has several clusters (topology.clusters_per_socket)",
    );
    let sockets = (
        topology.sockets_per_board > 1,
        "a board has several sockets (topology.sockets_per_board)",
    );
    let boards = (
        topology.boards > 1,
        "there are several boards (topology.boards)",
    );
    let nodes = (
        topology.nodes_per_socket > 1,
        "a socket has several nodes (topology.nodes_per_socket)",
    );
    let row = |key, (exists, why), given| (key, exists, given, why);
    [
        row("lines.sibling", threads, lines.sibling.is_some()),
        row("lines.cluster", cores, lines.cluster.is_some()),
        row("lines.socket", clusters, lines.socket.is_some()),
        row("lines.board", sockets, lines.board.is_some()),
        row("lines.system", boards, lines.system.is_some()),
        row("memory.socket", nodes, memory.socket.is_some()),
        row("memory.board", sockets, memory.board.is_some()),
        row("memory.system", boards, memory.system.is_some()),
        row(
            "processor.shared_speed",
            threads,
            processor.shared_speed.is_some(),
        ),
    ]
}

/// What is wrong with the figures about what caches hold: of pages and of lines there are all or
/// none of them, and none is slower than memory.
fn cached(machine: &Description) -> Vec<(&'static str, String)> {
    let Description {
        lines,
        bandwidth,
        processor,
        ..
    } = machine;
    let mut flaws = Vec::new();
    let of_pages = [
        ("processor.cache", processor.cache.is_some()),
        ("bandwidth.zero_cached", bandwidth.zero_cached.is_some()),
        ("bandwidth.copy_cached", bandwidth.copy_cached.is_some()),
    ];
    let of_lines = [
        ("processor.own_cache", processor.own_cache.is_some()),
        ("lines.cached", lines.cached.is_some()),
    ];
    for there in [&of_pages[..], &of_lines[..]] {
        if let Some((given, _)) = there.iter().find(|(_, is_there)| *is_there) {
            let missing = there.iter().filter(|(_, is_there)| !is_there);
            flaws.extend(missing.map(|(key, _)| {
                let message = format!("missing: expected, because there is {given}");
                (*key, message)
            }));
        }
    }
    if processor.exposed.is_some() && processor.own_cache.is_none() {
        let message = "is of lines that are lost: expected only where there is processor.own_cache";
        flaws.push(("processor.exposed", message.to_owned()));
    }
    let pairs = [
        (
            "bandwidth.zero_cached",
            &bandwidth.zero_cached,
            "bandwidth.zero",
            &bandwidth.zero,
        ),
        (
            "bandwidth.copy_cached",
            &bandwidth.copy_cached,
            "bandwidth.copy",
            &bandwidth.copy,
        ),
    ];
    for (key, cached, other, memory) in pairs {
        if let Some(cached) = cached
            && cached.gb_per_s < memory.gb_per_s
        {
            let (is, than) = (cached.gb_per_s, memory.gb_per_s);
            flaws.push((
                key,
                format!("{is} GB/s is less than the {than} GB/s of {other}"),
            ));
        }
    }
    flaws
}

type Step = Option<(&'static str, f64)>;

/// Pairs of which the second may not be less than the first. A level that is not
/// there is passed over.
fn ascending(machine: &Description) -> Vec<[Step; 2]> {
    let Description { lines, memory, .. } = machine;
    let cached = [
        Some(("lines.hit", lines.hit.ns)),
        lines.cached.as_ref().map(|time| ("lines.cached", time.ns)),
        Some(("memory.own", memory.own.ns)),
    ];
    let lines = [
        Some(("lines.hit", lines.hit.ns)),
        lines
            .cluster
            .as_ref()
            .map(|time| ("lines.cluster", time.ns)),
        lines.socket.as_ref().map(|time| ("lines.socket", time.ns)),
        lines.board.as_ref().map(|time| ("lines.board", time.ns)),
        lines.system.as_ref().map(|time| ("lines.system", time.ns)),
    ];
    let memory = [
        Some(("memory.own", memory.own.ns)),
        memory
            .socket
            .as_ref()
            .map(|time| ("memory.socket", time.ns)),
        memory.board.as_ref().map(|time| ("memory.board", time.ns)),
        memory
            .system
            .as_ref()
            .map(|time| ("memory.system", time.ns)),
    ];
    let pairs = |steps: &[Step]| {
        let there: Vec<Step> = steps.iter().copied().filter(Option::is_some).collect();
        let pairs: Vec<[Step; 2]> = there.windows(2).map(|pair| [pair[0], pair[1]]).collect();
        pairs
    };
    let mut all = pairs(&lines);
    all.extend(pairs(&memory));
    if cached[1].is_some() {
        all.extend(pairs(&cached));
    }
    all
}
