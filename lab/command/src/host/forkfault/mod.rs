//! The fork-and-fault program on the host's kernel.
//!
//! `fork` wants a process with one thread, which this one is not: the program
//! runs in this program started anew ([`Helper`]), as the hidden command
//! `vellum host-forkfault`.

pub mod prices;
pub mod program;
mod sys;
pub mod trap;

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::str::FromStr;

use clap::ValueEnum;

pub use prices::Round;
pub use program::{Iteration, Kind, Placement, Program};
pub use trap::TrapCost;

use super::{HostError, scratch};
use vellum_terminal::job::{self, Job};
use vellum_terminal::progress::Interrupt;

/// Bytes that one last-level page table of the host maps.
pub fn table_span() -> usize {
    sys::table_span()
}

/// The executable whose hidden command `host-forkfault` runs the program.
#[derive(Clone, Debug)]
pub struct Helper(PathBuf);

impl Helper {
    /// This very executable.
    ///
    /// # Errors
    /// It cannot be found.
    pub fn this() -> Result<Helper, HostError> {
        let path = std::env::current_exe();
        path.map(Helper)
            .map_err(HostError::io("finding the program itself"))
    }

    /// Another build of `vellum`.
    pub fn at(path: PathBuf) -> Helper {
        Helper(path)
    }

    /// Runs `program`: one result for each child, in order.
    ///
    /// # Errors
    /// The helper failed, or the user interrupted.
    pub fn run(
        &self,
        program: &Program,
        interrupt: &Interrupt,
    ) -> Result<Vec<Iteration>, HostError> {
        self.lines(program, interrupt)
    }

    /// What entering the kernel costs here.
    ///
    /// # Errors
    /// As [`Helper::run`].
    pub fn trap_cost(&self, interrupt: &Interrupt) -> Result<TrapCost, HostError> {
        let program = Program {
            kind: Kind::Trap,
            placement: Placement::Same,
            loops: 1,
            faults: 1,
        };
        let costs = self.lines(&program, interrupt)?;
        Ok(costs.first().copied().unwrap_or_default())
    }

    /// What single things cost here, by round.
    ///
    /// # Errors
    /// As [`Helper::run`].
    pub fn prices(&self, interrupt: &Interrupt) -> Result<Vec<Round>, HostError> {
        let program = Program {
            kind: Kind::Prices,
            placement: Placement::Same,
            loops: 1,
            faults: 1,
        };
        self.lines(&program, interrupt)
    }

    fn lines<T: FromStr>(
        &self,
        program: &Program,
        interrupt: &Interrupt,
    ) -> Result<Vec<T>, HostError> {
        let doing = || HostError::io(format!("running {} host-forkfault", self.0.display()));
        let output = scratch::unnamed_file().map_err(doing())?;
        let errors = scratch::unnamed_file().map_err(doing())?;
        let mut command = Command::new(&self.0);
        command
            .arg("host-forkfault")
            .args(["--kind", &name(&program.kind)])
            .args(["--placement", &name(&program.placement)])
            .args(["--loops", &program.loops.to_string()])
            .args(["--faults", &program.faults.to_string()])
            .stdin(Stdio::null())
            .stdout(output.try_clone().map_err(doing())?)
            .stderr(errors.try_clone().map_err(doing())?);
        let mut jobs = [Job::start(&mut command).map_err(doing())?];
        let failed = |ending: String| HostError::Command {
            command: format!("{} host-forkfault", self.0.display()),
            ending,
            output: scratch::last_lines(errors.try_clone()),
        };
        job::finish(&mut jobs, interrupt, |_, ended| {
            match ended.status.success() {
                true => Ok(()),
                false => Err(failed(ended.status.to_string())),
            }
        })?;
        let text = scratch::contents(output).map_err(doing())?;
        let line = |line: &str| {
            let read = line.parse();
            read.map_err(|_| failed(format!("expected a line of figures, read `{line}`")))
        };
        text.lines().map(line).collect()
    }
}

fn name(value: &impl ValueEnum) -> String {
    let value = value.to_possible_value();
    value.map_or_else(String::new, |value| value.get_name().to_owned())
}
