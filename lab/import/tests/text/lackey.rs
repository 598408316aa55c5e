//! Text of valgrind's lackey.

use crate::common::{faults, fixture, import};
use vellum_trace::{Access, EventKind};

#[test]
fn lackey_accesses_become_faults_on_inferred_mappings() {
    let (_, imported, report) = import(&fixture("lackey.txt"));
    assert_eq!(imported.header().environment.command, ["./tiny"]);
    // `fixtures/tiny.c`: of 64 mapped pages every second is read and every
    // fourth is written after that; 5 pages of bss are read, then written; 2
    // pages of constants are read; 16 pages of heap and the stack are written.
    let all = faults(&imported);
    let faults = |wanted: Access, was_present: bool| {
        let like = all
            .iter()
            .filter(|fault| (fault.access, fault.present) == (wanted, was_present));
        like.count()
    };
    assert_eq!(faults(Access::Write, true), 16 + 5);
    assert_eq!(faults(Access::Read, false), 32 + 5 + 2);
    assert_eq!(faults(Access::Write, false), 16 + 1);
    assert_eq!(faults(Access::Execute, false), 1);
    assert!(report.notes.iter().any(|note| note.contains("inferred")));
    let first = imported.events().first().map(|event| event.kind);
    assert!(matches!(first, Some(EventKind::Exec { .. })));
}
