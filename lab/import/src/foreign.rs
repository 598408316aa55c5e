//! Texts of other tools that tell of memory and are not read: to name them.

/// A kind of text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Foreign {
    PerfDump,
    PerfTrace,
}

const KINDS: [Foreign; 2] = [Foreign::PerfDump, Foreign::PerfTrace];

impl Foreign {
    /// What it is, and what to do instead.
    pub fn what(self) -> &'static str {
        match self {
            Foreign::PerfDump => "the raw dump of perf script -D; leave out -D",
            Foreign::PerfTrace => {
                "text of perf trace, which is not read; record the events with perf record and \
                 print them with perf script"
            }
        }
    }

    /// Whether a line is of this kind.
    pub fn looks_like(self, line: &str) -> bool {
        match self {
            Foreign::PerfDump => {
                line.contains("]: PERF_RECORD_") || line.starts_with(". ... raw event: size ")
            }
            Foreign::PerfTrace => {
                let call = line.split_once(" ms): ");
                call.is_some_and(|(time, call)| time.contains(" (") && call.contains('('))
            }
        }
    }
}

/// The kind of which most lines are, and how many.
pub fn kind(text: &str) -> Option<(Foreign, usize)> {
    let count = |kind: Foreign| text.lines().filter(|line| kind.looks_like(line)).count();
    let counts = KINDS.map(|kind| (kind, count(kind)));
    let most = counts.into_iter().max_by_key(|(_, count)| *count)?;
    (most.1 > 0).then_some(most)
}
