//! Programs that workloads of the host run, and the Debian packages they are in.

use std::env;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::HostError;

/// A program and the Debian package that has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tool {
    /// Name as a shell looks it up.
    pub program: &'static str,
    /// Package for `apt-get install`.
    pub package: &'static str,
}

/// Checks that every one of `tools` is in a directory of `PATH`.
///
/// # Errors
/// [`HostError::Missing`] names all that are not.
pub fn require(tools: &[Tool]) -> Result<(), HostError> {
    let path = env::var_os("PATH").unwrap_or_default();
    let missing: Vec<Tool> = tools
        .iter()
        .filter(|tool| !env::split_paths(&path).any(|dir| executable(&dir.join(tool.program))))
        .copied()
        .collect();
    match missing.is_empty() {
        true => Ok(()),
        false => Err(HostError::Missing(missing)),
    }
}

fn executable(path: &Path) -> bool {
    path.metadata()
        .is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_missing_programs_are_reported_together() {
        let tool = |program| Tool {
            program,
            package: "none",
        };
        let wanted = [tool("sh"), tool("no-such-program-1"), tool("no-such-2")];
        match require(&wanted) {
            Err(HostError::Missing(missing)) => assert_eq!(missing, wanted[1..]),
            other => panic!("{other:?}"),
        }
        assert!(require(&wanted[..1]).is_ok());
    }
}
