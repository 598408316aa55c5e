//! What DAMON saw, in each of the forms in which it is kept.

use std::io::Write;

use crate::common::{Fault, PAGE, count, faults, import, mappings, refusal};
use flate2::Compression;
use flate2::write::ZlibEncoder;
use vellum_import::{Format, Imported};
use vellum_trace::{Access, AccessMarks, EventKind};

const HEAP: u64 = 0x5555_0000_0000;
const STACK: u64 = 0x7fff_0000_0000;

/// An interval that ends at a second, and regions: first page of the heap, pages, count.
type Interval<'a> = (u64, &'a [(u64, u64, u64)]);

/// Three intervals of a second in which the heap is used more and more, then less.
const INTERVALS: [Interval<'static>; 3] = [
    (1, &[(0, 2, 3), (2, 6, 0)]),
    (2, &[(0, 4, 1), (4, 4, 2)]),
    (3, &[(0, 1, 20), (1, 7, 0)]),
];

/// The text of `damo report raw`.
fn report() -> String {
    let mut text = "base_time_absolute: 8 m 59.809 s\ndata source: unknown\n\n".to_owned();
    for (end, regions) in INTERVALS {
        let start = if end == 1 {
            "0 ns".to_owned()
        } else {
            format!("{}.000 s", end - 1)
        };
        text += &format!(
            "monitoring_start: {start}\nmonitoring_end: {end}.000 s\nmonitoring_duration: 1.000 s\n\
             target_id: 77\nnr_regions: {}\n# start_addr     end_addr  length  nr_accesses   age\n",
            regions.len()
        );
        for &(first, pages, used) in regions {
            let (start, end) = (HEAP + first * PAGE, HEAP + (first + pages) * PAGE);
            text += &format!(
                "{start:x}-{end:x} ({:8.3} KiB)  {used}  -1\n",
                pages as f64 * 4.0
            );
        }
        text.push('\n');
    }
    text
}

/// The JSON of `damo record`.
fn json() -> String {
    let snapshot = |(end, regions): &Interval<'_>| {
        let region = |(first, pages, used): &(u64, u64, u64)| {
            let (start, end) = (HEAP + first * PAGE, HEAP + (first + pages) * PAGE);
            format!(
                "{{\"start\": \"{start}\", \"end\": {end}, \"nr_accesses\": {{\"samples\": {used}, \
                 \"percent\": null}}, \"age\": {{\"usec\": null, \"aggr_intervals\": null}}}}"
            )
        };
        let regions: Vec<String> = regions.iter().map(region).collect();
        format!(
            "{{\"start_time\": \"{},000,000,000\", \"end_time\": \"{end} s\", \"regions\": [{}]}}",
            end - 1,
            regions.join(", ")
        )
    };
    let snapshots: Vec<String> = INTERVALS.iter().map(snapshot).collect();
    format!(
        "[{{\"target_id\": 77, \"intervals\": null, \"snapshots\": [{}]}}]\n",
        snapshots.join(",\n")
    )
    .replace("\"0,000", "\"0000")
}

/// The kernel's events, as perf or ftrace print them.
fn events(before: &str, name: &str) -> String {
    let mut text = String::new();
    for (end, regions) in INTERVALS {
        for (at, &(first, pages, used)) in regions.iter().enumerate() {
            let (start, stop) = (HEAP + first * PAGE, HEAP + (first + pages) * PAGE);
            text += &format!(
                "{before} {end}.00000{at}: {name}: target_id=77 nr_regions={} {start}-{stop}: {used} 9\n",
                regions.len()
            );
        }
    }
    text
}

/// Samples: time, page of the heap, pages.
fn samples(imported: &Imported) -> Vec<(u64, u64, u64)> {
    let samples = imported.accesses().iter().map(|sample| match sample.kind {
        EventKind::Accessed { address, length } => {
            (sample.time_us, (address - HEAP) / PAGE, length / PAGE)
        }
        other => panic!("{other:?}"),
    });
    samples.collect()
}

#[test]
fn each_form_becomes_the_same_samples_and_first_touches() {
    let texts = [
        (report(), 0),
        (json(), 0),
        (
            events("kdamond.0 4597 [005]", "damon:damon_aggregated"),
            1_000_000,
        ),
        (
            events("kdamond.0-4597 [005] d..1.", "damon_aggregated"),
            1_000_000,
        ),
    ];
    for (text, late_us) in texts {
        let (format, imported, report) = import(text.as_bytes());
        assert_eq!((format, report.skips()), (Format::Damon, 0), "{report:?}");
        // The kernel's events tell the end of the first interval only: there the trace begins.
        let at = |seconds: u64| seconds * 1_000_000 - late_us;
        assert_eq!(mappings(&imported), [(HEAP, 8, 3)]);
        assert_eq!(
            samples(&imported),
            [(at(1), 0, 2), (at(2), 0, 8), (at(3), 0, 1)],
            "{text}"
        );
        let touched: Vec<(u64, u64)> = faults(&imported)
            .iter()
            .map(|fault| (fault.time_us, (fault.address - HEAP) / PAGE))
            .collect();
        let pages = (0..8).map(|page| (if page < 2 { at(1) } else { at(2) }, page));
        assert!(touched.iter().copied().eq(pages), "{touched:?}");
        let sampled = imported.header().accesses.unwrap();
        assert_eq!(
            (sampled.interval_us, sampled.marks),
            (1_000_000, AccessMarks::Regions)
        );
        assert_eq!(imported.header().tasks[0].pid, 77);
        assert!(
            report.notes[0].contains("one page of each region"),
            "{report:?}"
        );
    }
}

#[test]
fn a_file_of_damo_is_compressed() {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(json().as_bytes()).unwrap();
    let packed = encoder.finish().unwrap();
    let (format, imported, _) = import(&packed);
    assert_eq!((format, samples(&imported).len()), (Format::Damon, 3));
    let error = refusal(&packed[..packed.len() / 2]);
    assert!(error.contains("text"), "{error}");
}

#[test]
fn targets_are_processes_of_their_own_at_one_time() {
    let mut text = report();
    let other = report()
        .replace("target_id: 77", "target_id: 78")
        .replace("5555", "7fff");
    text.push_str(&other);
    let (_, imported, report) = import(text.as_bytes());
    assert_eq!(report.skipped, []);
    assert_eq!(imported.header().tasks.len(), 2);
    assert_eq!(mappings(&imported), [(HEAP, 8, 3), (STACK, 8, 3)]);
    assert_eq!(count(&imported, |kind| *kind == EventKind::Exit), 2);
    let first = Fault {
        time_us: 1_000_000,
        task: 0,
        address: HEAP,
        access: Access::Write,
        present: false,
    };
    assert_eq!(faults(&imported)[0], first);
    let times: Vec<u64> = imported
        .accesses()
        .iter()
        .map(|sample| sample.time_us)
        .collect();
    assert!(times.is_sorted() && times.len() == 6, "{times:?}");
}

#[test]
fn addresses_of_the_machine_are_noted() {
    let text = report().replace("5555", "1");
    let (_, _, report) = import(text.as_bytes());
    assert!(
        report.notes.iter().any(|note| note.contains("paddr")),
        "{report:?}"
    );
}

#[test]
fn what_was_never_used_or_cannot_be_read_is_an_error() {
    let unused = report()
        .replace("  3  -1", "  0  -1")
        .replace("  1  -1", "  0  -1");
    let unused = unused
        .replace("  2  -1", "  0  -1")
        .replace("  20  -1", "  0  -1");
    let error = refusal(unused.as_bytes());
    assert!(error.contains("nothing to import"), "{error}");
    let whole = json();
    let error = refusal(&whole.as_bytes()[..whole.len() - 40]);
    assert!(
        error.contains("JSON of DAMON") && error.contains("line 3"),
        "{error}"
    );
    let error = refusal(whole.replace("\"end_time\"", "\"time\"").as_bytes());
    assert!(error.contains("end_time"), "{error}");
    let huge = report()
        .replace("(   8.000 KiB)", "(8 TiB)")
        .replace("555500002000 ", "7fff00000000 ");
    let error = refusal(huge.as_bytes());
    assert!(error.contains("at most 16777216"), "{error}");
}

#[test]
fn lines_that_are_cut_off_are_counted() {
    let text = report() + "monitoring_end: 4.0\n";
    let (_, imported, report) = import(text.as_bytes());
    assert_eq!(samples(&imported).len(), 3);
    assert_eq!(report.skips(), 1);
    let text = text + "555500000000-555500002000 (   8.0\n";
    let (_, _, report) = import(text.as_bytes());
    let last_two = report.skipped[0].first.iter().map(|place| place.line);
    assert!(last_two.eq([report.lines - 1, report.lines]), "{report:?}");
}
