//! A Slurm cluster of two nodes on this machine, with real daemons: one controller, two
//! of nodes, and one for authentication. It goes with the test.

use std::fs;
use std::io::Read;
use std::net::TcpListener;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::Duration;

use vellum_testing::Scratch;

/// The nodes.
pub const NODES: [&str; 2] = ["n1", "n2"];

/// The daemons.
const DAEMONS: [&str; 3] = ["munged", "slurmctld", "slurmd"];

/// How often somebody looks whether something has come about, and for how long.
const LOOK: Duration = Duration::from_millis(50);
const LOOKS: u32 = 1200;

/// A cluster.
pub struct Cluster {
    scratch: Scratch,
    daemons: Vec<Child>,
}

/// Whether there can be one; if not it says so, which is a failure with
/// `VELLUM_REQUIRE_SLURM=1` in the environment.
pub fn is_possible() -> bool {
    let places = ["/usr/sbin", "/usr/bin", "/usr/local/sbin"];
    let missing = DAEMONS.iter().find(|daemon| {
        let is_there = |place: &&str| Path::new(place).join(daemon).exists();
        !places.iter().any(is_there)
    });
    // SAFETY: takes nothing and cannot fail.
    let is_root = unsafe { libc::geteuid() } == 0;
    let why = match missing {
        Some(daemon) => format!("{daemon} is not installed (`cargo xtask slurm` installs it)"),
        None if !is_root => "only root can start its daemons".to_owned(),
        None => return true,
    };
    let required = std::env::var_os("VELLUM_REQUIRE_SLURM").is_some_and(|value| value == "1");
    assert!(!required, "Slurm is required here: {why}");
    eprintln!("SKIPPED: no cluster: {why}");
    false
}

/// Looks until `is_so`.
pub fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    for _ in 0..LOOKS {
        if is_so() {
            return;
        }
        thread::sleep(LOOK);
    }
    panic!("in vain: {what}");
}

impl Cluster {
    /// Starts the daemons, and waits until both nodes are up.
    pub fn start() -> Cluster {
        let scratch = Scratch::new("slurm");
        let mut cluster = Cluster {
            daemons: Vec::new(),
            scratch,
        };
        cluster.write_key();
        let ports = ports::<4>();
        let host = fs::read_to_string("/proc/sys/kernel/hostname").expect("a name");
        let host = host.trim().split('.').next().unwrap_or_default();
        let scratch = &cluster.scratch;
        let config = format!(
            "ClusterName=vellum\nSlurmctldHost={host}(127.0.0.1)\nSlurmUser=root\nSlurmdUser=root\n\
             AuthType=auth/munge\nAuthInfo=socket={0}/munge.socket\nCredType=cred/munge\n\
             SlurmctldPort={1}\nSlurmdPort={2}\nStateSaveLocation={0}/state\n\
             SlurmdSpoolDir={0}/spool-%n\nSlurmctldPidFile={0}/slurmctld.pid\n\
             SlurmdPidFile={0}/%n.pid\nSlurmctldLogFile={0}/slurmctld.log\nSlurmdLogFile={0}/%n.log\n\
             ProctrackType=proctrack/linuxproc\nTaskPlugin=task/none\nSelectType=select/cons_tres\n\
             SelectTypeParameters=CR_CPU\nReturnToService=2\nSwitchType=switch/none\nMpiDefault=none\n\
             AccountingStorageType=accounting_storage/none\nJobCompType=jobcomp/none\n\
             JobAcctGatherType=jobacct_gather/none\nKillWait=2\n\
             NodeName=n[1-2] NodeHostname={host} NodeAddr=127.0.0.1 Port=[{3}-{4}] CPUs=2 State=UNKNOWN\n\
             PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP\n",
            scratch.directory(),
            ports[0],
            ports[1],
            ports[2],
            ports[3],
        );
        scratch.write("slurm.conf", config);
        fs::create_dir(scratch.path("state")).expect("made");
        let munged = ["--foreground", "--force"].map(str::to_owned);
        let files = ["key-file", "socket", "pid-file", "log-file", "seed-file"];
        let files = files.map(|option| {
            let name = option.strip_suffix("-file").unwrap_or(option);
            format!(
                "--{option}={}",
                cluster.scratch.path(&format!("munge.{name}"))
            )
        });
        cluster.daemon("munged", &[&munged[..], &files].concat());
        let socket = cluster.scratch.path("munge.socket");
        wait_until("munged", || Path::new(&socket).exists());
        cluster.daemon("slurmctld", &["-D".to_owned()]);
        for node in NODES {
            cluster.daemon("slurmd", &["-D", "-N", node].map(str::to_owned));
        }
        wait_until("both nodes are up", || {
            let output = cluster
                .command("sinfo")
                .args(["-h", "-N", "-o", "%N %t"])
                .output();
            let output = output.expect("sinfo");
            String::from_utf8_lossy(&output.stdout)
                .matches("idle")
                .count()
                == NODES.len()
        });
        cluster
    }

    fn write_key(&self) {
        let mut key = [0; 128];
        let mut random = fs::File::open("/dev/urandom").expect("there");
        random.read_exact(&mut key).expect("enough");
        let path = self.scratch.path("munge.key");
        let mut options = fs::OpenOptions::new();
        let mut file = options.write(true).create_new(true).mode(0o400).open(&path);
        std::io::Write::write_all(file.as_mut().expect("made"), &key).expect("written");
        // For the socket, which others must reach.
        let open = fs::Permissions::from_mode(0o755);
        fs::set_permissions(self.scratch.directory(), open).expect("changed");
    }

    fn daemon(&mut self, name: &str, arguments: &[String]) {
        let log = fs::File::create(self.scratch.path(&format!("{name}.err"))).expect("made");
        let mut command = self.command(&format!("/usr/sbin/{name}"));
        command.args(arguments).stdin(Stdio::null());
        command.stdout(Stdio::null()).stderr(log);
        self.daemons
            .push(command.spawn().expect("it can be started"));
    }

    /// A command that finds the cluster.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.env("SLURM_CONF", self.scratch.path("slurm.conf"));
        command
    }

    /// What a command of Slurm prints.
    pub fn ask(&self, program: &str, arguments: &[&str]) -> String {
        let output = self.command(program).args(arguments).output();
        let Output {
            status,
            stdout,
            stderr,
        } = output.expect("it can be started");
        let said = String::from_utf8_lossy(&stderr);
        assert!(status.success(), "{program} {arguments:?}: {said}");
        String::from_utf8_lossy(&stdout).into_owned()
    }

    /// A path among its files.
    pub fn path(&self, name: &str) -> String {
        self.scratch.path(name)
    }

    /// A file among its files.
    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        self.scratch.write(name, content)
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // As far as it goes: a test may have failed at any point.
        let _ = self.command("scancel").arg("--me").output();
        let ended = || {
            let left = self.command("squeue").args(["-h", "--me"]).output();
            left.is_ok_and(|left| left.stdout.is_empty())
        };
        for _ in 0..300 {
            if ended() {
                break;
            }
            thread::sleep(LOOK);
        }
        for daemon in self.daemons.iter_mut().rev() {
            // SAFETY: takes integers only; the daemon has not been waited for.
            unsafe { libc::kill(daemon.id() as libc::pid_t, libc::SIGTERM) };
            let _ = daemon.wait();
        }
    }
}

/// Ports that are free, the last two of which follow one another.
fn ports<const N: usize>() -> [u16; N] {
    for _ in 0..100 {
        let held = std::array::from_fn(|_| TcpListener::bind("127.0.0.1:0").expect("a port"));
        let mut ports: [u16; N] = held
            .each_ref()
            .map(|port| port.local_addr().expect("bound").port());
        let next = ports[N - 2].wrapping_add(1);
        if TcpListener::bind(("127.0.0.1", next)).is_ok() {
            ports[N - 1] = next;
            return ports;
        }
    }
    panic!("no two ports beside each other are free");
}
