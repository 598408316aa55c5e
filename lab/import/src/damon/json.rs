//! `damo record`'s own file: a list of records, one for each target, with their snapshots.
//!
//! ```text
//! [{"target_id": 0, "snapshots": [{"start_time": "0", "end_time": "100,000", "regions":
//!   [{"start": "94,827,419,009,024", "end": "…", "nr_accesses": {"samples": 3, "percent": null}, …}]}]}]
//! ```

use serde::Deserialize;
use serde_json::Value;

use super::{Region, Snapshot, Told};
use crate::report::{Place, Report};
use crate::{ImportError, Input, Watch};

/// A number, or the text of one.
#[derive(Deserialize)]
#[serde(untagged)]
enum Number {
    Signed(i64),
    Unsigned(u64),
    Float(f64),
    Text(String),
}

impl Number {
    /// The value; of a text with commas between the digits, and with a unit of time, nanoseconds.
    fn value(&self) -> Option<u64> {
        match self {
            Number::Signed(number) => u64::try_from(*number).ok(),
            Number::Unsigned(number) => Some(*number),
            Number::Float(number) => (*number >= 0.0 && *number < 1e19).then_some(*number as u64),
            Number::Text(text) => {
                let digits: String = text.chars().filter(|letter| *letter != ',').collect();
                digits
                    .parse()
                    .ok()
                    .or_else(|| super::text::time_ns(&digits))
            }
        }
    }
}

#[derive(Deserialize)]
struct RecordOf {
    target_id: Option<Value>,
    snapshots: Vec<SnapshotOf>,
}

#[derive(Deserialize)]
struct SnapshotOf {
    start_time: Number,
    end_time: Number,
    regions: Vec<RegionOf>,
}

#[derive(Deserialize)]
struct RegionOf {
    start: Number,
    end: Number,
    nr_accesses: Uses,
}

/// How often a region was found used; old files have the number alone.
#[derive(Deserialize)]
#[serde(untagged)]
enum Uses {
    Number(Number),
    Told {
        samples: Option<Number>,
        percent: Option<Number>,
    },
}

impl Uses {
    fn any(&self) -> Option<bool> {
        let is_used = |number: &Number| match number {
            Number::Float(number) => Some(*number > 0.0),
            Number::Text(text) if text.ends_with('%') => {
                let number: f64 = text.trim_end_matches('%').trim().parse().ok()?;
                Some(number > 0.0)
            }
            // One below none: a snapshot that damo made up.
            Number::Signed(number) if *number < 0 => Some(false),
            other => other.value().map(|number| number > 0),
        };
        match self {
            Uses::Number(number) => is_used(number),
            Uses::Told { samples, percent } => {
                samples.as_ref().or(percent.as_ref()).and_then(is_used)
            }
        }
    }
}

impl RegionOf {
    fn region(&self) -> Option<Region> {
        Some(Region {
            start: self.start.value()?,
            end: self.end.value()?,
            used: self.nr_accesses.any()?,
        })
    }
}

/// Whether a text begins like one.
pub fn looks_like(text: &str) -> bool {
    text.trim_start().starts_with('[') && text.contains("\"snapshots\"")
}

/// Reads one input.
pub fn read(
    mut input: Input,
    index: usize,
    told: &mut Told,
    report: &mut Report,
    watch: &mut Watch<'_>,
) -> Result<(), ImportError> {
    let name = input.name.clone();
    let wrong = |what: String| ImportError::Format(format!("{name}: JSON of DAMON: {what}"));
    let before = input.bytes();
    let records: Vec<RecordOf> =
        serde_json::from_reader(input.reader()).map_err(|error| wrong(error.to_string()))?;
    watch.line(input.bytes() - before)?;
    for record in records {
        let target = match &record.target_id {
            Some(Value::Number(number)) => number.to_string(),
            Some(Value::String(text)) => text.clone(),
            _ => String::new(),
        };
        for snapshot in record.snapshots {
            let (start, end) = (snapshot.start_time.value(), snapshot.end_time.value());
            let (Some(start), Some(end)) = (start, end) else {
                return Err(wrong(format!(
                    "a time that cannot be read, after {} regions",
                    report.lines
                )));
            };
            let mut regions = Vec::new();
            for region in &snapshot.regions {
                report.lines += 1;
                let place = Place {
                    input: index,
                    line: report.lines,
                };
                match region.region() {
                    Some(region) => regions.push(region),
                    None => report.skip(place, "a region whose place or count cannot be read"),
                }
            }
            told.target(&target).snapshots.push(Snapshot {
                start_ns: Some(start),
                end_ns: end,
                regions,
            });
        }
    }
    Ok(())
}
