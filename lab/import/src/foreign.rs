//! Texts of other tools that tell of memory and are not read: to name them.

/// A kind of text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Foreign {
    Damon,
    PerfDump,
    PerfTrace,
}

const KINDS: [Foreign; 3] = [Foreign::Damon, Foreign::PerfDump, Foreign::PerfTrace];

impl Foreign {
    /// What it is, and what to do instead.
    pub fn what(self) -> &'static str {
        match self {
            Foreign::Damon => {
                "what DAMON saw (damo report), which is not read: it tells how often regions are \
                 used, not by whom and when"
            }
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
            Foreign::Damon => is_damon(line),
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

fn is_damon(line: &str) -> bool {
    let region = || {
        let (range, rest) = line.split_once('(')?;
        let (from, to) = range.split_once('-')?;
        let hexadecimal = |text: &str| u64::from_str_radix(text, 16).is_ok();
        let (size, _) = rest.split_once("):")?;
        Some(hexadecimal(from) && hexadecimal(to) && size.ends_with('B'))
    };
    [
        "monitoring_start:",
        "monitoring_end:",
        "nr_regions:",
        "base_time_absolute:",
    ]
    .iter()
    .any(|key| line.starts_with(key))
        || (line.contains("\"kdamond") && line.contains('{'))
        || region().unwrap_or(false)
}
