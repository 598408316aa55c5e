//! Lines of opreport: samples, percent, and what they are of.
//!
//! The header says which columns there are. An image beside an application is
//! left out of the name, as autotest's diffprofile does, so that a kernel of
//! another version is the same kernel.

use super::{Reader, Refused, says_something};
use crate::Profile;

const LINE: Refused = "a line of opreport: samples, percent, and a symbol";

const ONE_LIST: Refused = "one list: ticks of several events or programs cannot be added; give \
    the list of one, as opreport -l event:NAME prints it";
const FLAT: Refused = "a list without callers, as opreport -l prints it without -c (--callgraph)";

#[derive(Default)]
pub struct Oprofile {
    columns: Columns,
    /// A line that says which event was counted was read.
    has_event: bool,
    /// Lines were read that count.
    has_ticks: bool,
}

/// Columns around the name.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Columns {
    /// An address comes first.
    address: bool,
    /// Columns between the percentage and the name that are left out.
    skipped: usize,
}

impl Reader for Oprofile {
    fn line(&mut self, line: &str, profile: &mut Profile) -> Result<(), Refused> {
        if !says_something(line) {
            return Ok(());
        }
        if line.starts_with("----") || line.trim_end().ends_with("[self]") {
            return Err(FLAT);
        }
        if line.starts_with("Counted ") && std::mem::replace(&mut self.has_event, true) {
            return Err(ONE_LIST);
        }
        if is_preamble(line) {
            return Ok(());
        }
        if let Some(columns) = header(line) {
            self.columns = columns;
            return match self.has_ticks {
                true => Err(ONE_LIST),
                false => Ok(()),
            };
        }
        self.has_ticks = true;
        let (name, samples) = split(line, self.columns).ok_or(LINE)?;
        profile.add(vec![name.into()], samples);
        Ok(())
    }
}

/// What opreport says before its table.
fn is_preamble(line: &str) -> bool {
    const BEGINNINGS: [&str; 5] = [
        "CPU:",
        "Counted ",
        "Profiling through",
        "warning:",
        "opreport",
    ];
    BEGINNINGS
        .iter()
        .any(|beginning| line.starts_with(beginning))
}

fn header(line: &str) -> Option<Columns> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let words: &[&str] = &words;
    let (address, words) = match words {
        ["vma", rest @ ..] => (true, rest),
        rest => (false, rest),
    };
    let skipped = match words {
        [
            "samples",
            "%",
            "image",
            "name",
            "app",
            "name",
            "symbol",
            "name",
        ] => 1,
        ["samples", "%", ..] => 0,
        _ => return None,
    };
    Some(Columns { address, skipped })
}

fn split(line: &str, columns: Columns) -> Option<(String, u64)> {
    let mut fields = line.split_whitespace();
    if columns.address {
        u64::from_str_radix(fields.next()?, 16).ok()?;
    }
    let samples = fields.next()?.parse().ok()?;
    let percent = fields.next()?.trim_end_matches('%');
    percent.parse::<f64>().ok()?;
    let name: Vec<&str> = fields.skip(columns.skipped).collect();
    (!name.is_empty()).then(|| (name.join(" "), samples))
}

pub fn begins_with(line: &str) -> bool {
    let fraction = |field: &str| field.contains('.') && field.parse::<f64>().is_ok();
    let plain = || {
        let second = line.split_whitespace().nth(1);
        second.is_some_and(fraction) && split(line, Columns::default()).is_some()
    };
    is_preamble(line) || header(line).is_some() || plain()
}

#[cfg(test)]
mod tests {
    use super::super::tests::read;

    #[test]
    fn a_report_of_one_image_is_read() {
        let text = "\
CPU: P4 / Xeon, speed 2806.58 MHz (estimated)
Counted GLOBAL_POWER_EVENTS events (time during which processor is not stopped) with a unit mask of 0x01 (mandatory) count 100000
samples  %        symbol name
9025     41.2214  default_idle
  310      1.4159  page_add_rmap
310      1.4159  page_add_rmap
";
        let profile = read(text).unwrap();
        assert_eq!(profile.flat()["default_idle"], 9025);
        assert_eq!(profile.flat()["page_add_rmap"], 620, "keys may occur twice");
    }

    #[test]
    fn images_are_left_out_where_the_application_is_named() {
        let text = "\
vma      samples  %           image name               app name                 symbol name
c01051f0 120      12.0000  vmlinux-2.5.65-mm2       vmlinux                  default_idle
08048000 30       3.0000   libc-2.3.1.so            make                     (no symbols)
";
        let profile = read(text).unwrap();
        assert_eq!(profile.flat()["vmlinux default_idle"], 120);
        assert_eq!(profile.flat()["make (no symbols)"], 30);
    }

    #[test]
    fn lines_without_a_header_are_read() {
        let profile = read("120 12.0000 default_idle\n7 0.7 find_vma\n").unwrap();
        assert_eq!(profile.flat()["find_vma"], 7);
    }

    #[test]
    fn damaged_lines_are_refused() {
        for line in ["120 default_idle", "x 12.0 default_idle", "120 12.0"] {
            let text = format!("samples  %        symbol name\n9 4.0 f\n{line}\n");
            let error = read(&text).unwrap_err().to_string();
            assert!(error.starts_with("in.txt:3: "), "{error}");
        }
    }

    #[test]
    fn lists_of_several_events_are_not_added() {
        const HEADER: &str = "samples  %        symbol name\n";
        let counted =
            |event| format!("Counted {event} events with a unit mask of 0x00 count 1000\n");
        for text in [
            format!("{HEADER}9 4.0 f\n{HEADER}7 3.0 f\n"),
            format!(
                "{}{}{HEADER}9 4.0 f\n",
                counted("CYCLES"),
                counted("MISSES")
            ),
        ] {
            let error = read(&text).unwrap_err().to_string();
            assert!(error.contains("cannot be added"), "{error}");
        }
    }

    /// As oprofile's manual shows it.
    #[test]
    fn a_call_graph_is_refused_with_the_option_to_leave_out() {
        let text = "\
CPU: P4 / Xeon, speed 2793.37 MHz (estimated)
Counted GLOBAL_POWER_EVENTS events (time during which processor is not stopped) with a unit mask of 0x01 (mandatory) count 240000
samples  %        image name               app name                 symbol name
-------------------------------------------------------------------------------
17071831 71.2700  libz.so.1          libz.so.1          (no symbols)
  17071831 100.000  libz.so.1          libz.so.1          (no symbols) [self]
-------------------------------------------------------------------------------
";
        let error = read(text).unwrap_err().to_string();
        assert!(
            error.contains("opreport -l prints it without -c"),
            "{error}"
        );
    }
}
