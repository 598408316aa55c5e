//! What entering the kernel costs, whatever is then done there.
//!
//! Three figures that bound it:
//! * `getppid`, a system call that does nothing;
//! * a page fault that the kernel answers at once: a call into the vsyscall page
//!   of x86-64 (where that page exists);
//! * the read fault of the program where the table is there already.

use std::fmt;
use std::io::{self, Write};
use std::str::FromStr;

use vellum_calibrate::entry;

use super::sys::{self, Mapping};

/// Rounds of which each figure is the median.
const ROUNDS: usize = 51;

/// Calls in a round.
const CALLS: u64 = 500;

/// Costs of entering the kernel and returning, in nanoseconds.
#[derive(Clone, Copy, PartialEq, Debug, Default, serde::Serialize)]
pub struct TrapCost {
    /// A system call that does nothing.
    pub syscall_ns: f64,
    /// A page fault that is answered at once; none where there is no such fault.
    pub fault_ns: Option<f64>,
    /// A read fault on private anonymous memory whose table exists.
    pub table_there_ns: f64,
}

impl fmt::Display for TrapCost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fault = self.fault_ns.unwrap_or(-1.0);
        write!(f, "{} {fault} {}", self.syscall_ns, self.table_there_ns)
    }
}

impl FromStr for TrapCost {
    type Err = ();

    fn from_str(line: &str) -> Result<Self, ()> {
        let mut figures = line.split(' ').map(|figure| figure.parse().map_err(drop));
        let mut next = || figures.next().ok_or(())?;
        let (syscall_ns, fault_ns, table_there_ns): (f64, f64, f64) = (next()?, next()?, next()?);
        Ok(TrapCost {
            syscall_ns,
            fault_ns: (fault_ns >= 0.0).then_some(fault_ns),
            table_there_ns,
        })
    }
}

/// Measures in this process, and writes one line.
///
/// # Errors
/// A system call failed.
pub fn run(out: &mut impl Write) -> io::Result<()> {
    let cost = TrapCost {
        syscall_ns: median_of_calls(entry::null_call),
        fault_ns: entry::answered_fault().map(median_of_calls),
        table_there_ns: table_there()?,
    };
    writeln!(out, "{cost}")
}

fn median_of_calls(mut call: impl FnMut()) -> f64 {
    let round = |_| {
        let begun = sys::now_ns();
        for _ in 0..CALLS {
            call();
        }
        (sys::now_ns() - begun) as f64 / CALLS as f64
    };
    let rounds: Vec<f64> = (0..ROUNDS).map(round).collect();
    crate::stats::median(&rounds).unwrap_or(0.0)
}

/// Read faults on the pages of one table after the first.
fn table_there() -> io::Result<f64> {
    let (page, span) = (sys::page_bytes(), sys::table_span());
    let mut rounds = Vec::with_capacity(ROUNDS);
    for _ in 0..ROUNDS {
        let mapping = Mapping::private(span, span, false)?;
        mapping.touch(0, false);
        let begun = sys::now_ns();
        for offset in (page..span).step_by(page) {
            mapping.touch(offset, false);
        }
        rounds.push((sys::now_ns() - begun) as f64 / (span / page - 1) as f64);
    }
    Ok(crate::stats::median(&rounds).unwrap_or(0.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_are_measured_and_read_back() {
        let mut line = Vec::new();
        run(&mut line).expect("measured");
        let line = String::from_utf8(line).expect("text");
        let cost: TrapCost = line.trim_end().parse().expect("a line of figures");
        assert!(cost.syscall_ns > 0.0, "{line}");
        assert!(cost.table_there_ns > 0.0, "{line}");
        assert!(cost.fault_ns.is_none_or(|fault| fault > 0.0), "{line}");
    }

    #[test]
    fn a_figure_that_could_not_be_measured_stays_absent() {
        let cost = TrapCost {
            syscall_ns: 100.5,
            fault_ns: None,
            table_there_ns: 300.25,
        };
        assert_eq!(cost.to_string().parse(), Ok(cost));
    }
}
