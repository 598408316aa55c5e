//! Page tables: x86-64 entries (aarch64-paging its own), four levels, pages of
//! 4 KiB. What is mapped does not exist; nobody looks at it.

mod aarch64;
mod floor;
mod generic;
mod multiarch;
mod ours;
mod pool;
mod x86;

use std::hint::black_box;
use std::sync::LazyLock;

use vellum_lab::stats::Random;

use crate::Failure;
use crate::measure::{Arm, Timed, cpu_time};
use crate::rows::Rows;

/// Pages in a row: 64 MiB, 32 tables.
const DENSE: u64 = 16_384;
/// Pages of which each needs a table of its own, 2 MiB apart.
const SPARSE: u64 = 512;
/// Leaves of 2 MiB.
const LARGE: u64 = 2048;
/// Spaces made and ended in a batch.
const LIVES: u64 = 64;
/// Pages of a table.
const TABLE: u64 = 512;
const FIRST: u64 = 0x10_0000;
const FRAME: u64 = 0x1000;

/// A design's tables in the hands of one thread. Frames and pages are numbers.
trait PageTables {
    /// Whether there is a call that maps and one that unmaps a range.
    const RANGES: bool = true;

    fn map(&mut self, page: u64, frame: u64);
    fn map_range(&mut self, page: u64, frame: u64, pages: u64);
    /// The frame, or none.
    fn translate(&mut self, page: u64) -> Option<u64>;
    fn protect(&mut self, page: u64, writable: bool);
    fn unmap(&mut self, page: u64);
    fn unmap_range(&mut self, page: u64, pages: u64);
    fn map_large(&mut self, page: u64, frame: u64);
    fn unmap_large(&mut self, page: u64);
    /// Ends a batch of calls, within its time.
    fn finish(&mut self) {}
    /// Frees the empty tables of the pages in use here, outside of the time,
    /// where `unmap` leaves them.
    fn tidy(&mut self);
}

/// Who has the tables between slices.
trait Owner: 'static {
    /// Batches after which the same tables are used again.
    const CYCLE: u64 = 1;
    type View<'a>: PageTables;
    fn with<T>(&mut self, work: impl FnOnce(&mut Self::View<'_>) -> T) -> T;
    /// Makes a space, maps one page in it, unmaps it, and ends the space.
    fn life(count: u64, owner: &mut Self) -> Timed;
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Operation {
    Map,
    MapRange,
    Translate,
    TranslateRandom,
    Protect,
    Unmap,
    UnmapRange,
    MapSparse,
    UnmapSparse,
    MapLarge,
    Life,
}

impl Operation {
    const ALL: [(Operation, &'static str); 11] = [
        (Operation::Map, "map 16384 pages, one by one"),
        (Operation::MapRange, "map them as a range"),
        (Operation::Translate, "translate them in order"),
        (Operation::TranslateRandom, "translate them in random order"),
        (Operation::Protect, "change their rights, one by one"),
        (Operation::Unmap, "unmap them, one by one"),
        (Operation::UnmapRange, "unmap them as a range"),
        (Operation::MapSparse, "map a page that needs a table"),
        (Operation::UnmapSparse, "unmap the only page of a table"),
        (Operation::MapLarge, "map 2 MiB as one leaf"),
        (
            Operation::Life,
            "make tables, map a page, unmap it, end them",
        ),
    ];

    fn needs_ranges(self) -> bool {
        matches!(self, Operation::MapRange | Operation::UnmapRange)
    }
}

/// All pages in random order.
static SHUFFLED: LazyLock<Vec<u64>> = LazyLock::new(|| {
    let mut pages: Vec<u64> = (FIRST..FIRST + DENSE).collect();
    Random::seeded(2).shuffle(&mut pages);
    pages
});

fn map_all(tables: &mut impl PageTables) {
    for page in 0..DENSE {
        tables.map(FIRST + page, FRAME + page);
    }
}

fn unmap_all(tables: &mut impl PageTables) {
    for page in FIRST..FIRST + DENSE {
        tables.unmap(page);
    }
    tables.finish();
    tables.tidy();
}

fn map_sparse(tables: &mut impl PageTables) {
    for page in 0..SPARSE {
        tables.map(FIRST + page * TABLE, FRAME + page);
    }
    tables.finish();
}

fn unmap_sparse(tables: &mut impl PageTables) {
    for page in 0..SPARSE {
        tables.unmap(FIRST + page * TABLE);
    }
    tables.finish();
}

/// One batch of an operation: what comes before and after it takes no time.
fn batch<T: PageTables>(operation: Operation, tables: &mut T, round: u64) -> Timed {
    let timed = |count, work: &mut dyn FnMut(&mut T), tables: &mut T| Timed {
        ns: cpu_time(|| work(tables)),
        count,
    };
    match operation {
        Operation::Map => {
            let done = timed(
                DENSE,
                &mut |t| {
                    map_all(t);
                    t.finish()
                },
                tables,
            );
            unmap_all(tables);
            done
        }
        Operation::MapRange => {
            let done = timed(
                DENSE,
                &mut |t| {
                    t.map_range(FIRST, FRAME, DENSE);
                    t.finish()
                },
                tables,
            );
            unmap_all(tables);
            done
        }
        Operation::Translate => timed(
            DENSE,
            &mut |t| {
                for page in FIRST..FIRST + DENSE {
                    black_box(t.translate(page));
                }
            },
            tables,
        ),
        Operation::TranslateRandom => timed(
            DENSE,
            &mut |t| {
                for &page in SHUFFLED.iter() {
                    black_box(t.translate(page));
                }
            },
            tables,
        ),
        Operation::Protect => timed(
            DENSE,
            &mut |t| {
                for page in FIRST..FIRST + DENSE {
                    t.protect(page, round % 2 == 1);
                }
                t.finish();
            },
            tables,
        ),
        Operation::Unmap => {
            map_all(tables);
            tables.finish();
            let done = timed(
                DENSE,
                &mut |t| {
                    for page in FIRST..FIRST + DENSE {
                        t.unmap(page);
                    }
                    t.finish();
                },
                tables,
            );
            tables.tidy();
            done
        }
        Operation::UnmapRange => {
            map_all(tables);
            tables.finish();
            let done = timed(
                DENSE,
                &mut |t| {
                    t.unmap_range(FIRST, DENSE);
                    t.finish()
                },
                tables,
            );
            tables.tidy();
            done
        }
        Operation::MapSparse => {
            let done = timed(SPARSE, &mut |t| map_sparse(t), tables);
            unmap_sparse(tables);
            tables.tidy();
            done
        }
        Operation::UnmapSparse => {
            map_sparse(tables);
            let done = timed(SPARSE, &mut |t| unmap_sparse(t), tables);
            tables.tidy();
            done
        }
        Operation::MapLarge => {
            let done = timed(
                LARGE,
                &mut |t| {
                    for leaf in 0..LARGE {
                        t.map_large(FIRST + leaf * TABLE, (FRAME + leaf) * TABLE);
                    }
                    t.finish();
                },
                tables,
            );
            for leaf in 0..LARGE {
                tables.unmap_large(FIRST + leaf * TABLE);
            }
            tables.finish();
            tables.tidy();
            done
        }
        Operation::Life => Timed::default(),
    }
}

/// Checks that the tables do what they are timed doing.
fn check(name: &str, tables: &mut impl PageTables) -> Result<(), Failure> {
    let wrong = |what: &str, page: u64, found: Option<u64>| {
        Err(Failure(format!(
            "{name}: {what}: page {page:#x} translates to {found:x?}"
        )))
    };
    map_all(tables);
    tables.finish();
    for page in 0..DENSE {
        tables.protect(FIRST + page, page % 2 == 0);
        let found = tables.translate(FIRST + page);
        if found != Some(FRAME + page) {
            return wrong("mapped", FIRST + page, found);
        }
    }
    tables.finish();
    unmap_all(tables);
    for page in FIRST..FIRST + DENSE {
        if let Some(found) = tables.translate(page) {
            return wrong("unmapped", page, Some(found));
        }
    }
    tables.map_large(FIRST, FRAME);
    tables.finish();
    match tables.translate(FIRST + 7) {
        Some(found) if found == FRAME + 7 => {}
        found => return wrong("mapped as 2 MiB", FIRST + 7, found),
    }
    tables.unmap_large(FIRST);
    tables.finish();
    tables.tidy();
    Ok(())
}

fn arm<O: Owner>(name: &'static str, operation: Operation, mut owner: O) -> Result<Arm, Failure> {
    owner.with(|tables| check(name, tables))?;
    let stays = matches!(
        operation,
        Operation::Translate | Operation::TranslateRandom | Operation::Protect
    );
    if stays {
        owner.with(|tables| {
            map_all(tables);
            tables.finish();
        });
    }
    let mut round = 0;
    let work = move |count| {
        if operation == Operation::Life {
            return O::life(count * LIVES, &mut owner);
        }
        let mut sum = Timed::default();
        for _ in 0..count {
            round += 1;
            sum += owner.with(|tables| batch(operation, tables, round));
        }
        sum
    };
    Ok(Arm::new(name, work).cycling(O::CYCLE))
}

fn supports<O: Owner>(operation: Operation) -> bool {
    !operation.needs_ranges() || <O::View<'static> as PageTables>::RANGES
}

/// Runs the group.
pub fn run(rows: &mut Rows<'_>) -> Result<(), Failure> {
    for (operation, name) in Operation::ALL {
        rows.row(name, |arms| {
            for name in crate::ours::NAMES {
                arms.push(arm(name, operation, ours::Ours::new(true)?)?);
            }
            if matches!(
                operation,
                Operation::Map | Operation::Protect | Operation::Unmap
            ) {
                arms.push(arm(
                    "Vellum, a walk for each",
                    operation,
                    ours::Ours::new(false)?,
                )?);
            }
            arms.push(arm("bare walk", operation, floor::Floor::new())?);
            arms.push(arm(
                "page_table_multiarch",
                operation,
                multiarch::Multiarch::new()?,
            )?);
            arms.push(arm(
                "page-table-generic",
                operation,
                generic::Generic::new()?,
            )?);
            arms.push(arm("aarch64-paging", operation, aarch64::Aarch64::new())?);
            if supports::<x86::Offset>(operation) {
                arms.push(arm("x86_64", operation, x86::Offset::new())?);
            }
            Ok(())
        })?;
    }
    Ok(())
}
