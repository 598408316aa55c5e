//! Dirty tracking: a guest that moves to another machine while it runs (precopy migration), and
//! checkpoints of it that hold what has changed.
//!
//! `cargo run -p vellum --example dirty_tracking`

#[allow(dead_code, reason = "not every example counts flushes")]
#[path = "board/mod.rs"]
mod board;

use std::collections::BTreeMap;
use std::error::Error;

use board::{Board, PAGE};
use vellum::addr::{PageRange, Prot};
use vellum::platform::{Policy, Sleep, Store, TaskToken};
use vellum::rmap::Family;
use vellum::space::{MapRequest, Space, TakeDirty};
use vellum::{Design, Vm, table::X86_64};

type Guest<'vm> = Space<'vm, Board, X86_64, Family>;

impl Sleep for Board {
    fn current_task(&self) -> TaskToken {
        TaskToken(0)
    }
    fn park(&self) {}
    fn unpark(&self, _: TaskToken) {}
}
impl Store for Board {}
impl Policy for Board {}

/// Pages by number.
type Copy = BTreeMap<u64, [u8; PAGE]>;

/// Copies what was written since the last time. Returns how many pages that were.
fn copy_written(
    guest: Guest<'_>,
    memory: PageRange,
    copy: &mut Copy,
) -> Result<usize, Box<dyn Error>> {
    let mut written = Vec::new();
    guest.take_dirty(memory, TakeDirty::default(), |pages| {
        written.extend(pages.start.0..pages.end.0);
    })?;
    for page in &written {
        let mut bytes = [0; PAGE];
        guest.read(page * PAGE as u64, &mut bytes)?;
        copy.insert(*page, bytes);
    }
    Ok(written.len())
}

/// The example.
pub fn main() -> Result<(), Box<dyn Error>> {
    const PAGES: u64 = 64;
    let vm: Vm<Board, X86_64, Family> = Vm::new(Board::new(512), Design::default())?;
    let guest = vm.create_space()?;
    let start = guest.map(&MapRequest::anonymous(PAGES, Prot::READ_WRITE))?;
    let memory = PageRange::new(start, PAGES);
    let store = |page: u64, byte: u8| guest.write((start.0 + page) * PAGE as u64 + 5, &[byte]);
    for page in 0..PAGES {
        store(page, page as u8)?;
    }

    // Everything is copied, then what the guest has written meanwhile, until that is little.
    let mut elsewhere = Copy::new();
    let mut rounds = Vec::new();
    for written_meanwhile in [20, 5, 1, 0] {
        rounds.push(copy_written(guest, memory, &mut elsewhere)?);
        for page in 0..written_meanwhile {
            store(page, 100 + page as u8)?;
        }
    }
    assert_eq!(rounds, [64, 20, 5, 1]);
    println!("pages copied in each round: {rounds:?}");

    // The guest has stopped: its copy is what it was.
    assert_eq!(copy_written(guest, memory, &mut elsewhere)?, 0);
    for (page, bytes) in &elsewhere {
        let mut now = [0; PAGE];
        guest.read(page * PAGE as u64, &mut now)?;
        assert_eq!(bytes, &now);
    }

    // Checkpoints: each has what has changed since the one before.
    let mut checkpoints = Vec::new();
    for stores in [3, 2] {
        for page in 0..stores {
            store(page * 7, 200)?;
        }
        let mut checkpoint = Copy::new();
        copy_written(guest, memory, &mut checkpoint)?;
        checkpoints.push(checkpoint.len());
    }
    assert_eq!(checkpoints, [3, 2]);
    println!("pages in each checkpoint: {checkpoints:?}");
    guest.exit()?;
    Ok(())
}
