//! Why a benchmark of the host could not be run.

use std::io;
use std::path::PathBuf;

use crate::failure::Failure;
use vellum_terminal::job::Stopped;

/// A benchmark of the host that could not be run to its end.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// Programs that the workload runs are not installed.
    #[error(
        "not installed: {}; install them with: apt-get install {}",
        .0.iter().map(|tool| tool.program).collect::<Vec<_>>().join(", "),
        packages(.0)
    )]
    Missing(Vec<super::tools::Tool>),
    /// The request is not one for a host.
    #[error("{0}")]
    Unsupported(String),
    /// The kernel tree cannot be built.
    #[error("{}: {what}", .path.display())]
    Tree {
        /// The directory given.
        path: PathBuf,
        /// What is wrong with it and what to do.
        what: String,
    },
    /// A program of the workload failed.
    #[error("{command}: {ending}{output}")]
    Command {
        /// What was run, and where.
        command: String,
        /// How it ended.
        ending: String,
        /// The last lines it wrote, each on a line of its own.
        output: String,
    },
    /// The operating system refused something.
    #[error("{doing}")]
    Io {
        /// What was being done.
        doing: String,
        /// The refusal.
        source: io::Error,
    },
    /// The user asked to stop.
    #[error("interrupted")]
    Interrupted,
}

/// The packages to install, each once.
pub(crate) fn packages(tools: &[super::tools::Tool]) -> String {
    let mut packages: Vec<&str> = tools.iter().map(|tool| tool.package).collect();
    packages.sort_unstable();
    packages.dedup();
    packages.join(" ")
}

impl From<Stopped> for HostError {
    fn from(_: Stopped) -> HostError {
        HostError::Interrupted
    }
}

impl HostError {
    /// Attaches what was being done.
    pub fn io(doing: impl Into<String>) -> impl FnOnce(io::Error) -> HostError {
        let doing = doing.into();
        |source| HostError::Io { doing, source }
    }

    /// The command's end with the exit code that fits.
    pub fn into_failure(self) -> Failure {
        let code = match &self {
            HostError::Tree { .. } | HostError::Unsupported(_) => Failure::usage,
            HostError::Interrupted => Failure::interrupted,
            _ => Failure::failed,
        };
        code(Failure::from(self).message().to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::super::tools::Tool;
    use super::*;

    #[test]
    fn a_missing_program_is_named_with_its_package_once() {
        let tool = |program, package| Tool { program, package };
        let missing = vec![tool("cc", "gcc"), tool("nroff", "groff-base")];
        let text = HostError::Missing(missing).to_string();
        assert!(text.contains("cc, nroff"), "{text}");
        assert!(text.ends_with("apt-get install gcc groff-base"), "{text}");
    }
}
