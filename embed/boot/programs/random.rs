//! Random maps, unmaps and protects in a space that all CPUs use. After each, a thread on
//! every other CPU and this one access pages of the range, and what the MMU lets through is
//! compared with what the tables say and with a model.
//!
//! Two kinds of access. A *bare* probe is refused by any page fault: it must be let
//! through exactly if the tables, asked before, have an entry that allows it. Its page may
//! be in a TLB from before the change. A plain probe may fault in its page, and must be let
//! through exactly if the model has the right.

use core::sync::atomic::{AtomicU64, Ordering};

use crate::protocol::{FLAG_SHARED, GROUND, STACK_PAGES, call, count, stamp};
use crate::sys::{Kind, ask, bare_probe, fail, must, probe};
use crate::tests::start_thread;

const PAGE: u64 = 1 << crate::protocol::PAGE_SHIFT;
/// Pages that are mapped and unmapped.
const PAGES: u64 = 192;
/// Where they begin, in pages of `GROUND`: across two page tables.
const FIRST: u64 = 448;
/// Where orders are given, in pages of `GROUND`.
const ORDERS: u64 = 100_000;
/// Where stacks of helpers lie.
const STACKS: u64 = 110_000;
/// CPUs there can be.
const MOST: u64 = 8;

/// What a helper is to do, in a page of its own.
#[repr(C, align(4096))]
struct Order {
    /// Number of the order; the helper is done when `done` is the same.
    turn: AtomicU64,
    done: AtomicU64,
    page: AtomicU64,
    kind: AtomicU64,
    /// Bare or plain.
    bare: AtomicU64,
    value: AtomicU64,
    /// What the access found, and whether it was refused.
    found: AtomicU64,
    refused: AtomicU64,
}

fn order(helper: u64) -> &'static Order {
    let address = GROUND + (ORDERS + helper) * PAGE;
    // SAFETY: `run` mapped a page there before helpers began; zero is a value.
    unsafe { &*(address as *const Order) }
}

fn address(page: u64) -> u64 {
    GROUND + (FIRST + page) * PAGE
}

fn kind_of(number: u64) -> Kind {
    match number {
        0 => Kind::Load,
        1 => Kind::Store,
        _ => Kind::Fetch,
    }
}

/// A helper: executes orders until there is one for no page.
pub fn help(helper: u32) -> ! {
    let order = order(u64::from(helper));
    let place = u64::from(helper) + 1;
    let mut turn = 0;
    loop {
        nap_while(place, || order.turn.load(Ordering::Acquire) == turn);
        turn += 1;
        let page = order.page.load(Ordering::Relaxed);
        if page == u64::MAX {
            crate::leave(0);
        }
        let kind = kind_of(order.kind.load(Ordering::Relaxed));
        let value = order.value.load(Ordering::Relaxed);
        let found = match order.bare.load(Ordering::Relaxed) {
            0 => probe(kind, address(page), value),
            _ => bare_probe(kind, address(page), value),
        };
        order.found.store(found.unwrap_or(0), Ordering::Relaxed);
        order
            .refused
            .store(u64::from(found.is_none()), Ordering::Relaxed);
        order.done.store(turn, Ordering::Release);
        ask(call::POKE, [0]);
    }
}

/// Halts its CPU at place `place`, without leaving the space, until `waits` is false.
fn nap_while(place: u64, waits: impl Fn() -> bool) {
    let mut seen = u64::MAX;
    while waits() {
        seen = ask(call::NAP, [place, seen]);
    }
}

/// What the model knows of a page.
#[derive(Clone, Copy)]
struct Page {
    /// Rights as in `PROT_*`, or nothing mapped.
    rights: Option<u8>,
    /// Its first word. Zero: no program calls it.
    value: u64,
}

struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) % limit
    }
}

struct Test {
    random: Random,
    pages: [Page; PAGES as usize],
    helpers: u64,
    turns: [u64; MOST as usize],
    /// Counts by `count`.
    counts: [u64; count::NAMES.len()],
    operation: u64,
}

/// `operations` of them.
pub fn run(operations: u64, seed: u64) {
    let cpus = ask(call::CPUS, []);
    let mut test = Test {
        random: Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1),
        pages: [Page {
            rights: None,
            value: 0,
        }; PAGES as usize],
        helpers: (cpus - 1).min(MOST),
        turns: [0; MOST as usize],
        counts: [0; count::NAMES.len()],
        operation: 0,
    };
    must(
        100,
        call::MAP,
        [GROUND / PAGE + ORDERS, MOST, 3 | FLAG_SHARED],
    );
    let mut threads = [0; MOST as usize];
    for helper in 0..test.helpers {
        let place = STACKS + helper * 2 * STACK_PAGES;
        threads[helper as usize] = start_thread(101, place, 2 << 32 | helper);
    }
    for operation in 0..operations {
        test.operation = operation;
        test.step();
    }
    for helper in 0..test.helpers {
        test.give(helper, u64::MAX, 0, true, 0);
        must(102, call::WAIT, [threads[helper as usize]]);
    }
    test.counts[count::OPS as usize] = operations;
    for (which, number) in test.counts.iter().enumerate() {
        ask(call::COUNT, [which as u64, *number]);
    }
}

impl Test {
    /// One change, and accesses around it.
    fn step(&mut self) {
        let start = self.random.below(PAGES);
        let pages = 1 + match self.random.below(8) {
            0 => self.random.below(PAGES - start),
            _ => self.random.below((PAGES - start).min(4)),
        };
        // Somebody has pages of the range in its TLB.
        for _ in 0..2 {
            let page = start + self.random.below(pages);
            self.access(page, false);
        }
        let range = start as usize..(start + pages) as usize;
        let first = GROUND / PAGE + FIRST + start;
        match self.random.below(5) {
            0 | 1 => {
                let rights = self.rights();
                must(103, call::MAP, [first, pages, u64::from(rights)]);
                self.pages[range].fill(Page {
                    rights: Some(rights),
                    value: 0,
                });
            }
            2 => {
                must(104, call::UNMAP, [first, pages]);
                self.pages[range].fill(Page {
                    rights: None,
                    value: 0,
                });
            }
            _ => {
                let rights = self.rights();
                let mapped = self.pages[range.clone()]
                    .iter()
                    .all(|page| page.rights.is_some());
                let answer = ask(call::PROTECT, [first, pages, u64::from(rights)]);
                if mapped != (answer == 0) {
                    fail(105, [first, pages, answer]);
                }
                if mapped {
                    self.pages[range]
                        .iter_mut()
                        .for_each(|page| page.rights = Some(rights));
                }
            }
        }
        // Both ends, and one between; bare, for whoever may have them in a TLB.
        for page in [start, start + pages - 1, start + self.random.below(pages)] {
            self.access(page, true);
        }
    }

    fn rights(&mut self) -> u8 {
        // Reading, or nothing: x86 cannot forbid loads alone.
        [0, 1, 3, 3, 5, 7][self.random.below(6) as usize]
    }

    /// One access by somebody, checked.
    fn access(&mut self, page: u64, bare: bool) {
        let who = self.random.below(self.helpers + 1);
        let known = self.pages[page as usize];
        let mut kind = self.random.below(3);
        if kind == 2 && known.value == 0 {
            kind = 0; // zeroes are no program
        }
        let value = stamp(self.operation << 8 | page);
        let wanted = match bare {
            true => {
                let entry = ask(call::TRANSLATE, [GROUND / PAGE + FIRST + page]);
                (entry & 8 != 0).then_some(entry as u8 & 7)
            }
            false => known.rights,
        };
        let allowed = wanted.is_some_and(|rights| rights >> kind & 1 != 0);
        let found = match who {
            0 if bare => bare_probe(kind_of(kind), address(page), value),
            0 => probe(kind_of(kind), address(page), value),
            helper => self.give(helper - 1, page, kind, bare, value),
        };
        let at = address(page) | who << 60;
        match found {
            Some(_) if !allowed => fail(106, [at, kind, self.operation]),
            None if allowed => fail(107, [at, kind, self.operation]),
            None => self.counts[count::REFUSALS as usize] += 1,
            Some(_) if kind == 1 => {
                self.pages[page as usize].value = value;
                self.counts[count::STORES as usize] += 1;
            }
            Some(found) => {
                if kind == 0 && found != known.value {
                    fail(108, [at, known.value, found]);
                }
                self.counts[count::LOADS as usize] += 1;
                self.counts[count::CHECKS as usize] += u64::from(kind == 0);
            }
        }
    }

    /// Has a helper make the access.
    fn give(&mut self, helper: u64, page: u64, kind: u64, bare: bool, value: u64) -> Option<u64> {
        let order = order(helper);
        order.page.store(page, Ordering::Relaxed);
        order.kind.store(kind, Ordering::Relaxed);
        order.bare.store(u64::from(bare), Ordering::Relaxed);
        order.value.store(value, Ordering::Relaxed);
        let turn = &mut self.turns[helper as usize];
        *turn += 1;
        order.turn.store(*turn, Ordering::Release);
        ask(call::POKE, [helper + 1]);
        if page == u64::MAX {
            return None;
        }
        nap_while(0, || order.done.load(Ordering::Acquire) != *turn);
        let refused = order.refused.load(Ordering::Relaxed) != 0;
        (!refused).then(|| order.found.load(Ordering::Relaxed))
    }
}
