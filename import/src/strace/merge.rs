//! Several files of one run (`strace -ff -o FILE`), in one order of time.
//!
//! Such files are named after their process and lack the column with its id.
//! A file without times keeps its own order, behind what came before it.

use super::line;
use crate::report::Place;
use crate::{ImportError, Input, Watch};

/// The next line of an input.
struct Head {
    place: Place,
    time_ns: u64,
    text: String,
    cut: bool,
}

struct Source {
    input: Input,
    index: usize,
    /// The process in the file's name.
    pid: Option<u32>,
    time_ns: u64,
    head: Option<Head>,
}

impl Source {
    fn advance(&mut self, watch: &mut Watch<'_>) -> Result<(), ImportError> {
        let before = self.input.bytes();
        let next = self.input.next_line();
        let next = next.map_err(|source| ImportError::Read {
            name: self.input.name.clone(),
            source,
        })?;
        self.head = next.map(|(text, cut)| {
            let time = line::split(&text).and_then(|line| line.time_ns);
            self.time_ns = self.time_ns.max(time.unwrap_or(0));
            Head {
                place: Place {
                    input: self.index,
                    line: self.input.line(),
                },
                time_ns: self.time_ns,
                text,
                cut,
            }
        });
        if self.head.is_some() {
            watch.line(self.input.bytes() - before)?;
        }
        Ok(())
    }
}

/// The process that `name.4711` is about.
fn pid_of_name(name: &str) -> Option<u32> {
    name.rsplit_once('.')?.1.parse().ok()
}

/// Calls `take` for each line, the least time first, with the process that the
/// file's name tells.
pub fn each_line(
    inputs: Vec<Input>,
    watch: &mut Watch<'_>,
    mut take: impl FnMut(Place, Option<u32>, &str, bool) -> Result<(), ImportError>,
) -> Result<u64, ImportError> {
    let mut sources = Vec::new();
    for (index, input) in inputs.into_iter().enumerate() {
        let pid = pid_of_name(&input.name);
        let mut source = Source {
            input,
            index,
            pid,
            time_ns: 0,
            head: None,
        };
        source.advance(watch)?;
        sources.push(source);
    }
    let mut lines = 0;
    loop {
        let next = sources.iter_mut().filter(|source| source.head.is_some());
        let next = next.min_by_key(|source| source.head.as_ref().map(|head| head.time_ns));
        let Some(source) = next else {
            return Ok(lines);
        };
        let Some(head) = source.head.take() else {
            return Ok(lines);
        };
        lines += 1;
        take(head.place, source.pid, &head.text, head.cut)?;
        source.advance(watch)?;
    }
}
