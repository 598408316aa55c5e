//! What an importer left out, by reason, with the first places.

use serde::Serialize;

/// Places that are kept for each reason.
const PLACES: usize = 3;
/// Reasons that are told apart; further ones are counted together. Text that
/// is not what it seems can give a reason for each line.
const REASONS: usize = 64;

/// A line of an input.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Place {
    /// Which input, from 0.
    pub input: usize,
    /// Which line, from 1.
    pub line: u64,
}

/// Why lines were left out.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Reason {
    /// What they are or what is wrong with them.
    pub what: String,
    /// How many.
    pub count: u64,
    /// The first ones.
    pub first: Vec<Place>,
}

/// What became of the lines.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Report {
    /// Lines read, or records.
    pub lines: u64,
    /// What they are called; empty: lines.
    #[serde(skip)]
    pub unit: &'static str,
    /// Lines that should have told something and did not: the trace lacks it.
    pub skipped: Vec<Reason>,
    /// Lines that are understood and say nothing about memory.
    pub passed_over: Vec<Reason>,
    /// What the importer had to assume, one sentence each.
    pub notes: Vec<String>,
}

fn add(reasons: &mut Vec<Reason>, place: Place, what: &str) {
    let full = reasons.len() >= REASONS;
    let reason = match reasons.iter().position(|reason| reason.what == what) {
        Some(at) => &mut reasons[at],
        None if full => reasons.last_mut().expect("there are many"),
        None => {
            let what = match reasons.len() + 1 == REASONS {
                true => "other reasons".to_owned(),
                false => what.to_owned(),
            };
            reasons.push(Reason {
                what,
                count: 0,
                first: Vec::new(),
            });
            reasons.last_mut().expect("just added")
        }
    };
    reason.count += 1;
    if reason.first.len() < PLACES {
        reason.first.push(place);
    }
}

impl Report {
    /// What one of what was read is called.
    pub fn unit(&self) -> &'static str {
        match self.unit {
            "" => "line",
            unit => unit,
        }
    }

    /// A line that the trace lacks.
    pub fn skip(&mut self, place: Place, what: impl AsRef<str>) {
        add(&mut self.skipped, place, what.as_ref());
    }

    /// A line that says nothing about memory.
    pub fn pass_over(&mut self, place: Place, what: impl AsRef<str>) {
        add(&mut self.passed_over, place, what.as_ref());
    }

    /// All lines that the trace lacks.
    pub fn skips(&self) -> u64 {
        self.skipped.iter().map(|reason| reason.count).sum()
    }

    /// Lines that were used. Counted from the others: a line can be skipped for
    /// two reasons, so it is no less than this.
    pub fn used(&self) -> u64 {
        let passed: u64 = self.passed_over.iter().map(|reason| reason.count).sum();
        self.lines.saturating_sub(passed + self.skips())
    }

    /// Whether so much was skipped that the text is not what it was taken for:
    /// more than half of the lines that should tell something, or more than a
    /// tenth and at least ten. Lines cut off at the ends of a recording, lost
    /// ones and those of tasks that had ended are far fewer.
    pub fn is_doubtful(&self) -> bool {
        let (skips, used) = (self.skips(), self.used());
        skips > used || (skips >= 10 && skips * 10 > skips + used)
    }

    /// The report as text, a line each, with the inputs' `names`.
    pub fn text(&self, names: &[String]) -> Vec<String> {
        let mut lines = Vec::new();
        for (verb, reasons) in [
            ("skipped", &self.skipped),
            ("passed over", &self.passed_over),
        ] {
            lines.extend(reasons.iter().map(|reason| {
                let (count, what) = (reason.count, &reason.what);
                let unit = self.unit();
                let end = if count == 1 { "" } else { "s" };
                let places = places(reason, names, unit);
                format!("{verb} {count} {unit}{end}: {what} ({places})")
            }));
        }
        lines.extend(self.notes.iter().cloned());
        lines
    }
}

/// `line 3, 17, 18, …`; with several inputs `a.txt:3, b.txt:17, …`.
fn places(reason: &Reason, names: &[String], unit: &str) -> String {
    let several = names.len() > 1;
    let one = |place: &Place| match names.get(place.input) {
        Some(name) if several => format!("{name}:{}", place.line),
        _ => place.line.to_string(),
    };
    let mut text: Vec<String> = reason.first.iter().map(one).collect();
    if reason.count > text.len() as u64 {
        text.push("…".to_owned());
    }
    let word = match (several, reason.count) {
        (true, _) => String::new(),
        (false, 1) => format!("{unit} "),
        (false, _) => format!("{unit}s "),
    };
    format!("{word}{}", text.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_counted_and_their_first_lines_kept() {
        let mut report = Report::default();
        for line in 1..=5 {
            report.skip(Place { input: 0, line }, "damaged");
        }
        report.pass_over(Place { input: 0, line: 9 }, "a signal");
        assert_eq!(report.skips(), 5);
        assert_eq!(
            report.text(&["a".to_owned()]),
            [
                "skipped 5 lines: damaged (lines 1, 2, 3, …)",
                "passed over 1 line: a signal (line 9)"
            ]
        );
        let names = ["a".to_owned(), "b".to_owned()];
        assert!(report.text(&names)[0].contains("(a:1, a:2, a:3, …)"));
    }

    #[test]
    fn a_reason_for_each_line_does_not_grow_without_end() {
        let mut report = Report::default();
        for line in 1..=1000 {
            report.skip(Place { input: 0, line }, format!("reason {line}"));
        }
        assert_eq!(report.skipped.len(), REASONS);
        assert_eq!(report.skips(), 1000);
    }

    #[test]
    fn a_share_of_skipped_lines_that_cannot_be_innocent_is_doubtful() {
        let doubtful = |lines, passed, skips| {
            let mut report = Report {
                lines,
                ..Report::default()
            };
            let place = Place { input: 0, line: 1 };
            (0..passed).for_each(|_| report.pass_over(place, "a signal"));
            (0..skips).for_each(|_| report.skip(place, "damaged"));
            report.is_doubtful()
        };
        // Of few lines half, of many a tenth.
        assert!(!doubtful(2, 0, 1) && doubtful(3, 0, 2));
        assert!(!doubtful(80, 0, 9) && doubtful(80, 0, 10));
        assert!(!doubtful(100, 0, 10) && doubtful(100, 0, 11));
        // What says nothing about memory does not count, whatever its share.
        assert!(!doubtful(1000, 990, 0) && !doubtful(1000, 900, 10) && doubtful(1000, 901, 10));
    }
}
