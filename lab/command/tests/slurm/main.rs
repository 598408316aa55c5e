//! `vellum sweep --slurm` on a real cluster: nothing is lost, and nothing counts twice,
//! when jobs are killed, the sweep itself is, a node is drained, or the disk is full.

mod cluster;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use vellum_testing::by_hand::{self, PAGE, map, write};
use vellum_trace::EventKind;

use cluster::{Cluster, is_possible, wait_until};

/// Simulations that take a second or so each.
const SIMULATIONS: &str = "\
    [[grid]]\nrun = \"scale\"\nworkloads = [\"faults\"]\nmachines = [\"epyc-milan-1s\"]\ncpus = [2]\n\
    window = 2000\n";

/// A sweep on the cluster.
struct Sweep<'c> {
    cluster: &'c Cluster,
    spec: String,
    results: PathBuf,
}

impl<'c> Sweep<'c> {
    fn new(cluster: &'c Cluster, name: &str, spec: &str) -> Self {
        Self {
            cluster,
            spec: cluster.write(&format!("{name}.toml"), spec),
            results: cluster.path(&format!("{name}.results")).into(),
        }
    }

    fn path(&self, end: &str) -> String {
        format!("{}.{end}", self.spec)
    }

    fn start(&self) -> Child {
        let said = fs::File::create(self.path("err")).expect("made");
        let mut command = self.cluster.command(env!("CARGO_BIN_EXE_vellum"));
        command.args(["sweep", &self.spec, "--slurm", "--json", &self.path("json")]);
        command.arg("--results").arg(&self.results);
        command.stdout(Stdio::null()).stderr(said);
        command.spawn().expect("it can be started")
    }

    fn said(&self) -> String {
        fs::read_to_string(self.path("err")).expect("written")
    }

    /// The finished cells: which file each is, and when it was written.
    fn finished(&self) -> BTreeMap<String, (u64, i64, i64)> {
        let Ok(entries) = fs::read_dir(self.results.join("cells")) else {
            return BTreeMap::new();
        };
        let entry = |entry: std::io::Result<fs::DirEntry>| {
            let entry = entry.expect("read");
            let data = entry.metadata().expect("read");
            let name = entry.file_name().to_string_lossy().into_owned();
            let key = name.strip_suffix(".json").expect("a cell").to_owned();
            (key, (data.ino(), data.mtime(), data.mtime_nsec()))
        };
        entries.map(entry).collect()
    }

    /// In how many rounds each cell was.
    fn rounds(&self) -> BTreeMap<u64, u64> {
        let mut counts = BTreeMap::new();
        for round in fs::read_dir(self.results.join("slurm")).expect("read") {
            let plan = round.expect("read").path().join("plan.json");
            let text = fs::read_to_string(plan).expect("a plan");
            let plan: Value = serde_json::from_str(&text).expect("JSON");
            for cell in plan["cells"].as_array().expect("cells") {
                *counts
                    .entry(cell["seed"].as_u64().expect("a seed"))
                    .or_default() += 1;
            }
        }
        counts
    }

    /// Lets it end, which it must with `code`.
    fn end(&self, mut child: Child, code: i32) {
        let status = child.wait().expect("waited");
        assert_eq!(status.code(), Some(code), "{}", self.said());
    }

    /// Checks that it has all its cells, each in one row and once.
    fn is_complete(&self, cells: usize) -> Value {
        let text = fs::read_to_string(self.path("json")).expect("written");
        let result: Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!(
            (&result["cells"], &result["finished"]),
            (&cells.into(), &cells.into())
        );
        let rows = result["rows"].as_array().expect("rows");
        let mut keys: Vec<&str> = rows
            .iter()
            .flat_map(|row| row["keys"].as_array().expect("keys"))
            .map(|key| key.as_str().expect("a key"))
            .collect();
        keys.sort_unstable();
        let finished = self.finished();
        assert_eq!(
            keys,
            finished.keys().map(String::as_str).collect::<Vec<_>>()
        );
        result
    }

    /// The tasks of it that run, by Slurm's names.
    fn running(&self) -> Vec<String> {
        let listed = self
            .cluster
            .ask("squeue", &["--me", "-h", "-r", "-t", "RUNNING", "-o", "%i"]);
        listed.lines().map(str::to_owned).collect()
    }
}

#[test]
fn nothing_is_lost_and_nothing_counts_twice_on_a_cluster() {
    if !is_possible() {
        return;
    }
    let cluster = Cluster::start();
    jobs_and_the_sweep_are_killed(&cluster);
    a_node_is_drained(&cluster);
    the_disk_is_full(&cluster);
}

fn jobs_and_the_sweep_are_killed(cluster: &Cluster) {
    let seeds: Vec<u64> = (1..=8).collect();
    let sweep = Sweep::new(
        cluster,
        "killed",
        &format!("{SIMULATIONS}seeds = {seeds:?}\n"),
    );
    let mut child = sweep.start();
    wait_until("a cell is finished", || !sweep.finished().is_empty());
    child.kill().expect("it was killed");
    child.wait().expect("waited");
    let before = sweep.finished();
    let mut child = sweep.start();
    // The jobs of the first one go on meanwhile.
    let mut killed = Vec::new();
    wait_until("some more are finished and another runs", || {
        killed = sweep.running();
        sweep.finished().len() >= 2 && !killed.is_empty()
    });
    // One of them may have ended meanwhile, which scancel calls an error.
    let kill = |tasks: &[String]| cluster.command("scancel").args(tasks).output();
    let _ = kill(&killed);
    // And so do those that it submitted itself, once more.
    let first = job(&killed[0]).to_owned();
    let mut again = Vec::new();
    wait_until("a task of another round runs", || {
        again = sweep.running();
        again.retain(|task| job(task) != first);
        !again.is_empty() || child.try_wait().expect("asked").is_some()
    });
    let _ = kill(&again);
    killed.extend(again);
    sweep.end(child, 0);
    sweep.is_complete(seeds.len());
    let after = sweep.finished();
    for (key, file) in &before {
        assert_eq!(
            after.get(key),
            Some(file),
            "a finished cell was written again"
        );
    }
    // Only those that were killed went to Slurm again.
    let rounds = sweep.rounds();
    assert_eq!(rounds.keys().copied().collect::<Vec<_>>(), seeds);
    let again: u64 = rounds.values().map(|rounds| rounds - 1).sum();
    assert!(
        again <= killed.len() as u64,
        "{rounds:?}, and {killed:?} were killed"
    );
}

/// The job of a task, as in `17_3`.
fn job(task: &str) -> &str {
    task.split('_').next().unwrap_or_default()
}

fn a_node_is_drained(cluster: &Cluster) {
    let trace = cluster.path("writes.vellum");
    let start = 0x1000_0000;
    let mut events = vec![(0, map(start, 8))];
    events.extend((0..8).map(|page| (0, write(start + page * PAGE, false))));
    events.push((0, EventKind::Exit));
    by_hand::write_trace(&trace, 1, &events);
    let spec = format!(
        "[slurm]\nhosts = [\"n1\", \"n2\"]\ntraces = \"copied\"\n\
         [[grid]]\nrun = \"replay\"\ntraces = [\"writes.vellum\"]\nram = [\"64M\"]\n{SIMULATIONS}seeds = [11, 12]\n"
    );
    let sweep = Sweep::new(cluster, "drained", &spec);
    let update = |state: &str| {
        let arguments = [
            "update",
            "nodename=n2",
            &format!("state={state}"),
            "reason=test",
        ];
        cluster.ask("scontrol", &arguments);
    };
    update("drain");
    let child = sweep.start();
    wait_until("all that n1 can do is done, and the wait is told", || {
        sweep.finished().len() == 3 && sweep.said().contains("a job waits, and Slurm says why")
    });
    let before = sweep.finished();
    update("resume");
    sweep.end(child, 0);
    let result = sweep.is_complete(4);
    let hosts: Vec<&str> = result["rows"]
        .as_array()
        .expect("rows")
        .iter()
        .filter_map(|row| row["host"].as_str())
        .collect();
    assert_eq!(
        hosts,
        ["n1", "n2", "n1"],
        "a row for each host, none over both"
    );
    let after = sweep.finished();
    assert!(
        before
            .iter()
            .all(|(key, file)| after.get(key) == Some(file))
    );
    assert!(
        sweep.rounds().values().sum::<u64>() == 4,
        "none was tried twice"
    );
}

/// A file system of its own, which goes with this value.
struct Disk(PathBuf);

impl Disk {
    fn mount(path: &Path, bytes: u64) -> Option<Disk> {
        fs::create_dir(path).expect("made");
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &format!("size={bytes}"), "tmpfs"]);
        let mounted = mount
            .arg(path)
            .status()
            .is_ok_and(|status| status.success());
        mounted.then(|| Disk(path.to_owned()))
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

fn the_disk_is_full(cluster: &Cluster) {
    let seeds: Vec<u64> = (21..=26).collect();
    let spec = format!("[slurm]\nattempts = 2\n{SIMULATIONS}seeds = {seeds:?}\n");
    let sweep = Sweep::new(cluster, "full", &spec);
    // The results hold a copy of the program.
    let program = fs::metadata(env!("CARGO_BIN_EXE_vellum"))
        .expect("there")
        .len();
    let Some(_disk) = Disk::mount(&sweep.results, program + (2 << 20)) else {
        eprintln!("SKIPPED: no file system can be mounted");
        return;
    };
    let child = sweep.start();
    wait_until("a cell is finished", || !sweep.finished().is_empty());
    let filler = sweep.results.join("filler");
    let full = fs::write(&filler, vec![1; 4 << 20]).expect_err("the disk is full");
    assert_eq!(full.kind(), std::io::ErrorKind::StorageFull);
    sweep.end(child, 1);
    let before = sweep.finished();
    assert!((1..seeds.len()).contains(&before.len()), "{before:?}");
    fs::remove_file(filler).expect("removed");
    wait_until("no job is left", || {
        cluster.ask("squeue", &["--me", "-h"]).is_empty()
    });
    let child = sweep.start();
    sweep.end(child, 0);
    sweep.is_complete(seeds.len());
    let after = sweep.finished();
    for (key, file) in &before {
        assert_eq!(
            after.get(key),
            Some(file),
            "a finished cell was written again"
        );
    }
}
