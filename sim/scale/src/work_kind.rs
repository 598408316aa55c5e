//! Which kind of operation something is, for what lies between its accesses.

use vellum_description::WorkKind;
use vellum_engine::op::{Call, Op};

/// The kind of an operation; none if it is of no kind that is calibrated.
pub(crate) fn kind_of(op: &Op) -> Option<WorkKind> {
    match op {
        // Most frames are allocated by faults.
        Op::Touch { .. } | Op::Call(Call::Frames { .. }) => Some(WorkKind::Fault),
        Op::Map { .. }
        | Op::Unmap { .. }
        | Op::Protect { .. }
        | Op::Remap { .. }
        | Op::Brk { .. }
        | Op::Advise { .. } => Some(WorkKind::Map),
        Op::Create { .. } | Op::Fork { .. } | Op::Share { .. } => Some(WorkKind::Fork),
        // Most of what replacing a program takes is leaving the old one.
        Op::Exec { .. } | Op::Exit { .. } => Some(WorkKind::Exit),
        Op::FileOpen { .. }
        | Op::TmpfsOpen { .. }
        | Op::FileRead { .. }
        | Op::FileWrite { .. }
        | Op::Truncate { .. } => Some(WorkKind::File),
        // Reclaim's, idle CPUs' and benchmarks' own.
        Op::ScanSpace { .. }
        | Op::ScanFile { .. }
        | Op::EmptyCaches
        | Op::Idle { .. }
        | Op::Call(_)
        | Op::Lap { .. } => None,
    }
}
