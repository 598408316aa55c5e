//! Times of lines as nanoseconds from the first line.

use super::line::Stamp;

const DAY: u64 = 86_400 * 1_000_000_000;

/// What the times of a text count from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    /// The epoch or midnight.
    Absolute,
    /// The line before (`-r`).
    Relative,
}

/// Makes one order of time of all kinds of times.
#[derive(Default)]
pub struct Clock {
    /// As the first line with a time has it.
    kind: Option<Kind>,
    origin: Option<u64>,
    last: u64,
    /// Nanoseconds that midnight has added to times of day.
    days: u64,
    without: u64,
    earlier: u64,
}

impl Clock {
    /// When a line is. One without a time comes a microsecond after the line
    /// before.
    pub fn take(&mut self, stamp: Option<Stamp>) -> u64 {
        let now = match (stamp, self.kind(stamp)) {
            (None, _) => {
                self.without += 1;
                self.last.saturating_add(1000)
            }
            (Some(stamp), Kind::Relative) => self.last.saturating_add(stamp.ns),
            (Some(stamp), Kind::Absolute) => self.absolute(stamp.ns),
        };
        self.origin.get_or_insert(now);
        self.last = self.last.max(now);
        self.now()
    }

    fn kind(&mut self, stamp: Option<Stamp>) -> Kind {
        let Some(stamp) = stamp else {
            return Kind::Absolute;
        };
        *self.kind.get_or_insert(if stamp.since {
            Kind::Relative
        } else {
            Kind::Absolute
        })
    }

    fn absolute(&mut self, ns: u64) -> u64 {
        let time = ns.saturating_add(self.days);
        // Times of day begin anew at midnight.
        if time < DAY.saturating_add(self.days) && self.last > time.saturating_add(DAY / 2) {
            self.days = self.days.saturating_add(DAY);
            return time.saturating_add(DAY);
        }
        self.earlier += u64::from(time < self.last);
        time
    }

    /// The last line's time.
    pub fn now(&self) -> u64 {
        self.last - self.origin.unwrap_or(0).min(self.last)
    }

    /// Whether times count from the line before.
    pub fn is_relative(&self) -> bool {
        self.kind == Some(Kind::Relative)
    }

    /// Whether any line had a time.
    pub fn has_times(&self) -> bool {
        self.kind.is_some()
    }

    /// Sentences about what was assumed.
    pub fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if self.without > 0 {
            notes.push(format!(
                "{} lines have no time: each counts as a microsecond after the one before (use \
                 strace -ttt).",
                self.without
            ));
        }
        if self.is_relative() {
            notes.push("Times are sums of the times since the line before (strace -r).".to_owned());
        }
        if self.earlier > 0 {
            notes.push(format!(
                "{} lines were earlier than the line before; they count as at its time.",
                self.earlier
            ));
        }
        notes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(stamps: &[(u64, bool)]) -> (Vec<u64>, Clock) {
        let mut clock = Clock::default();
        let stamps = stamps.iter().map(|(ns, since)| Stamp {
            ns: *ns,
            since: *since,
        });
        let times = stamps.map(|stamp| clock.take(Some(stamp))).collect();
        (times, clock)
    }

    #[test]
    fn times_since_the_line_before_are_added_up() {
        let (times, clock) = times(&[(0, true), (7, true), (0, true), (5, false)]);
        assert_eq!(times, [0, 7, 7, 12]);
        assert_eq!(clock.notes().len(), 1);
    }

    #[test]
    fn times_of_day_go_on_after_midnight_and_others_never_go_back() {
        let (times, clock) = times(&[(DAY - 5, false), (DAY - 1, false), (3, false), (2, false)]);
        assert_eq!(times, [0, 4, 8, 8]);
        assert!(clock.notes()[0].starts_with("1 lines were earlier"));
    }

    #[test]
    fn a_time_that_no_clock_shows_is_the_last_there_is() {
        let mut clock = Clock::default();
        let stamp = |ns, since| Some(Stamp { ns, since });
        assert_eq!(clock.take(stamp(1, false)), 0);
        assert_eq!(clock.take(stamp(u64::MAX, false)), u64::MAX - 1);
        assert_eq!(clock.take(None), u64::MAX - 1);
        assert_eq!(clock.take(stamp(5, true)), u64::MAX - 1);
        assert_eq!(clock.take(stamp(DAY, false)), u64::MAX - 1);
    }

    #[test]
    fn a_line_without_a_time_is_a_microsecond_later() {
        let mut clock = Clock::default();
        assert_eq!([clock.take(None), clock.take(None)], [0, 1000]);
        assert!(clock.notes()[0].starts_with("2 lines have no time"));
    }
}
