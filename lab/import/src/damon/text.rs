//! Text of `damo report raw`, and lines of the kernel's event in text of perf or ftrace.
//!
//! ```text
//! monitoring_end:            208.590 ms
//! target_id: 18446623438842320000
//! 563ebaa00000-563ebadf3000 (   3.949 MiB)           0    -1
//! kdamond.0  4597 [005]  1307.209: damon:damon_aggregated: target_id=0 nr_regions=11 122509119488-135708762112: 0 864
//! ```

use std::collections::HashMap;

use super::{Region, Snapshot, Told};
use crate::report::{Place, Report};
use crate::{ImportError, Input, Watch, each_line, perf_script};

/// What a line says.
#[derive(Debug, PartialEq)]
enum Line<'a> {
    Start(u64),
    End(u64),
    Target(&'a str),
    Region(Region),
    /// The kernel's event, which holds all.
    Event {
        time_ns: u64,
        target: &'a str,
        regions: u64,
        region: Region,
    },
    /// Nothing that matters.
    About,
}

fn parse(line: &str) -> Option<Line<'_>> {
    let line = line.trim();
    if let Some((before, fields)) = line.split_once("damon_aggregated: ") {
        return aggregated(before, fields);
    }
    if line.is_empty() || line.starts_with('#') {
        return Some(Line::About);
    }
    if let Some((key, value)) = line.split_once(':')
        && key
            .bytes()
            .all(|byte| byte.is_ascii_alphabetic() || matches!(byte, b'_' | b' '))
        && !key.is_empty()
    {
        return match key {
            "monitoring_start" => Some(Line::Start(time_ns(value)?)),
            "monitoring_end" => Some(Line::End(time_ns(value)?)),
            "target_id" => Some(Line::Target(value.trim())),
            "base_time_absolute"
            | "data source"
            | "monitoring_duration"
            | "nr_regions"
            | "kdamond_idx"
            | "context_idx"
            | "scheme_idx"
            | "intervals" => Some(Line::About),
            _ => None,
        };
    }
    region(line).map(Line::Region)
}

/// `563ebaa00000-563ebadf3000 (   3.949 MiB)           0    -1`; old versions put a colon before the
/// count.
fn region(line: &str) -> Option<Region> {
    let (range, rest) = line.split_once('(')?;
    let (start, end) = range.trim().split_once('-')?;
    let hexadecimal = |text: &str| u64::from_str_radix(text, 16).ok();
    let (size, counts) = rest.split_once(')')?;
    let count = counts.trim_start_matches(':').split_whitespace().next()?;
    let count: i64 = count.parse().ok()?;
    size.trim_end().ends_with('B').then_some(Region {
        start: hexadecimal(start)?,
        end: hexadecimal(end)?,
        used: count > 0,
    })
}

/// `target_id=0 nr_regions=11 122509119488-135708762112: 0 864`, after who and when.
fn aggregated<'a>(before: &str, fields: &'a str) -> Option<Line<'a>> {
    let mut time = before.split_whitespace().rev();
    let time = time.find_map(perf_script::time_of)?;
    let mut words = fields.split_whitespace();
    let target = words.next()?.strip_prefix("target_id=")?;
    let regions = words.next()?.strip_prefix("nr_regions=")?.parse().ok()?;
    let (start, end) = words.next()?.strip_suffix(':')?.split_once('-')?;
    let count: u64 = words.next()?.parse().ok()?;
    Some(Line::Event {
        time_ns: time,
        target,
        regions,
        region: Region {
            start: start.parse().ok()?,
            end: end.parse().ok()?,
            used: count > 0,
        },
    })
}

/// A time as damo prints it, in nanoseconds: `8 m 59.809 s`, `104.599 ms`, `0 ns`.
pub fn time_ns(text: &str) -> Option<u64> {
    let words: Vec<&str> = text.split_whitespace().collect();
    if words.is_empty() || !words.len().is_multiple_of(2) {
        return None;
    }
    let mut sum = 0.0;
    for pair in words.chunks(2) {
        let number: f64 = pair[0].replace(',', "").parse().ok()?;
        let unit = match pair[1] {
            "ns" => 1.0,
            "us" | "usec" => 1e3,
            "ms" => 1e6,
            "s" => 1e9,
            "m" => 60e9,
            "h" => 3600e9,
            "d" => 86400e9,
            _ => return None,
        };
        sum += number * unit;
    }
    (0.0..1e19).contains(&sum).then_some(sum as u64)
}

/// Whether a line is one that tells something.
pub fn looks_like(line: &str) -> bool {
    !matches!(parse(line), Some(Line::About) | None)
}

/// Whether a line of perf or ftrace tells another event.
fn is_of_another_event(line: &str) -> bool {
    perf_script::looks_like(line) || perf_script::looks_like_ftrace(line)
}

/// A snapshot that is being told.
#[derive(Default)]
struct Open {
    snapshot: Snapshot,
    /// How many regions are still to come, where that is known.
    left: u64,
}

#[derive(Default)]
struct Reader {
    start_ns: Option<u64>,
    end_ns: Option<u64>,
    /// A target of the report was named since the end of an interval.
    target: Option<String>,
    /// Snapshots of the kernel's events, by target.
    open: HashMap<String, Open>,
}

/// Reads the inputs.
pub fn read(
    inputs: Vec<Input>,
    told: &mut Told,
    report: &mut Report,
    watch: &mut Watch<'_>,
) -> Result<(), ImportError> {
    let mut reader = Reader::default();
    let mut input = 0;
    let lines = each_line(inputs, watch, |place, text, cut| {
        if place.input != input {
            reader.finish(told);
            input = place.input;
        }
        match cut {
            true => report.skip(place, "a line longer than 65536 bytes"),
            false => reader.take(place, text, told, report),
        }
        Ok(())
    })?;
    reader.finish(told);
    report.lines += lines;
    Ok(())
}

impl Reader {
    fn take(&mut self, place: Place, text: &str, told: &mut Told, report: &mut Report) {
        match parse(text) {
            Some(Line::Start(time)) => self.start_ns = Some(time),
            Some(Line::End(time)) => self.end_ns = Some(time),
            Some(Line::Target(name)) => {
                let Some(end_ns) = self.end_ns.take() else {
                    report.skip(place, "a target without the time that it is told of");
                    return;
                };
                let start_ns = self.start_ns.take();
                told.target(name).snapshots.push(Snapshot {
                    start_ns,
                    end_ns,
                    regions: Vec::new(),
                });
                self.target = Some(name.to_owned());
            }
            Some(Line::Region(region)) => {
                let name = self.target.as_deref().filter(|_| self.end_ns.is_none());
                let snapshot = name.and_then(|name| told.target(name).snapshots.last_mut());
                match snapshot {
                    Some(snapshot) => snapshot.regions.push(region),
                    None => report.skip(place, "a region without its time and target"),
                }
            }
            Some(Line::Event {
                time_ns,
                target,
                regions,
                region,
            }) => self.event(told, (target, time_ns), regions, region),
            Some(Line::About) => {}
            None if is_of_another_event(text) => report.pass_over(place, "other events"),
            None => report.skip(place, "not a line of DAMON, or one that ends early"),
        }
    }

    /// The kernel tells each region in an event, `regions` of them for a snapshot.
    fn event(&mut self, told: &mut Told, at: (&str, u64), regions: u64, region: Region) {
        let (target, end_ns) = at;
        let open = self.open.entry(target.to_owned()).or_default();
        if open.left == 0 {
            let whole = std::mem::take(&mut open.snapshot);
            if !whole.regions.is_empty() {
                told.target(target).snapshots.push(whole);
            }
            open.left = regions.max(1);
            open.snapshot.end_ns = end_ns;
        }
        open.left -= 1;
        open.snapshot.regions.push(region);
    }

    /// The input ends.
    fn finish(&mut self, told: &mut Told) {
        let mut open: Vec<(String, Open)> = self.open.drain().collect();
        open.sort_by(|(a, _), (b, _)| a.cmp(b));
        for (target, open) in open {
            told.target(&target).snapshots.push(open.snapshot);
        }
        *self = Reader::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn region(start: u64, end: u64, used: bool) -> Region {
        Region { start, end, used }
    }

    #[test]
    fn lines_of_all_versions_come_apart() {
        for (line, expected) in [
            (
                "monitoring_end:            104.599 ms",
                Line::End(104_599_000),
            ),
            (
                "monitoring_start:     8 m 59.5 s",
                Line::Start(539_500_000_000),
            ),
            (
                "target_id: 18446623438842320000",
                Line::Target("18446623438842320000"),
            ),
            (
                "563ebaa00000-563ebadf3000 (   3.949 MiB)           0    -1",
                Line::Region(region(0x563e_baa0_0000, 0x563e_badf_3000, false)),
            ),
            (
                "563ebaa00000-563ebc99e000(  31.617 MiB): 1",
                Line::Region(region(0x563e_baa0_0000, 0x563e_bc99_e000, true)),
            ),
            (
                "kdamond.0  4597 [005]  1307.209000: damon:damon_aggregated: target_id=0 nr_regions=11 4096-8192: 2 864",
                Line::Event {
                    time_ns: 1_307_209_000_000,
                    target: "0",
                    regions: 11,
                    region: region(4096, 8192, true),
                },
            ),
            (
                "  kdamond.0-4597  [005] d..1.  1307.209000: damon_aggregated: target_id=7 nr_regions=1 4096-8192: 0",
                Line::Event {
                    time_ns: 1_307_209_000_000,
                    target: "7",
                    regions: 1,
                    region: region(4096, 8192, false),
                },
            ),
        ] {
            assert_eq!(parse(line), Some(expected), "{line}");
            assert!(looks_like(line), "{line}");
        }
        for line in [
            "",
            "# start_addr     end_addr",
            "nr_regions: 10",
            "data source: unknown",
        ] {
            assert_eq!(parse(line), Some(Line::About), "{line}");
        }
    }

    #[test]
    fn other_lines_do_not() {
        for line in [
            "make 4711 [001] 12.345678: damon:damon_aggregated: target_id=0 nr_regions=",
            "damon:damon_aggregated: target_id=0 nr_regions=11 1-2: 0",
            "monitoring_end: soon",
            "Rss:    8 kB",
            "1000-3000 rw-p 00000000 00:00 0",
            "563ebaa00000-563ebc99e000 (31 apples): 1",
        ] {
            assert!(!looks_like(line), "{line}");
        }
    }
}
