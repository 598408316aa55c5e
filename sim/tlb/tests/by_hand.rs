//! Streams whose misses and walks can be counted by hand.

use vellum_description::{Description, PageSize, Translation};
use vellum_tlb::{Access, Counts, Simulator};

/// A machine whose every figure is round, without TLBs.
const ROUND: &str = include_str!("../../description/tests/round.toml");

fn figure(key: &str, unit: &str, value: f64) -> String {
    format!("{key} = {{ {unit} = {value}, source = \"assumed: test\" }}\n")
}

fn tlb(level: u8, holds: &str, pages: &str, (entries, ways): (u32, u32)) -> String {
    let mut text = format!(
        "[[translation.tlb]]\nlevel = {level}\nholds = \"{holds}\"\npages = [{pages}]\n{}{}",
        figure("entries", "count", f64::from(entries)),
        figure("ways", "count", f64::from(ways)),
    );
    if level > 1 {
        text += &figure("hit", "ns", 7.0);
    }
    text
}

fn walk_cache(level: u8, entries: u32) -> String {
    format!(
        "[[translation.walk_cache]]\nlevel = {level}\n{}{}",
        figure("entries", "count", f64::from(entries)),
        figure("ways", "count", f64::from(entries)),
    )
}

fn cache(kib: u32, ns: f64) -> String {
    format!(
        "[[translation.cache]]\n{}{}",
        figure("size", "count", f64::from(kib)),
        figure("hit", "ns", ns),
    )
}

fn nested(pages: &str, entries: u32) -> String {
    format!(
        "[translation.nested]\npages = \"{pages}\"\nsource = \"assumed: test\"\n{}{}{}",
        figure("levels", "count", 4.0),
        figure("entries", "count", f64::from(entries)),
        figure("ways", "count", f64::from(entries)),
    )
}

/// Four levels of tables, a step from memory takes 100 ns.
fn machine(parts: &[String]) -> Translation {
    let text = format!(
        "{ROUND}\n[translation]\n{}{}{}",
        figure("levels", "count", 4.0),
        figure("memory", "ns", 100.0),
        parts.concat()
    );
    let machine = Description::parse(&text, "test").unwrap_or_else(|error| panic!("{error}"));
    machine.translation.expect("it has one")
}

const ALL: &str = "\"4K\", \"16K\", \"64K\", \"2M\"";

/// Loads of the pages of 4 KiB with these numbers, in blocks of `size`.
fn loads(machine: &Translation, pages: impl IntoIterator<Item = u64>, size: PageSize) -> Counts {
    let mut simulator = Simulator::new(machine);
    for page in pages {
        let access = Access {
            address: page << 12,
            ..Access::default()
        };
        simulator.access(access, size);
    }
    simulator.counts()
}

#[test]
fn larger_blocks_miss_as_much_less_as_they_are_larger() {
    let machine = machine(&[tlb(1, "data", ALL, (4, 4))]);
    // 1024 pages twice, in order: more blocks than entries, so that each block is missed in each
    // round; of pages of 2 MiB two are enough, and stay.
    let pages = || (0..1024).chain(0..1024);
    let expected = [
        (PageSize::K4, 2048, 4),
        (PageSize::K16, 512, 4),
        (PageSize::K64, 128, 4),
        (PageSize::M2, 2, 3),
    ];
    for (size, misses, steps) in expected {
        let counts = loads(&machine, pages(), size);
        assert_eq!(counts.accesses, 2048);
        assert_eq!(counts.misses, [misses, 0, 0], "{size:?}");
        assert_eq!(counts.walks, misses, "{size:?}");
        // A page of 2 MiB lies a level higher.
        assert_eq!(counts.steps, steps * misses, "{size:?}");
        assert_eq!(counts.walks_ps, steps * misses * 100_000, "{size:?}");
    }
}

#[test]
fn runs_that_an_entry_cannot_map_take_an_entry_for_each_part_that_it_can() {
    let pages = || (0..32).chain(0..32);
    let without = machine(&[tlb(1, "data", "\"4K\", \"2M\"", (8, 8))]);
    let counts = loads(&without, pages(), PageSize::K64);
    assert_eq!(counts.walks, 64, "no coalescing");
    let by_four = machine(&[tlb(1, "data", "\"4K\", \"16K\"", (8, 8))]);
    assert_eq!(loads(&by_four, pages(), PageSize::K64).walks, 8, "by four");
    // Without room for pages of 2 MiB every access to one is a walk.
    assert_eq!(loads(&by_four, pages(), PageSize::M2).walks, 64);
}

#[test]
fn the_least_recently_used_of_a_set_is_replaced() {
    let machine = machine(&[tlb(1, "data", ALL, (4, 2))]);
    // Even pages share a set of two.
    for (pages, misses) in [
        (vec![0, 2, 0, 2], 2),
        (vec![0, 2, 4, 0], 4),
        (vec![0, 2, 0, 4, 0], 3),
        (vec![0, 2, 0, 4, 2], 4),
        (vec![0, 2, 1, 3, 0, 2, 1, 3], 4),
    ] {
        let counts = loads(&machine, pages.iter().copied(), PageSize::K4);
        assert_eq!(counts.misses[0], misses, "{pages:?}");
    }
}

#[test]
fn sizes_share_entries_or_have_their_own() {
    let mixed = |machine: &Translation| {
        let mut simulator = Simulator::new(machine);
        for _ in 0..2 {
            for page in 0..4u64 {
                for (base, size) in [(0, PageSize::K4), (1 << 30, PageSize::M2)] {
                    let access = Access {
                        address: base + (page << size.shift()),
                        ..Access::default()
                    };
                    simulator.access(access, size);
                }
            }
        }
        simulator.counts().walks
    };
    assert_eq!(mixed(&machine(&[tlb(1, "data", ALL, (4, 4))])), 16);
    let split = [
        tlb(1, "data", "\"4K\"", (4, 4)),
        tlb(1, "data", "\"2M\"", (4, 4)),
    ];
    assert_eq!(mixed(&machine(&split)), 8);
}

#[test]
fn the_second_level_answers_what_the_first_has_lost() {
    let machine = machine(&[
        tlb(1, "data", ALL, (4, 4)),
        tlb(1, "instructions", ALL, (4, 4)),
        tlb(2, "all", "\"4K\"", (16, 16)),
    ]);
    let counts = loads(&machine, (0..8).chain(0..8), PageSize::K4);
    assert_eq!(counts.misses, [16, 8, 0]);
    assert_eq!((counts.walks, counts.hits_ps), (8, 8 * 7000));
    // Pages of 2 MiB have no place in it.
    let counts = loads(&machine, [0, 512, 1024, 1536, 2048, 0], PageSize::M2);
    assert_eq!((counts.misses, counts.walks), ([6, 6, 0], 6));
    // Fetches have a first level of their own, and share the second.
    let mut simulator = Simulator::new(&machine);
    for fetch in [false, true] {
        simulator.access(
            Access {
                fetch,
                ..Access::default()
            },
            PageSize::K4,
        );
    }
    assert!(simulator.knows_fetches());
    assert_eq!(simulator.counts().misses, [2, 1, 0]);
}

#[test]
fn fetches_are_left_out_where_their_tlbs_are_not_known() {
    let mut simulator = Simulator::new(&machine(&[tlb(1, "data", ALL, (4, 4))]));
    simulator.access(
        Access {
            fetch: true,
            ..Access::default()
        },
        PageSize::K4,
    );
    assert!(!simulator.knows_fetches());
    assert_eq!(simulator.counts(), Counts::default());
}

#[test]
fn cpus_and_spaces_have_entries_of_their_own() {
    let machine = machine(&[tlb(1, "data", ALL, (4, 4))]);
    let mut simulator = Simulator::new(&machine);
    for (cpu, space) in [(0, 0), (1, 0), (0, 1), (0, 0), (1, 0), (0, 1)] {
        let access = Access {
            cpu,
            space,
            ..Access::default()
        };
        simulator.access(access, PageSize::K4);
    }
    assert_eq!(simulator.counts().misses[0], 3);
}

#[test]
fn walk_caches_leave_the_steps_below_what_they_know() {
    let tlbs = tlb(1, "data", ALL, (4, 4));
    let of = |caches: &[String], size: PageSize| {
        let parts = [std::slice::from_ref(&tlbs), caches].concat();
        // 1024 pages in order: two tables of the lowest level, in one of the second.
        loads(&machine(&parts), 0..1024, size)
    };
    let counts = of(&[walk_cache(2, 4)], PageSize::K4);
    assert_eq!(counts.walks, 1024);
    assert_eq!(
        counts.steps,
        2 * 4 + 1022,
        "one step but for the first of each table"
    );
    let counts = of(&[walk_cache(3, 4)], PageSize::K4);
    assert_eq!(counts.steps, 4 + 1023 * 2);
    let counts = of(&[walk_cache(2, 4), walk_cache(3, 4)], PageSize::K4);
    assert_eq!(counts.steps, 4 + 2 + 1022, "the lowest that is known");
    // A leaf of 2 MiB lies in the tables whose entries the lowest cache holds.
    let counts = of(&[walk_cache(2, 4)], PageSize::M2);
    assert_eq!((counts.walks, counts.steps), (2, 6));
    let counts = of(&[walk_cache(3, 4)], PageSize::M2);
    assert_eq!((counts.walks, counts.steps), (2, 3 + 1));
    // One that is too small forgets.
    let in_turn = (0..8).map(|turn| turn % 2 * 512 + turn);
    let small = machine(&[tlb(1, "data", ALL, (4, 4)), walk_cache(2, 1)]);
    assert_eq!(loads(&small, in_turn, PageSize::K4).steps, 8 * 4);
}

#[test]
fn a_step_takes_as_long_as_where_its_entry_lies() {
    let machine = machine(&[
        tlb(1, "data", ALL, (4, 4)),
        walk_cache(2, 4),
        cache(32, 2.0),
        cache(1024, 20.0),
    ]);
    // Eight entries are a line: of eight walks with one step the first reads memory.
    let counts = loads(&machine, 0..64, PageSize::K4);
    assert_eq!((counts.walks, counts.steps), (64, 64 + 3));
    assert_eq!(counts.walks_ps, (3 + 8) * 100_000 + 56 * 2000);
    // Data takes room: after 16 MiB of it no cache has the lines any more.
    let mut simulator = Simulator::new(&machine);
    let load = |simulator: &mut Simulator, address: u64| {
        let access = Access {
            address,
            ..Access::default()
        };
        simulator.access(access, PageSize::M2);
    };
    load(&mut simulator, 0);
    for line in 0..1 << 18 {
        load(&mut simulator, 1 << 30 | line << 6);
    }
    let before = simulator.counts();
    load(&mut simulator, 0);
    let after = simulator.counts();
    assert_eq!(after.walks, before.walks + 1);
    let steps = after.steps - before.steps;
    assert_eq!(after.walks_ps - before.walks_ps, steps * 100_000);
}

#[test]
fn a_walk_takes_what_it_takes_beside_its_steps() {
    let walk = figure("walk", "ns", 5.0);
    let machine = machine(&[walk, tlb(1, "data", ALL, (4, 4))]);
    assert_eq!(
        loads(&machine, 0..2, PageSize::K4).walks_ps,
        2 * (4 * 100_000 + 5000)
    );
}

#[test]
fn a_guest_walks_in_two_dimensions() {
    let tlbs = tlb(1, "data", ALL, (4, 4));
    let of = |host: String, caches: &[String], pages: &[u64], size| {
        let parts = [&[tlbs.clone(), host][..], caches].concat();
        loads(&machine(&parts), pages.iter().copied(), size)
    };
    // (4 + 1) * (4 + 1) - 1, and less where the guest or the host has larger pages.
    for (host, size, steps) in [
        ("4K", PageSize::K4, 24),
        ("4K", PageSize::M2, 19),
        ("2M", PageSize::K4, 19),
        ("2M", PageSize::M2, 15),
    ] {
        let counts = of(nested(host, 1), &[], &[0], size);
        assert_eq!((counts.walks, counts.steps), (1, steps), "{host} {size:?}");
    }
    // Where the guest's tables lie is kept: of the second walk, four of the guest's and four steps
    // for the page itself are left.
    let counts = of(nested("4K", 16), &[], &[0, 1], PageSize::K4);
    assert_eq!(counts.steps, 24 + 4 + 4);
    // Walk caches serve both dimensions.
    let counts = of(
        nested("4K", 16),
        &[walk_cache(2, 16)],
        &[0, 1],
        PageSize::K4,
    );
    assert_eq!(counts.steps, 24 + 1 + 1);
}

#[test]
fn an_entry_maps_no_more_than_the_hosts_page() {
    let tlbs = tlb(1, "data", ALL, (4, 4));
    let pages = || (0..64).chain(0..64);
    for (host, size, walks) in [
        ("4K", PageSize::M2, 128),
        ("4K", PageSize::K64, 128),
        ("2M", PageSize::M2, 1),
        ("2M", PageSize::K64, 4),
    ] {
        let machine = machine(&[tlbs.clone(), nested(host, 16)]);
        assert_eq!(
            loads(&machine, pages(), size).walks,
            walks,
            "{host} {size:?}"
        );
    }
}
