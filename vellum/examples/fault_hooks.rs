//! Fault hooks: a guest that runs here while its memory still lies on another machine (post-copy
//! migration), and a snapshot of it that is written while it goes on storing.
//!
//! `cargo run -p vellum --example fault_hooks`

#[allow(dead_code, reason = "not every example counts flushes")]
#[path = "board/mod.rs"]
mod board;

use std::collections::BTreeMap;
use std::error::Error;

use board::{Board, PAGE};
use vellum::addr::{Prot, Vpn};
use vellum::platform::{HookKind, Policy, Sleep, Store, TaskToken};
use vellum::rmap::Family;
use vellum::space::{FaultError, MapRequest, Space, Supply, Traits};
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
// One thread does it all here, so no access waits: it fails, and is made again. With threads,
// `fault_hook` queues the fault for the thread that fetches pages, and answers `HookAnswer::Wait`.
impl Policy for Board {}

/// What the guest's processor does. A page that is missing, or may not be stored to, traps.
fn store(
    guest: Guest<'_>,
    place: u64,
    byte: u8,
    trap: &mut impl FnMut(Vpn, HookKind) -> Result<(), Box<dyn Error>>,
) -> Result<(), Box<dyn Error>> {
    loop {
        match guest.write(place, &[byte]) {
            Ok(_) => return Ok(()),
            Err(FaultError::Hooked(kind)) => trap(Vpn(place / PAGE as u64), kind)?,
            Err(error) => return Err(error.into()),
        }
    }
}

/// The example.
pub fn main() -> Result<(), Box<dyn Error>> {
    const PAGES: u64 = 32;
    let vm: Vm<Board, X86_64, Family> = Vm::new(Board::new(512), Design::default())?;
    let guest = vm.create_space()?;
    let start = guest.map(&MapRequest::anonymous(PAGES, Prot::READ_WRITE))?;
    let memory = guest.hooks(start, PAGES);
    memory.register(Traits::HOOK_MISSING.union(Traits::HOOK_STORES))?;

    // Post-copy: the guest begins at once, and what it touches is fetched.
    let elsewhere = |page: Vpn| [(page.0 - start.0) as u8; PAGE];
    let mut fetched = 0;
    let mut fetch = |page: Vpn, _| {
        fetched += guest
            .hooks(page, 1)
            .supply(Supply::Bytes(&elsewhere(page)))?;
        Ok(())
    };
    for page in (0..PAGES).step_by(5) {
        store(guest, (start.0 + page) * PAGE as u64 + 9, 200, &mut fetch)?;
    }
    println!("{fetched} pages were fetched for the guest");
    // The rest is pushed. What has come already exists.
    for page in (0..PAGES).map(|page| Vpn(start.0 + page)) {
        let _ = guest.hooks(page, 1).supply(Supply::Bytes(&elsewhere(page)));
    }

    // A snapshot: all pages as they are now, though the guest goes on.
    memory.protect()?;
    let mut snapshot = BTreeMap::new();
    let mut save = |page: Vpn, kind| {
        assert_eq!(kind, HookKind::Store);
        let mut bytes = [0; PAGE];
        guest.read(page.0 * PAGE as u64, &mut bytes)?;
        snapshot.entry(page.0).or_insert(bytes);
        Ok(guest.hooks(page, 1).unprotect()?)
    };
    for page in [3, 5, 3] {
        store(guest, (start.0 + page) * PAGE as u64 + 9, 99, &mut save)?;
    }
    for page in (0..PAGES).map(|page| Vpn(start.0 + page)) {
        save(page, HookKind::Store)?;
    }
    let bytes = |page: u64| snapshot[&(start.0 + page)][9];
    assert_eq!([bytes(3), bytes(5), bytes(6)], [3, 200, 6]);
    println!("{} pages are in the snapshot", snapshot.len());
    memory.register(Traits::NONE)?;
    guest.exit()?;
    Ok(())
}
