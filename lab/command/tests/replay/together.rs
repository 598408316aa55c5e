//! Several shipped traces replayed at the same time.

use std::collections::HashSet;
use std::path::Path;

use vellum_lab::bench::host::sdet::SHIPPED;
use vellum_lab::replay::{Options, Together, prepare_events};
use vellum_testing::Scratch;
use vellum_trace::cut::{Copier, Selection};
use vellum_trace::{EventKind, TraceReader, TraceWriter};

fn scripts(count: usize) -> Vec<TraceReader> {
    let traces = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../traces");
    let open = |name: &&str| TraceReader::open(traces.join(name)).expect("it is shipped");
    SHIPPED[..count].iter().map(open).collect()
}

#[test]
fn scripts_together_keep_their_tasks_and_share_what_none_of_them_changes() {
    let traces = scripts(3);
    let all: Vec<&TraceReader> = traces.iter().collect();
    let together = Together::of(&all).expect("readable");
    let header = together.header();
    let sum = |of: fn(&TraceReader) -> usize| traces.iter().map(of).sum::<usize>();
    assert_eq!(header.tasks.len(), sum(|t| t.header().tasks.len()));
    assert!(header.files.len() < sum(|t| t.header().files.len()));
    let named = |name: &str| {
        let files = header.files.iter();
        files.filter(|file| file.name.ends_with(name)).count()
    };
    assert_eq!(named("/libc.so.6"), 1, "the C library is one file");
    let (mut last, mut events, mut changed) = (0, 0, HashSet::new());
    for event in together.events() {
        let event = event.expect("readable");
        assert!(event.time_us >= last, "in order of time");
        (last, events) = (event.time_us, events + 1);
        match event.kind {
            EventKind::Create { child, .. } => {
                let parent = header.tasks[child.0 as usize].parent;
                assert_eq!(parent, Some(event.task));
            }
            EventKind::Exec { name } => assert!(!header.strings[name as usize].is_empty()),
            EventKind::FileWrite { file, .. } | EventKind::Truncate { file, .. } => {
                changed.insert((file, root_of(header, event.task.0)));
            }
            _ => {}
        }
    }
    assert_eq!(events, header.events);
    let files: HashSet<_> = changed.iter().map(|(file, _)| file).collect();
    assert_eq!(files.len(), changed.len(), "no two scripts change one file");
    let workload = prepare_events(header, || together.events(), &Options::default());
    assert_eq!(workload.expect("consistent").events(), events);
}

#[test]
fn what_was_there_when_recordings_began_comes_first() {
    let scratch = Scratch::new("together-beginnings");
    let whole = &scripts(1)[0];
    let middle = whole.header().duration_us / 2;
    let cut = |name: &str| {
        let path = scratch.path(name);
        let mut writer = TraceWriter::create(&path, 1).expect("created");
        let selection = Selection {
            root: None,
            from_us: middle,
            to_us: u64::MAX,
        };
        let mut copier = Copier::silent(whole.header(), selection, &mut writer);
        for event in whole.events() {
            copier.take(&event.expect("readable")).expect("written");
        }
        copier.finish();
        writer.finish().expect("written");
        TraceReader::open(&path).expect("it is whole")
    };
    let traces = [cut("one.vellum"), cut("two.vellum")];
    let own = traces[0].header().beginning;
    assert!(own > 100, "{own}");
    let together = Together::of(&[&traces[0], &traces[1]]).expect("readable");
    assert_eq!(together.header().beginning, 2 * own);
    let tasks = traces[0].header().tasks.len() as u32;
    let first = together.events().take(2 * own as usize);
    let of_second = first.filter(|event| event.as_ref().expect("readable").task.0 >= tasks);
    assert_eq!(of_second.count() as u64, own);
}

/// The first task of the script that `task` belongs to.
fn root_of(header: &vellum_trace::Header, mut task: u32) -> u32 {
    while let Some(parent) = header.tasks[task as usize].parent {
        task = parent.0;
    }
    task
}
