//! Accessed marks of a program that uses less than it has, as a recording samples them.
//!
//! Where perf events are not permitted, or the kernel shows no accessed marks, the test says so
//! and passes.

use std::fs;
use std::hint::black_box;
use std::time::Duration;

use vellum_record::{Marks, Options, Target, check_permission, record};
use vellum_terminal::progress::Interrupt;
use vellum_testing::{Scratch, recording_permitted};
use vellum_trace::{AccessMarks, EventKind, TraceReader};

const PAGE: u64 = 4096;

/// Pages that the program has, and those that it goes on using.
const PAGES: u64 = 2048;
const USED: u64 = 256;

/// Names the file to which the program that is recorded writes where its memory is.
const PLACE: &str = "VELLUM_ACCESSES_PLACE";

/// The program, when this file is started by the test below; nothing otherwise.
#[test]
fn program_that_goes_on_using_a_part_of_its_memory() {
    let Ok(place) = std::env::var(PLACE) else {
        return;
    };
    let mut memory = vec![0u8; (PAGES * PAGE) as usize];
    for page in memory.chunks_mut(PAGE as usize) {
        page[0] = 1;
    }
    fs::write(place, format!("{}", memory.as_ptr() as u64 / PAGE)).unwrap();
    for _ in 0..100 {
        for page in memory.chunks(PAGE as usize).take(USED as usize) {
            black_box(page[0]);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn samples_tell_what_a_program_goes_on_using_from_what_it_has() {
    if !recording_permitted(check_permission()) {
        return;
    }
    let marks = match Marks::find() {
        Ok(marks) => marks.tell(),
        Err(why) => {
            println!("skipped: {why}");
            return;
        }
    };
    let scratch = Scratch::new("record-accesses");
    let (output, place) = (scratch.path("t.vellum"), scratch.path("place"));
    let this = std::env::current_exe().unwrap();
    let name = "program_that_goes_on_using_a_part_of_its_memory";
    let place_is = format!("{PLACE}={place}");
    let words = ["env", &place_is, this.to_str().unwrap(), "--exact", name];
    let command = Target::Command(words.iter().map(Into::into).collect());
    let options = Options {
        accesses: Some(Duration::from_millis(20)),
        ..Options::new(command, output.clone().into())
    };
    let recording = record(&options, &Interrupt::manual()).unwrap();
    assert_eq!(recording.exit_code, 0);
    let first: u64 = fs::read_to_string(&place).unwrap().parse().unwrap();
    let trace = TraceReader::open(&output).unwrap();
    let accesses = trace.header().accesses.expect("the header says so");
    assert_eq!((accesses.interval_us, accesses.marks), (20_000, marks));
    // Pages of the program's memory in each sample that has any of them.
    let mut samples: Vec<(u64, u64)> = Vec::new();
    for event in trace.events_and_accesses() {
        let event = event.unwrap();
        let EventKind::Accessed { address, length } = event.kind else {
            continue;
        };
        let (from, to) = (address / PAGE, (address + length) / PAGE);
        let inside = to.min(first + PAGES).saturating_sub(from.max(first));
        match samples.last_mut() {
            Some((time_us, pages)) if *time_us == event.time_us => *pages += inside,
            _ => samples.push((event.time_us, inside)),
        }
    }
    // A region that the allocator shares may have a few pages more.
    let about = |pages: u64, wanted: u64| pages.abs_diff(wanted) <= wanted / 4;
    assert!(
        samples.iter().any(|(_, pages)| about(*pages, USED)),
        "{samples:?} by {marks:?}"
    );
    assert!(samples.iter().all(|(_, pages)| *pages <= PAGES));
    let invisible = trace.header().invisible.join(" ");
    assert!(invisible.contains("between two samples"), "{invisible}");
    let of_regions = invisible.contains("lowest addresses");
    assert_eq!(of_regions, marks == AccessMarks::Regions);
}
