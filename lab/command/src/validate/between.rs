//! Whether two CPUs are as far from each other as the description has them, all the time.

use vellum_calibrate::nearest_line;
use vellum_calibrate::rounds::shortened;
use vellum_results::validation::LineBetween;

use super::{Amounts, Request};
use crate::failure::Failure;

/// How much longer or shorter a line may take than described, as a share, before two CPUs count
/// as moved.
const MOVED: f64 = 0.25;

fn is_off(line: &LineBetween, ns: f64) -> bool {
    (ns / line.described_ns - 1.0).abs() > MOVED
}

/// Measures while the CPUs are where the description has them.
pub struct Between<'r> {
    request: &'r Request<'r>,
    found: Option<LineBetween>,
}

impl<'r> Between<'r> {
    pub fn new(request: &'r Request<'r>) -> Between<'r> {
        Between {
            request,
            found: None,
        }
    }

    /// Calls `measure`, and again if two CPUs were not as far from each other as described
    /// before it or after.
    pub fn measure<M>(
        &mut self,
        mut measure: impl FnMut() -> Result<M, Failure>,
    ) -> Result<M, Failure> {
        let most = Amounts::of(self.request.effort).tries;
        let mut tries = 1;
        loop {
            let before = self.is_off()?;
            let measured = measure()?;
            let is_off = before | self.is_off()?;
            let Some(found) = &mut self.found else {
                return Ok(measured);
            };
            match is_off {
                true if tries < most => found.put_away += 1,
                _ => {
                    found.kept += usize::from(is_off);
                    return Ok(measured);
                }
            }
            tries += 1;
        }
    }

    /// Whether a line takes another time now than described.
    fn is_off(&mut self) -> Result<bool, Failure> {
        let Some((key, time)) = nearest_line(self.request.effort)? else {
            return Ok(false);
        };
        let lines = &self.request.machine.lines;
        let described = match key {
            "cluster" => &lines.cluster,
            "socket" => &lines.socket,
            _ => &lines.board,
        };
        let Some(described) = described else {
            return Ok(false);
        };
        let ns = shortened(time.ns);
        let found = self.found.get_or_insert_with(|| LineBetween {
            key: format!("lines.{key}"),
            described_ns: described.ns,
            least_ns: ns,
            most_ns: ns,
            put_away: 0,
            kept: 0,
        });
        found.least_ns = found.least_ns.min(ns);
        found.most_ns = found.most_ns.max(ns);
        Ok(is_off(found, ns))
    }

    /// What was found; `None` on one core.
    pub fn found(self) -> Option<LineBetween> {
        self.found
    }
}

#[cfg(test)]
mod tests {
    use super::{LineBetween, is_off};

    #[test]
    fn a_line_is_off_if_it_takes_a_quarter_more_or_less_than_described() {
        let line = LineBetween {
            key: "lines.cluster".to_owned(),
            described_ns: 40.0,
            least_ns: 40.0,
            most_ns: 40.0,
            put_away: 0,
            kept: 0,
        };
        for (ns, expected) in [(31.0, false), (49.0, false), (51.0, true), (29.0, true)] {
            assert_eq!(is_off(&line, ns), expected, "{ns}");
        }
    }
}
