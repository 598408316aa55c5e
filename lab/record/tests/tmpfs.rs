//! Reads and writes of files on a tmpfs, as a recording sees them.
//!
//! Where perf events are not permitted, or no tmpfs is at the usual place, the test says
//! so and passes; with `VELLUM_REQUIRE_PERF=1` in the environment missing permission is a
//! failure.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;

use vellum_record::{Options, Target, check_permission, record};
use vellum_terminal::progress::Interrupt;
use vellum_testing::{Scratch, recording_permitted};
use vellum_trace::{EventKind, TraceReader};

/// Writes `one` in three blocks and a tail, reads a part of its middle, copies it to `two`
/// inside the kernel where that can be done, and writes to both by their descriptors.
const SCRIPT: &str = "cd \"$1\" && dd if=/dev/zero of=one bs=4096 count=3 status=none && \
    printf abcde >> one && dd if=one of=/dev/null bs=1000 skip=4 count=2 status=none && \
    cp one two && dd if=/dev/zero of=two bs=512 seek=3 count=1 conv=notrunc status=none && \
    cat one > /dev/null && : < one";

const SHARED: &str = "/dev/shm";

/// A directory on a tmpfs that is removed with all that is in it.
struct OnTmpfs(String);

impl OnTmpfs {
    fn new() -> Option<Self> {
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
        let on_tmpfs = mounts.lines().any(|line| {
            let mut words = line.split(' ').skip(1);
            words.next() == Some(SHARED) && words.next() == Some("tmpfs")
        });
        let path = format!("{SHARED}/vellum-record-{}", std::process::id());
        (on_tmpfs && fs::create_dir(&path).is_ok()).then_some(Self(path))
    }

    fn inode(&self, file: &str) -> u64 {
        fs::metadata(format!("{}/{file}", self.0)).unwrap().ino()
    }
}

impl Drop for OnTmpfs {
    fn drop(&mut self) {
        // Nothing depends on it: it is in memory.
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn every_byte_that_calls_move_to_and_from_a_tmpfs_is_in_the_trace() {
    if !recording_permitted(check_permission()) {
        return;
    }
    let Some(place) = OnTmpfs::new() else {
        println!("skipped: no tmpfs at {SHARED}");
        return;
    };
    let scratch = Scratch::new("record-tmpfs");
    let output = scratch.path("t.vellum");
    let command = ["sh", "-c", SCRIPT, "sh", &place.0];
    let command = Target::Command(command.iter().map(Into::into).collect());
    let options = Options::new(command, output.clone().into());
    let recording = record(&options, &Interrupt::manual()).unwrap();
    assert_eq!(recording.exit_code, 0);
    let trace = TraceReader::open(&output).unwrap();
    let header = trace.header();
    let note = header.invisible.iter().find(|note| note.contains("tmpfs"));
    let note = note.expect("what is seen of tmpfs is said");
    if note.contains("do not show (") {
        println!("skipped: {note}");
        return;
    }
    // By inode: writes and reads, as ranges.
    let mut moved: BTreeMap<(u64, bool), Vec<(u64, u64)>> = BTreeMap::new();
    for event in trace.events() {
        let (file, write, range) = match event.unwrap().kind {
            EventKind::FileWrite {
                file,
                offset,
                length,
            } => (file, true, (offset, offset + length)),
            EventKind::FileRead {
                file,
                offset,
                length,
            } => (file, false, (offset, offset + length)),
            _ => continue,
        };
        let inode = header.files[file.0 as usize].inode;
        moved.entry((inode, write)).or_default().push(range);
    }
    let (one, two) = (place.inode("one"), place.inode("two"));
    let end = 3 * 4096 + 5;
    assert_eq!(
        moved[&(one, true)],
        [(0, 4096), (4096, 8192), (8192, 12288), (12288, end)]
    );
    let reads = &moved[&(one, false)];
    assert_eq!(reads[..2], [(4000, 5000), (5000, 6000)]);
    let whole = reads[2..]
        .iter()
        .filter(|range| **range == (0, end))
        .count();
    assert_eq!(whole, 2, "by cp and by cat: {reads:?}");
    assert_eq!(moved[&(two, true)], [(0, end), (1536, 2048)]);
    assert!(!moved.contains_key(&(two, false)));
    let sizes = header
        .files
        .iter()
        .filter(|file| [one, two].contains(&file.inode));
    assert!(
        sizes.map(|file| file.size).all(|size| size == 0),
        "they were made"
    );
}
