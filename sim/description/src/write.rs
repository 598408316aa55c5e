//! A description as the text of its file.

use std::fmt;

use super::{Description, Figure, Work, WorkKind, check};

/// A string as TOML has it.
pub(crate) fn quoted(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}

pub(crate) fn line(f: &mut fmt::Formatter<'_>, key: &str, figure: &dyn Figure) -> fmt::Result {
    writeln!(f, "{key} = {}", figure.in_toml())
}

impl fmt::Display for Work {
    /// Its table as a description has it, to be appended to one.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "[work]")?;
        let mut kinds = WorkKind::ALL.into_iter();
        kinds.try_for_each(|kind| match self.of(kind) {
            Some(time) => line(f, kind.key(), time),
            None => Ok(()),
        })
    }
}

impl fmt::Display for Description {
    /// The text that [`Description::parse`] reads.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let topology = &self.topology;
        writeln!(f, "title = {}", quoted(&self.title))?;
        writeln!(f, "notes = {}", quoted(&self.notes))?;
        writeln!(f, "\n[topology]")?;
        writeln!(f, "threads_per_core = {}", topology.threads_per_core)?;
        writeln!(f, "cores_per_cluster = {}", topology.cores_per_cluster)?;
        writeln!(f, "clusters_per_socket = {}", topology.clusters_per_socket)?;
        writeln!(f, "sockets_per_board = {}", topology.sockets_per_board)?;
        writeln!(f, "boards = {}", topology.boards)?;
        writeln!(f, "nodes_per_socket = {}", topology.nodes_per_socket)?;
        writeln!(f, "source = {}", quoted(&topology.source))?;
        let mut table = "";
        for (path, figure) in check::figures(self) {
            let (of, key) = path.split_once('.').unwrap_or(("", path));
            if of != table {
                writeln!(f, "\n[{of}]")?;
                table = of;
            }
            line(f, key, figure)?;
        }
        if let Some(translation) = &self.translation {
            write!(f, "\n{translation}")?;
        }
        Ok(())
    }
}
