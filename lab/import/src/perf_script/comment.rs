//! Comment lines: what `perf script --header` says about the machine, and what
//! `vellum dump --perf-script` says that perf has no words for.

use std::collections::HashMap;

use super::line;
use crate::feed::ABSURD;
use vellum_trace::{Environment, Header};

/// Begins the lines that only Vellum writes.
pub const OWN: &str = "# vellum: ";

/// What comments told.
#[derive(Default)]
pub struct Comments {
    environment: Environment,
    /// Written by `vellum dump`.
    pub own: bool,
    /// Not every event was recorded, perf's header says.
    pub sampled: bool,
    /// When the trace begins, if that is said.
    pub begin_ns: Option<u64>,
    invisible: Vec<String>,
    /// Length and name by device and inode.
    files: HashMap<(u32, u64), (u64, String)>,
}

impl Comments {
    /// Takes a line that begins with `#`. False: it should have been understood.
    pub fn take(&mut self, text: &str) -> bool {
        if let Some(own) = text.strip_prefix(OWN) {
            self.own = true;
            return self.take_own(own).is_some();
        }
        if let Some((key, value)) = text.trim_start_matches('#').split_once(" : ") {
            self.take_header(key.trim(), value.trim());
        }
        true
    }

    fn take_header(&mut self, key: &str, value: &str) {
        let environment = &mut self.environment;
        match key {
            "os release" => environment.kernel = value.to_owned(),
            "arch" => environment.architecture = value.to_owned(),
            "nrcpus online" => environment.cpus = value.parse().unwrap_or(0),
            "total memory" => {
                let kib = value.trim_end_matches(" kB").parse::<u64>().unwrap_or(0);
                environment.memory = kib.saturating_mul(1024);
            }
            "event" => self.sampled |= value.contains(" freq = 1"),
            "cmdline" => {
                let words = value.split_whitespace();
                let after = words.clone().position(|word| word == "--");
                let words = words.skip(after.map_or(0, |at| at + 1));
                environment.command = words.map(str::to_owned).collect();
            }
            _ => {}
        }
    }

    fn take_own(&mut self, text: &str) -> Option<()> {
        let (key, value) = text.split_once(' ').unwrap_or((text, ""));
        match key {
            "begin" => self.begin_ns = Some(line::seconds(value)?),
            "environment" => self.environment = environment(value)?,
            "invisible" => self.invisible.push(serde_json::from_str(value).ok()?),
            "file" => {
                let mut words = value.splitn(4, ' ');
                let device = words.next()?.parse().ok()?;
                let inode = words.next()?.parse().ok()?;
                let size = words.next()?.parse().ok().filter(|size| *size < ABSURD)?;
                let name = serde_json::from_str(words.next()?).ok()?;
                self.files.insert((device, inode), (size, name));
            }
            _ => return None,
        }
        Some(())
    }

    /// Writes what was told into the header of the trace.
    pub fn apply(self, header: &mut Header) {
        header.environment = self.environment;
        header.invisible.extend(self.invisible);
        for file in &mut header.files {
            if let Some((size, name)) = self.files.get(&(file.device, file.inode)) {
                file.size = *size;
                file.name.clone_from(name);
            }
        }
    }
}

/// The environment as `vellum dump --perf-script` writes it.
pub fn environment_text(environment: &Environment) -> String {
    serde_json::json!({
        "kernel": environment.kernel,
        "architecture": environment.architecture,
        "cpus": environment.cpus,
        "memory": environment.memory,
        "command": environment.command,
        "thp_off": environment.thp_off,
        "cuts": environment.cuts,
    })
    .to_string()
}

fn environment(text: &str) -> Option<Environment> {
    let value: serde_json::Value = serde_json::from_str(text).ok()?;
    let word = |key: &str| value.get(key)?.as_str().map(str::to_owned);
    let list = |key: &str| -> Option<Vec<String>> {
        let items = value.get(key)?.as_array()?.iter();
        items.map(|item| item.as_str().map(str::to_owned)).collect()
    };
    Some(Environment {
        kernel: word("kernel")?,
        architecture: word("architecture")?,
        cpus: u32::try_from(value.get("cpus")?.as_u64()?).ok()?,
        memory: value.get("memory")?.as_u64()?,
        command: list("command")?,
        thp_off: value.get("thp_off")?.as_bool()?,
        cuts: list("cuts")?,
    })
}
