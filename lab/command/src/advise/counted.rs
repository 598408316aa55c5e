//! What patterns of calls and faults come to: exact counts of the trace, times what each costs on
//! this machine.

use super::prices::Prices;
use super::survey::{Counted, Patterns};
use crate::host::forkfault::Round;
use vellum_results::Figure;
use vellum_results::advise::{Asked, Audience, Basis, Row, Said};
use vellum_terminal::table::grouped;
use vellum_terminal::text::plural;

/// Share of the workload's CPU time from which on an effect matters.
pub const VISIBLE: f64 = 0.001;

/// Settings with which glibc's `malloc` gives nothing back before the end.
pub const KEEPING: &str = "GLIBC_TUNABLES=glibc.malloc.trim_threshold=4294967296:\
                           glibc.malloc.mmap_threshold=33554432";

/// The row that `check` can try by [`KEEPING`].
pub const TRIMMING: &str = "malloc that keeps memory instead of giving it up and touching it again";

/// What a pattern is, and what it would save.
struct Pattern<'p> {
    what: &'static str,
    audience: Audience,
    counted: &'p Counted,
    /// Nanoseconds that it would save, by the prices of a round.
    saves: &'p dyn Fn(&Round) -> f64,
    /// Faults that there would be no more.
    faults: u64,
    place: String,
    how: Vec<String>,
    note: String,
}

/// Rows for what is in `patterns`, for a workload that took `cpu_ns`.
pub fn rows(asked: &Asked, patterns: &Patterns, prices: &Prices, cpu_ns: Option<u64>) -> Vec<Row> {
    let mut rows = Vec::new();
    let mut add = |pattern: &Pattern<'_>| {
        if pattern.counted.count > 0 {
            rows.push(row(pattern, asked, prices, cpu_ns));
        }
    };
    let filled = &patterns.filled;
    if prices.can_populate() {
        add(&Pattern {
            what: "memory that is touched nearly whole made in one call (MAP_POPULATE)",
            audience: Audience::Author,
            counted: filled,
            saves: &|round| filled.count as f64 * (round.touch - round.populate),
            faults: filled.count,
            place: of_all(filled, asked.faults.all, "faults"),
            how: strings(&[
                "mmap(…, MAP_POPULATE, …), or after it madvise(…, MADV_POPULATE_WRITE)",
            ]),
            note: format!(
                "Mappings of 64 KiB and more of which nine tenths are touched; {} pages of them \
                 that are not would be made, too.",
                grouped(patterns.unfilled_pages)
            ),
        });
    }
    let trimmed = &patterns.trimmed;
    add(&Pattern {
        what: TRIMMING,
        audience: Audience::User,
        counted: trimmed,
        saves: &|round| trimmed.count as f64 * (round.touch + round.free),
        faults: trimmed.count,
        place: of_all(trimmed, asked.faults.all, "faults"),
        how: strings(&[
            KEEPING,
            "or mallopt(M_TRIM_THRESHOLD) and mallopt(M_MMAP_THRESHOLD)",
        ]),
        note: format!(
            "Pages that munmap or brk (brk: {}) had given up and that were touched again at the \
             same address. The settings are those of glibc; memory that the program maps itself \
             takes a change of the program. Memory in use does not go down in between.",
            grouped(patterns.trimmed_by_brk)
        ),
    });
    let advised = &patterns.advised;
    add(&Pattern {
        what: "an allocator that keeps memory instead of giving it up by madvise",
        audience: Audience::User,
        counted: advised,
        saves: &|round| advised.count as f64 * (round.touch + round.free),
        faults: advised.count,
        place: of_all(advised, asked.faults.all, "faults"),
        how: strings(&[
            "jemalloc: MALLOC_CONF=dirty_decay_ms:-1,muzzy_decay_ms:-1",
            "mimalloc: MIMALLOC_PURGE_DELAY=-1",
        ]),
        note: "Pages that madvise had given up and that were touched again.".to_owned(),
    });
    let execs = &patterns.fork_execs;
    add(&Pattern {
        what: "posix_spawn or vfork instead of fork before execve",
        audience: Audience::Author,
        counted: &execs.forks,
        saves: &|round| {
            execs.forks.count as f64 * (round.fork - round.vfork).max(0.0)
                + execs.pages as f64 * round.fork_page.max(0.0)
                + execs.copies as f64 * round.copy
        },
        faults: execs.copies,
        place: of_all(&execs.forks, execs.forks.count, "such forks"),
        how: strings(&["posix_spawn(), or vfork() and execve()"]),
        note: format!(
            "{} with {} private pages in all, and {} because pages were shared.",
            plural(execs.forks.count as usize, "fork", "forks"),
            grouped(execs.pages),
            match execs.copies {
                1 => "1 fault".to_owned(),
                faults => format!("{} faults", grouped(faults)),
            },
        ),
    });
    let alike = &patterns.alike;
    add(&Pattern {
        what: "larger mappings instead of many of one size",
        audience: Audience::Author,
        counted: alike,
        saves: &|round| alike.count as f64 * round.mapping,
        faults: 0,
        place: of_all(alike, asked.calls.mmap, "calls of mmap"),
        how: strings(&["one mmap for many objects; for malloc, a larger mmap_threshold"]),
        note: format!(
            "{} after one of the same size and rights; each is taken to be unmapped, too.",
            plural(alike.count as usize, "mapping", "mappings"),
        ),
    });
    rows
}

fn strings(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

/// What a count is a part of, and where most of it is.
fn of_all(counted: &Counted, all: u64, what: &str) -> String {
    let percent = |part: u64, of: u64| 100.0 * part as f64 / of.max(1) as f64;
    format!(
        "{:.0} % of {} {what}; {:.0} % of these in {}",
        percent(counted.count, all),
        grouped(all),
        percent(counted.there, counted.count),
        counted.place,
    )
}

fn row(pattern: &Pattern<'_>, asked: &Asked, prices: &Prices, cpu_ns: Option<u64>) -> Row {
    let ns = prices.value(|round| -(pattern.saves)(round));
    let cpu = ns
        .zip(cpu_ns)
        .map(|(ns, all)| ns.in_units_of(all.max(1) as f64));
    let (said, bound) = said(cpu);
    Row {
        what: pattern.what.to_owned(),
        audience: pattern.audience,
        said,
        basis: Basis::Counted,
        cpu,
        bound,
        peak: None,
        faults: Some(-(pattern.faults as f64) / asked.faults.all.max(1) as f64),
        place: pattern.place.clone(),
        how: pattern.how.clone(),
        note: pattern.note.clone(),
        measured: None,
    }
}

/// What an effect whose interval is that of its prices says, and the bound of one that does not
/// matter.
pub fn said(cpu: Option<Figure>) -> (Said, Option<f64>) {
    let Some(cpu) = cpu else {
        return (Said::Unknown, None);
    };
    let (low, high) = (cpu.low.unwrap_or(cpu.value), cpu.high.unwrap_or(cpu.value));
    match cpu.value {
        value if value <= -VISIBLE && high < 0.0 => (Said::Less, None),
        value if value >= VISIBLE && low > 0.0 => (Said::More, None),
        _ => (Said::Nothing, Some(low.abs().max(high.abs()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prices() -> Prices {
        let round = Round {
            touch: 300.0,
            populate: 100.0,
            free: 50.0,
            fork_page: 10.0,
            copy: 200.0,
            fork: 50_000.0,
            vfork: 20_000.0,
            mapping: 1000.0,
        };
        Prices::new(vec![round; 7])
    }

    fn counted(count: u64) -> Counted {
        Counted {
            count,
            place: "heap (brk) of cc1".to_owned(),
            there: count / 2,
        }
    }

    #[test]
    fn a_count_times_its_price_is_a_share_of_the_workload() {
        let mut asked = Asked::default();
        asked.faults.all = 200_000;
        let patterns = Patterns {
            filled: counted(100_000),
            trimmed: counted(10),
            ..Patterns::default()
        };
        let rows = rows(&asked, &patterns, &prices(), Some(1_000_000_000));
        assert_eq!(rows.len(), 2, "patterns that are not there have no row");
        let filled = &rows[0];
        // 100,000 times 200 ns of 1 s.
        assert_eq!(filled.cpu.expect("priced").value, -0.02);
        assert_eq!((filled.said, filled.faults), (Said::Less, Some(-0.5)));
        let place = "50 % of 200,000 faults; 50 % of these in heap (brk) of cc1";
        assert_eq!(filled.place, place);
        let trimmed = &rows[1];
        assert_eq!((trimmed.said, trimmed.bound), (Said::Nothing, Some(3.5e-6)));
    }

    #[test]
    fn forks_are_priced_with_their_pages_and_their_copies() {
        let mut patterns = Patterns::default();
        patterns.fork_execs.forks = counted(10);
        patterns.fork_execs.pages = 1000;
        patterns.fork_execs.copies = 50;
        let rows = rows(&Asked::default(), &patterns, &prices(), Some(1_000_000));
        // 10 x 30,000 + 1000 x 10 + 50 x 200 ns.
        assert_eq!(rows[0].cpu.expect("priced").value, -0.32);
    }

    #[test]
    fn without_cpu_times_or_prices_nothing_is_claimed() {
        let patterns = Patterns {
            trimmed: counted(1000),
            ..Patterns::default()
        };
        for (prices, cpu_ns) in [(prices(), None), (Prices::default(), Some(1_000_000))] {
            let rows = rows(&Asked::default(), &patterns, &prices, cpu_ns);
            assert_eq!((rows[0].said, rows[0].cpu), (Said::Unknown, None));
        }
    }
}
