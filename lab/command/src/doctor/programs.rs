//! Whether the programs are there that benchmarks on the host run.

use super::Missing;
use crate::bench::host::sdet::script;
use crate::bench::host::tree;
use crate::host::error::packages;
use crate::host::{HostError, tools};

pub(super) fn builds() -> Result<String, Missing> {
    all(tree::TOOLS)
}

pub(super) fn scripts() -> Result<String, Missing> {
    all(script::TOOLS)
}

fn all(tools: &[tools::Tool]) -> Result<String, Missing> {
    match tools::require(tools) {
        Ok(()) => Ok("all programs are there".to_owned()),
        Err(HostError::Missing(missing)) => {
            let programs: Vec<&str> = missing.iter().map(|tool| tool.program).collect();
            Err(Missing::new(
                format!("not found: {}", programs.join(", ")),
                format!("sudo apt-get install {}", packages(&missing)),
            ))
        }
        Err(error) => Err(Missing::of(error)),
    }
}
