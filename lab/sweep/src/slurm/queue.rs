//! Slurm's commands.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use super::plan::{Class, Round};
use crate::cell::HostId;
use crate::error::SweepError;
use crate::files;
use crate::spec::SlurmSettings;

/// Tasks of an array if Slurm does not say how many there can be: its default.
const LARGEST_ARRAY: usize = 1000;

/// The jobs of one directory of results.
#[derive(Clone, Debug)]
pub struct Queue {
    /// What the names of its jobs begin with.
    name: String,
    largest: usize,
}

/// A task of a round that is in the queue.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Job {
    /// Slurm's name for it.
    pub id: String,
    /// The round.
    pub round: u64,
    /// The task.
    pub task: u64,
    /// Its state, as in `PENDING`.
    pub state: String,
    /// Why it waits.
    pub reason: String,
}

impl Job {
    /// Whether it will not run unless somebody releases it: Slurm tried in vain to start it.
    pub fn is_stuck(&self) -> bool {
        // Not those that a user or an administrator holds.
        let reason = self.reason.replace('_', " ").to_lowercase();
        let gave_up = reason.contains("requeued held") || reason == "jobholdmaxrequeue";
        self.state == "PENDING" && gave_up
    }

    /// What a user should know of its waiting.
    pub fn trouble(&self) -> Option<String> {
        let calm = [
            "None",
            "Priority",
            "Resources",
            "JobArrayTaskLimit",
            "Dependency",
            "BeginTime",
        ];
        let waits = self.state == "PENDING" && !calm.contains(&self.reason.as_str());
        waits.then(|| format!("a job waits, and Slurm says why: {}", self.reason))
    }
}

/// Runs a command of Slurm; what it prints, or what is wrong.
fn slurm(command: &mut Command, input: &str) -> Result<String, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = child.map_err(|error| {
        format!("{name}: {error}; --slurm needs Slurm's commands on this machine")
    })?;
    if let Some(mut stdin) = child.stdin.take() {
        // If it does not read, it says so by its exit code.
        let _ = stdin.write_all(input.as_bytes());
    }
    let output = child.wait_with_output();
    let output = output.map_err(|error| format!("{name}: {error}"))?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(format!(
            "{name}: {}",
            String::from_utf8_lossy(&output.stderr)
                .trim()
                .replace('\n', "; ")
        )),
    }
}

/// A node with its kernel.
///
/// # Errors
/// There is none, or Slurm cannot be asked.
pub fn host(name: &str) -> Result<HostId, SweepError> {
    let shown = slurm(
        Command::new("scontrol").args(["--oneliner", "show", "node", name]),
        "",
    );
    let shown = shown.map_err(SweepError::Slurm)?;
    let kernel = kernel(&shown).ok_or_else(|| {
        SweepError::Slurm(format!(
            "node {name} has not told Slurm its kernel: is it up? Timed cells run on the `hosts` \
             of [slurm]"
        ))
    })?;
    Ok(HostId {
        name: name.to_owned(),
        kernel,
    })
}

/// The release in `OS=Linux 6.1.0-18-amd64 #1 SMP ...`.
fn kernel(shown: &str) -> Option<String> {
    let (_, os) = shown.split_once(" OS=")?;
    os.split_whitespace().nth(1).map(str::to_owned)
}

impl Queue {
    /// The jobs of the results in `root`.
    ///
    /// # Errors
    /// Slurm cannot be asked.
    pub fn open(root: &Path) -> Result<Queue, SweepError> {
        let config = slurm(Command::new("scontrol").args(["show", "config"]), "");
        let config = config.map_err(SweepError::Slurm)?;
        let most = config.lines().find_map(|line| {
            let (name, value) = line.split_once('=')?;
            (name.trim() == "MaxArraySize").then(|| value.trim().parse::<usize>().ok())?
        });
        let hash = files::hash(root.as_os_str().as_encoded_bytes());
        Ok(Queue {
            name: format!("vellum-{}", &hash[..12]),
            // The limit is one above the largest number of a task.
            largest: most.map_or(LARGEST_ARRAY, |most| most.saturating_sub(1).max(1)),
        })
    }

    /// Most tasks of an array.
    pub fn largest_array(&self) -> usize {
        self.largest
    }

    fn name(&self, round: u64) -> String {
        format!("{}-{round}", self.name)
    }

    /// The names of all jobs of `rounds`, as `scancel` takes them.
    pub fn names(&self, rounds: &[u64]) -> String {
        let names: Vec<String> = rounds.iter().map(|&round| self.name(round)).collect();
        names.join(",")
    }

    /// Tasks that wait or run.
    ///
    /// # Errors
    /// Slurm cannot be asked now.
    pub fn jobs(&self) -> Result<Vec<Job>, String> {
        let mut command = Command::new("squeue");
        command.args(["--me", "--noheader", "--array", "--format=%i|%j|%T|%r"]);
        Ok(self.read(&slurm(&mut command, "")?))
    }

    fn read(&self, listed: &str) -> Vec<Job> {
        let jobs = listed.lines().filter_map(|line| {
            let [id, name, state, reason] = line.split('|').collect::<Vec<_>>()[..] else {
                return None;
            };
            let round = name.strip_prefix(&self.name)?.strip_prefix('-')?;
            let (_, task) = id.split_once('_')?;
            Some(Job {
                id: id.to_owned(),
                round: round.parse().ok()?,
                task: task.parse().ok()?,
                state: state.to_owned(),
                reason: reason.to_owned(),
            })
        });
        jobs.collect()
    }

    /// Hands a round to Slurm.
    ///
    /// # Errors
    /// Slurm refuses it.
    pub fn submit(
        &self,
        round: &Round,
        class: &Class,
        tasks: usize,
        settings: &SlurmSettings,
    ) -> Result<(), SweepError> {
        let mut command = Command::new("sbatch");
        let limit = settings
            .at_once
            .map_or_else(String::new, |most| format!("%{most}"));
        command.args([
            "--parsable".to_owned(),
            format!("--array=0-{}{limit}", tasks - 1),
            format!("--job-name={}", self.name(round.number)),
            format!("--cpus-per-task={}", class.threads),
            "--ntasks=1".to_owned(),
            "--open-mode=append".to_owned(),
            format!("--output={}/%a.log", escaped(&round.directory)),
        ]);
        let options = [
            ("partition", &settings.partition),
            ("account", &settings.account),
            ("mem", &class.resources.memory),
            ("time", &class.resources.time),
            ("nodelist", &class.host),
        ];
        for (name, value) in options {
            if let Some(value) = value {
                command.arg(format!("--{name}={value}"));
            }
        }
        if class.host.is_some() {
            command.arg("--exclusive");
        }
        command.args(&settings.options);
        let script = format!(
            "#!/bin/sh\nexec {} sweep-cell {} \"$SLURM_ARRAY_TASK_ID\"\n",
            quoted(&round.program),
            quoted(&round.plan)
        );
        match slurm(&mut command, &script) {
            Ok(_) => Ok(()),
            Err(why) => Err(SweepError::Slurm(format!(
                "{why}; finished cells are kept, and jobs of earlier rounds go on"
            ))),
        }
    }

    /// Takes a task out of the queue.
    ///
    /// # Errors
    /// Slurm refuses.
    pub fn cancel(&self, job: &str) -> Result<(), SweepError> {
        let done = slurm(Command::new("scancel").arg(job), "");
        done.map(|_| ()).map_err(SweepError::Slurm)
    }
}

/// A path for a shell.
fn quoted(path: &Path) -> String {
    format!("'{}'", path.display().to_string().replace('\'', r"'\''"))
}

/// A path for an option in which `%` has a meaning.
fn escaped(path: &Path) -> String {
    path.display().to_string().replace('%', "%%")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue() -> Queue {
        Queue {
            name: "vellum-0123456789ab".to_owned(),
            largest: 10,
        }
    }

    #[test]
    fn tasks_of_these_results_are_told_from_other_jobs() {
        let listed = "\
            17_0|vellum-0123456789ab-3|RUNNING|None\n\
            17_1|vellum-0123456789ab-3|PENDING|Resources\n\
            18|vellum-0123456789ab-4|RUNNING|None\n\
            19_0|vellum-ffffffffffff-3|RUNNING|None\n\
            20_0|somebody else's|RUNNING|None\n";
        let jobs = queue().read(listed);
        let found: Vec<(u64, u64)> = jobs.iter().map(|job| (job.round, job.task)).collect();
        assert_eq!(found, [(3, 0), (3, 1)]);
        assert!(
            jobs.iter()
                .all(|job| !job.is_stuck() && job.trouble().is_none())
        );
    }

    #[test]
    fn a_job_that_waits_for_somebody_says_so_and_one_that_cannot_start_is_stuck() {
        let drained = "17_1|vellum-0123456789ab-3|PENDING|ReqNodeNotAvail, UnavailableNodes:n2\n";
        let trouble = queue().read(drained)[0].trouble().expect("it waits");
        assert!(trouble.contains("UnavailableNodes:n2"), "{trouble}");
        let failed = "17_1|vellum-0123456789ab-3|PENDING|launch failed requeued held\n";
        assert!(queue().read(failed)[0].is_stuck());
        for held in ["JobHeldUser", "JobHeldAdmin"] {
            let listed = format!("17_1|vellum-0123456789ab-3|PENDING|{held}\n");
            let job = &queue().read(&listed)[0];
            assert!(!job.is_stuck() && job.trouble().is_some(), "{held}");
        }
    }

    #[test]
    fn the_kernel_of_a_node_is_read() {
        let shown =
            "NodeName=n1 Arch=x86_64 NodeHostName=vm OS=Linux 6.1.0-18-amd64 #1 SMP RealMemory=1";
        assert_eq!(kernel(shown).as_deref(), Some("6.1.0-18-amd64"));
        assert_eq!(kernel("NodeName=n1 State=DOWN"), None);
    }
}
