//! Dumps of `/proc/PID/smaps`.

use crate::common::{PAGE, accesses, count, import, programs, refusal};
use vellum_import::Format;
use vellum_trace::{Access, EventKind};

/// A dump has the mappings, and as many pages of each as it tells.
#[test]
fn a_dump_of_smaps_is_a_process_with_its_mappings_and_pages() {
    let text = "\
400000-404000 r-xp 00001000 fe:00 77                     /usr/bin/demo
Rss:                   8 kB
Anonymous:             0 kB
VmFlags: rd ex mr mw me
404000-406000 r--p 00005000 fe:00 77                     /usr/bin/demo
Rss:                   8 kB
Anonymous:             4 kB
7f0000000000-7f0000004000 rw-s 00000000 00:01 9          /memfd:shared (deleted)
Rss:                   8 kB
Shared_Dirty:          4 kB
Swap:                 12 kB
7ffe00000000-7ffe00021000 rw-p 00000000 00:00 0          [stack]
Rss:                   8 kB
Anonymous:             8 kB
ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0  [vsyscall]
Rss:                   4 kB
";
    let (format, imported, report) = import(text.as_bytes());
    assert_eq!(
        (format, report.skipped.len()),
        (Format::Smaps, 0),
        "{report:?}"
    );
    assert_eq!(programs(&imported), ["demo"]);
    let files = &imported.header().files;
    assert_eq!(files.len(), 2);
    assert_eq!(
        (files[0].name.as_str(), files[0].size),
        ("/usr/bin/demo", 0x7000)
    );
    let (read, write) = (Access::Read, Access::Write);
    let shared = 0x7f00_0000_0000;
    assert_eq!(
        accesses(&imported),
        [
            (0x40_0000, read),
            (0x40_1000, read),
            (0x40_4000, write),
            (0x40_5000, read),
            (shared, write),
            (shared + PAGE, read),
            (0x7ffe_0001_f000, write),
            (0x7ffe_0002_0000, write),
        ]
    );
    // What was written once may no longer be.
    let taken_away = |kind: &EventKind| matches!(kind, EventKind::Protect { address: 0x40_4000, length: 0x2000, prot } if prot.0 == 1);
    assert_eq!(count(&imported, taken_away), 1);
    let notes = report.notes.join("\n");
    assert!(notes.contains("4 mappings with 32 KiB"), "{notes}");
    assert!(notes.contains("12 KiB more are in swap"), "{notes}");
}

#[test]
fn a_dump_of_smaps_with_more_pages_than_memory_has_is_refused() {
    let text = "10000000000-7f0000000000 rw-p 00000000 00:00 0\nRss: 99999999999999 kB\n\
                Anonymous: 99999999999999 kB\n";
    let error = refusal(text.as_bytes());
    assert!(error.contains("at most 16777216"), "{error}");
}

#[test]
fn two_processes_in_one_dump_of_smaps_are_told() {
    let one = "400000-404000 r-xp 00000000 fe:00 77 /usr/bin/demo\nRss: 8 kB\n";
    let text = format!("{one}{}", one.repeat(30));
    let error = refusal(text.as_bytes());
    assert!(error.contains("give each a file"), "{error}");
}
