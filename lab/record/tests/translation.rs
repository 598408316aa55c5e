//! What single records of the kernel come to in a trace.

use vellum_record::{Body, Mmap, Noticed, Record, Sample, Sink, Translator, number};
use vellum_trace::{Event, EventKind, Header, TraceError};

/// Keeps events.
#[derive(Default)]
struct Kept {
    header: Header,
    events: Vec<EventKind>,
}

impl Sink for Kept {
    fn header_mut(&mut self) -> &mut Header {
        &mut self.header
    }

    fn push(&mut self, event: &Event) -> Result<(), TraceError> {
        self.events.push(event.kind);
        Ok(())
    }
}

const TASK: u32 = 70;

/// The events of records of one task.
fn translated(bodies: &[Body<'_>]) -> (Kept, Noticed) {
    let mut kept = Kept::default();
    let mut translator = Translator::of_everyone(&mut kept);
    for (time_ns, body) in (0..).zip(bodies) {
        let record = Record {
            time_ns,
            pid: TASK,
            tid: TASK,
            body: body.clone(),
        };
        translator.take(&record).unwrap();
    }
    let noticed = translator.finish(None);
    (kept, noticed)
}

fn mapping(address: u64, inode: u64, name: &[u8]) -> Body<'_> {
    Body::Mmap(Mmap {
        address,
        length: 1 << 20,
        offset: 0,
        major: 0,
        minor: 1,
        inode,
        prot: 3,
        flags: libc::MAP_SHARED as u32,
        name,
    })
}

fn call(number: u64, args: [u64; 6], result: u64) -> [Body<'static>; 2] {
    [
        Body::Event(Sample::Enter { number, args }),
        Body::Event(Sample::Exit { number, result }),
    ]
}

#[test]
fn the_first_segment_of_shared_memory_is_a_file() {
    let attach = |address, inode| {
        let [begin, end] = call(number::SHMAT, [0; 6], address);
        [begin, mapping(address, inode, b"/SYSV00000000"), end]
    };
    let mut bodies = Vec::from(attach(0x1000_0000, 0));
    bodies.extend(attach(0x2000_0000, 1));
    bodies.extend(call(number::SHMDT, [0x1000_0000, 0, 0, 0, 0, 0], 0));
    bodies.extend(call(number::SHMDT, [0x2000_0000, 0, 0, 0, 0, 0], 0));
    let (kept, _) = translated(&bodies);
    assert_eq!(kept.header.files.len(), 2);
    let maps = |kind: &&EventKind| {
        matches!(
            kind,
            EventKind::Map {
                file: Some(_),
                shared: true,
                ..
            }
        )
    };
    let unmaps = |kind: &&EventKind| {
        matches!(
            kind,
            EventKind::Unmap {
                length: 0x10_0000,
                ..
            }
        )
    };
    assert_eq!(kept.events.iter().filter(maps).count(), 2);
    assert_eq!(kept.events.iter().filter(unmaps).count(), 2);
}

#[test]
fn protection_with_a_key_is_protection() {
    let args = [0x1000_0000, 0x2000, 3, u64::MAX, 0, 0];
    let (kept, _) = translated(&call(number::PKEY_MPROTECT, args, 0));
    let [
        EventKind::Protect {
            length: 0x2000,
            prot,
            ..
        },
    ] = kept.events[..]
    else {
        panic!("{:?}", kept.events);
    };
    assert_eq!(prot.0, 3);
}

#[test]
fn calls_of_programs_of_32_bits_are_not_taken_for_others_and_are_counted() {
    let exec = Body::Comm {
        name: b"old",
        exec: true,
    };
    // `unlink` has the number of `mprotect`, and `execve` that of `munmap`.
    let calls: Vec<Body<'_>> = [number::MPROTECT, number::MUNMAP]
        .into_iter()
        .flat_map(|number| call(number, [0x1000_0000, 0x1000, 1, 0, 0, 0], 0))
        .collect();
    for (stack, events, programs) in [(0xffd0_0000, 2, 1), (0x7ffd_0000_0000, 4, 0)] {
        let mut bodies = vec![exec.clone(), mapping(stack, 0, b"[stack]")];
        bodies.extend(calls.clone());
        let (kept, noticed) = translated(&bodies);
        assert_eq!(kept.events.len(), events, "{:?}", kept.events);
        assert_eq!(noticed.unseen.narrow, programs);
    }
}
