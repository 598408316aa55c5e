//! `vellum record` as a user meets it.

use std::process::Command;

use crate::command::{Scratch, printed, recording_permitted};
use vellum_trace::{EventKind, TraceReader};

/// Unmounts tracefs in a mount namespace of its own, and notes what a command sees
/// of the mounts and of its open files, unrecorded and recorded.
const WITHOUT_TRACEFS: &str = "umount -a -t tracefs; ! grep ' tracefs ' /proc/self/mounts && \
    look='cat /proc/self/mounts; ls /proc/self/fd' && sh -c \"$look\" > before && \
    exec \"$0\" record -o t.vellum -- sh -c \"$look\" > during";

#[test]
fn root_records_without_a_mounted_tracefs_and_nobody_sees_a_mount() {
    // SAFETY: takes nothing and cannot fail.
    if !recording_permitted() || unsafe { libc::geteuid() } != 0 {
        eprintln!("SKIPPED: this needs the right to record, and root");
        return;
    }
    let scratch = Scratch::new("record-unmounted");
    let mut unshare = Command::new("unshare");
    unshare.args([
        "-m",
        "sh",
        "-c",
        WITHOUT_TRACEFS,
        env!("CARGO_BIN_EXE_vellum"),
    ]);
    let output = unshare.current_dir(scratch.directory()).output().unwrap();
    let messages = printed(&output);
    assert!(output.status.success(), "{messages}");
    assert!(messages.contains("for this process alone"), "{messages}");
    let file = |name| std::fs::read_to_string(scratch.path(name)).unwrap();
    assert!(file("before").contains("/proc"));
    assert_eq!(file("before"), file("during"));
    let trace = TraceReader::open(scratch.path("t.vellum")).unwrap();
    let kinds = trace.events().map(|event| event.unwrap().kind);
    let executed = kinds.filter(|kind| matches!(kind, EventKind::Exec { .. }));
    assert_eq!(executed.count(), 3, "sh, cat, ls");
}
