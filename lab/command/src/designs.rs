//! Workloads for designs that execute the same operations.

use std::path::PathBuf;

use vellum_engine::{Pages, fault_around_of, gives, pages_of};
use vellum_terminal::progress::Style;
use vellum_terminal::text;
use vellum_trace::TraceReader;

use crate::built_in::has_engines;
use crate::failure::{Failure, OrFail};
use crate::replay::{Options, Together, Workload, prepare_events};

/// Traces prepared to run at the same time on all of `designs`, which execute the
/// same operations: `options` with the pages that all of them have, and with the
/// largest of their fault-around windows, so that what any of them explains is
/// explained.
///
/// # Errors
/// A design is refused, or a trace cannot be read or prepared.
pub(crate) fn load(
    paths: &[PathBuf],
    designs: &[String],
    options: Options,
    style: Style,
) -> Result<(Vec<TraceReader>, Workload), Failure> {
    let pages = common_pages(designs)?;
    let traces: Vec<TraceReader> = paths
        .iter()
        .map(|path| TraceReader::open(path).blame_input())
        .collect::<Result<_, _>>()?;
    if style != Style::Quiet {
        let copies = text::plural(options.copies as usize, "copy", "copies");
        let what = match paths {
            [path] => path.display().to_string(),
            several => format!("{} traces", several.len()),
        };
        eprintln!("preparing {copies} of {what}");
    }
    let windows = designs.iter().map(|design| fault_around(design));
    let windows = windows.collect::<Result<Vec<u64>, Failure>>()?;
    let options = Options {
        fault_around: windows.into_iter().max().unwrap_or(1),
        pages,
        ..options
    };
    let all: Vec<&TraceReader> = traces.iter().collect();
    let together = Together::of(&all).blame_input()?;
    let workload = prepare_events(together.header(), || together.events(), &options);
    let workload = workload.blame_input()?;
    drop(together);
    Ok((traces, workload))
}

/// The pages that all of `designs` have, in the smallest of their address spaces.
///
/// # Errors
/// A design is refused, or one has pages of another size than the others.
pub(crate) fn common_pages(designs: &[String]) -> Result<Pages, Failure> {
    let of = |design: &String| {
        let pages = has_engines(design).and_then(|()| pages_of(design));
        pages.map_err(|error| Failure::usage(error.to_string()))
    };
    let mut common: Option<Pages> = None;
    for design in designs {
        let pages = of(design)?;
        let so_far = common.get_or_insert(pages);
        if so_far.shift != pages.shift {
            return Err(Failure::usage(format!(
                "one design has pages of {} KiB, another of {}: the same operations run only on \
                 formats with pages of one size (`vellum replay` takes each by itself)",
                1 << (so_far.shift - 10),
                1 << (pages.shift - 10),
            )));
        }
        so_far.user_end = so_far.user_end.min(pages.user_end);
    }
    Ok(common.unwrap_or(Pages::X86_64))
}

/// The design with pages that may leave, unless it says otherwise.
pub(crate) fn with_reclaim(design: &str) -> String {
    match design {
        design if gives(design, "reclaim") => design.to_owned(),
        "" => "reclaim=on".to_owned(),
        design => format!("{design},reclaim=on"),
    }
}

/// The fault-around window of `design` in pages.
///
/// # Errors
/// The design is refused.
pub(crate) fn fault_around(design: &str) -> Result<u64, Failure> {
    fault_around_of(design).map_err(|error| Failure::usage(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reclaim_is_added_to_a_design_that_does_not_name_it() {
        assert_eq!(with_reclaim(""), "reclaim=on");
        assert_eq!(with_reclaim("rmap=pv"), "rmap=pv,reclaim=on");
        assert_eq!(with_reclaim("reclaim=off"), "reclaim=off");
        let blanks = ["rmap=pv, reclaim=off", "rmap=pv reclaim=off"];
        assert_eq!(blanks.map(with_reclaim), blanks);
    }
}
