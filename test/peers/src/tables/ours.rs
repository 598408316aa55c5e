//! Ours: tables under their locks, with counts of live entries, freed when
//! empty, retired through the epoch; table pages as the default design keeps them.

use std::sync::Arc;

use vellum::addr::{Geometry, PageRange, Pfn, Prot, Vpn};
use vellum::design::Design;
use vellum::platform::{CpuId, CpuSet, SpaceTag};
use vellum::sync::Pin;
use vellum::table::{
    Cursor, FlushTarget, Format, Gather, LockedTable, Marks, TablePages, Tables, Users, X86_64,
    source_of,
};

use super::{FIRST, Owner, PageTables};
use crate::Failure;
use crate::board::Board;
use crate::measure::Timed;
use crate::ours::{self, Memory};

const RAM: u64 = 64 << 20;
const OWNER: u32 = 1;

pub struct Ours {
    root: Pfn,
    source: Arc<dyn TablePages<Board>>,
    memory: Memory,
    cursor: bool,
}

pub struct View<'a> {
    tables: &'a Tables<'a, Board, X86_64>,
    /// Pages one by one go through it, or each by a walk and a lock of its own.
    cursor: Option<Cursor<'a, 'a, Board, X86_64>>,
    gather: Gather<'a, Board>,
}

impl Ours {
    pub fn new(cursor: bool) -> Result<Ours, Failure> {
        let mut memory = ours::memory(RAM)?;
        let source = source_of(&Design::default(), &mut memory);
        let board = memory.platform();
        let root = board.run_on(CpuId(0), || {
            Tables::<_, X86_64>::make_root(&memory, &*source, &memory.pin(), OWNER)
        });
        let root = root.map_err(Failure::because("a root table"))?;
        Ok(Ours {
            root,
            source,
            memory,
            cursor,
        })
    }
}

/// No CPU has loaded the tables, which is all that the others know.
fn nobody() -> FlushTarget<'static> {
    FlushTarget {
        tag: SpaceTag(OWNER),
        cpus: CpuSet::EMPTY,
    }
}

fn rights(writable: bool) -> Prot {
    if writable {
        Prot::READ_WRITE
    } else {
        Prot::READ
    }
}

fn leaf(frame: u64, level: u32) -> u64 {
    X86_64::leaf(Pfn(frame as u32), level, Prot::READ_WRITE, Marks::DIRTY)
}

#[inline]
fn fill(table: &LockedTable<'_, X86_64>, page: u64, level: u32, frame: u64) {
    table.fill(X86_64::index(Vpn(page), level), leaf(frame, level));
    table.count_made(1);
}

#[inline]
fn clear(table: &LockedTable<'_, X86_64>, page: u64) {
    table.clear(X86_64::index(Vpn(page), table.level()), Users::None);
    table.count_cleared(1);
}

#[inline]
fn change(table: &LockedTable<'_, X86_64>, page: u64, writable: bool) {
    let level = table.level();
    table.update(X86_64::index(Vpn(page), level), Users::None, |entry| {
        X86_64::with_prot(entry, level, rights(writable))
    });
}

impl PageTables for View<'_> {
    #[inline]
    fn map(&mut self, page: u64, frame: u64) {
        if let Some(cursor) = &mut self.cursor {
            let mapped = cursor.map(Vpn(page), leaf(frame, 1)).expect("a table");
            assert!(mapped, "the page is mapped already");
        } else {
            let table = self.tables.lock_or_make(Vpn(page), &mut 0);
            let table = table.expect("a table");
            fill(&table, page, 1, frame);
        }
    }

    fn map_range(&mut self, page: u64, frame: u64, pages: u64) {
        let mut done = 0;
        while done < pages {
            let table = self.tables.lock_or_make(Vpn(page + done), &mut 0);
            let table = table.expect("a table");
            let first = X86_64::index(Vpn(page + done), 1);
            let count = (X86_64::ENTRIES - first).min((pages - done) as usize);
            for step in 0..count {
                table.fill(first + step, leaf(frame + done + step as u64, 1));
            }
            table.count_made(count as u32);
            done += count as u64;
        }
    }

    #[inline]
    fn translate(&mut self, page: u64) -> Option<u64> {
        let (entry, level) = self.tables.peek(Vpn(page));
        let within = page & (X86_64::pages_at(level) - 1);
        X86_64::is_mapped(entry).then(|| u64::from(X86_64::frame(entry, level).0) + within)
    }

    #[inline]
    fn protect(&mut self, page: u64, writable: bool) {
        if let Some(cursor) = &mut self.cursor {
            change(cursor.find(Vpn(page)).expect("mapped"), page, writable);
        } else {
            change(
                &self.tables.lock(Vpn(page)).expect("mapped"),
                page,
                writable,
            );
        }
    }

    #[inline]
    fn unmap(&mut self, page: u64) {
        if let Some(cursor) = &mut self.cursor {
            clear(cursor.find(Vpn(page)).expect("mapped"), page);
            cursor.unlink_if_empty(&mut self.gather);
        } else {
            let table = self.tables.lock(Vpn(page)).expect("mapped");
            clear(&table, page);
            self.tables.unlink_if_empty(table, &mut self.gather);
        }
    }

    fn unmap_range(&mut self, page: u64, pages: u64) {
        for span in self.tables.spans(PageRange::new(Vpn(page), pages)) {
            for index in span.first..span.first + span.count {
                span.table.clear(index, Users::None);
            }
            span.table.count_cleared(span.count as u32);
            self.tables.unlink_if_empty(span.table, &mut self.gather);
        }
    }

    #[inline]
    fn map_large(&mut self, page: u64, frame: u64) {
        if let Some(cursor) = &mut self.cursor {
            let table = cursor.find_or_make(Vpn(page), 2).expect("a table");
            fill(table, page, 2, frame);
        } else {
            let table = self.tables.lock_or_make_at(Vpn(page), 2, &mut 0);
            let table = table.expect("a table");
            fill(&table, page, 2, frame);
        }
    }

    #[inline]
    fn unmap_large(&mut self, page: u64) {
        self.unmap(page);
    }

    #[inline]
    fn finish(&mut self) {
        if let Some(cursor) = &mut self.cursor {
            cursor.leave();
        }
        self.gather.flush();
    }

    /// Empty tables are gone already.
    fn tidy(&mut self) {}
}

fn life(memory: &Memory, source: &dyn TablePages<Board>, pin: &Pin<'_>) {
    let root = Tables::<_, X86_64>::make_root(memory, source, pin, OWNER).expect("a root");
    // SAFETY: the root was made in the line before; no CPU loads it; and only tables
    // under it are put into the gather, and at last it itself.
    let (tables, mut gather) = unsafe {
        (
            Tables::<_, X86_64>::new(memory, source, pin, root, OWNER),
            Gather::new(memory, source, pin, nobody()),
        )
    };
    let table = tables.lock_or_make(Vpn(FIRST), &mut 0).expect("a table");
    fill(&table, FIRST, 1, FIRST);
    drop(table);
    let table = tables.lock(Vpn(FIRST)).expect("mapped");
    clear(&table, FIRST);
    tables.unlink_if_empty(table, &mut gather);
    gather.table(root);
}

impl Owner for Ours {
    /// A freed table waits for its epoch: while those of one batch are in use, those
    /// of up to two batches before wait, and older ones are taken next.
    const CYCLE: u64 = 4;
    type View<'a> = View<'a>;

    fn with<T>(&mut self, work: impl FnOnce(&mut View<'_>) -> T) -> T {
        let board = self.memory.platform();
        board.run_on(CpuId(0), || {
            let pin = self.memory.pin();
            let (memory, source) = (&self.memory, &*self.source);
            // SAFETY: the root was made in `new`, of this memory, and is never freed.
            let tables = unsafe { Tables::new(memory, source, &pin, self.root, OWNER) };
            work(&mut View {
                cursor: self.cursor.then(|| Cursor::new(&tables)),
                tables: &tables,
                // SAFETY: only tables under the root are put in; no CPU loads them.
                gather: unsafe { Gather::new(memory, source, &pin, nobody()) },
            })
        })
    }

    fn life(count: u64, owner: &mut Ours) -> Timed {
        let board = owner.memory.platform();
        board.run_on(CpuId(0), || {
            Timed::of(count, || {
                for _ in 0..count {
                    life(&owner.memory, &*owner.source, &owner.memory.pin());
                }
            })
        })
    }
}
