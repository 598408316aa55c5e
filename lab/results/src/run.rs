//! How a result was made: the field `run` of every result.

use serde::{Deserialize, Serialize};

use crate::Content;

/// How a result was made.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Run {
    /// The program and its arguments as they were typed.
    pub command: Vec<String>,
    /// Version of the program.
    pub version: String,
    /// A checksum of the program's file, by which builds are distinguished.
    pub program: String,
    /// When the command began, as in `2026-11-24T08:30:00Z`.
    pub started: String,
    /// The machine it ran on.
    pub host: Host,
    /// The traces it read.
    pub traces: Vec<TraceFile>,
}

/// A machine and its kernel. What could not be found out is an empty text or 0.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Host {
    /// Its name in the network.
    pub name: String,
    /// Release of the kernel, `uname -r`.
    pub kernel: String,
    /// Model of the CPUs.
    pub cpu: String,
    /// CPUs online.
    pub cpus: usize,
    /// Memory in bytes.
    pub memory: u64,
    /// Setting of transparent huge pages.
    pub huge_pages: String,
}

/// The file of a trace.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct TraceFile {
    /// Its path as it was given.
    pub path: String,
    /// Length in bytes.
    pub bytes: u64,
    /// SHA-256 of the file in hexadecimal digits, as `sha256sum` prints it.
    pub sha256: String,
    /// Events in it.
    pub events: u64,
    /// The command that was recorded.
    pub command: Vec<String>,
}

impl Run {
    /// With what the result itself says where there is nothing better.
    pub(super) fn completed_by(mut self, content: &Content) -> Run {
        let version = match content {
            Content::Compare(compare) => &compare.version,
            Content::Bench(bench) => &bench.version,
            Content::Reproduce(reproduction) => &reproduction.version,
            Content::Host(saved) => &saved.version,
            Content::HostCompare(comparison) => &comparison.host.version,
            _ => "",
        };
        if self.version.is_empty() {
            self.version = version.to_owned();
        }
        let saved = match content {
            Content::Host(saved) => Some(saved),
            Content::HostCompare(comparison) => Some(&comparison.host),
            _ => None,
        };
        if let (Some(saved), true) = (saved, self.host == Host::default()) {
            self.host = saved.environment.host(String::new());
        }
        if let (Some(saved), true) = (saved, self.traces.is_empty()) {
            self.traces.push(TraceFile {
                path: saved.trace.path.clone(),
                bytes: saved.trace.bytes,
                events: saved.trace.events,
                ..TraceFile::default()
            });
        }
        self
    }

    /// The command as one types it into a shell.
    pub fn command_line(&self) -> String {
        command_line(&self.command)
    }
}

/// Arguments as one types them into a shell.
pub fn command_line(arguments: &[String]) -> String {
    let quoted: Vec<String> = arguments.iter().map(|word| quoted(word)).collect();
    quoted.join(" ")
}

fn quoted(word: &str) -> String {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "-_./=,:+@%".contains(letter);
    match !word.is_empty() && word.chars().all(plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_line_can_be_pasted_into_a_shell() {
        let words = ["vellum", "compare", "my trace.vellum", "it's", "", "a=b,c"];
        let line = command_line(&words.map(str::to_owned));
        assert_eq!(line, r"vellum compare 'my trace.vellum' 'it'\''s' '' a=b,c");
    }
}
