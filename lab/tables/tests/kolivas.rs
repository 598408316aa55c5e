//! Con Kolivas's kernbench: what holds for runs of any kind.

use vellum_tables::kolivas::{self, Group, Load, Run};
use vellum_tables::read::Columns;

/// Numbers that depend on nothing but where they begin (xorshift64).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }

    /// A build whose figures agree with each other.
    fn run(&mut self) -> Run {
        let mut seconds = |most: u64| self.below(most * 1_000_000) as f64 / 1e6;
        let (elapsed, user, system) = (1.0 + seconds(300), seconds(900), seconds(90));
        let percent = 100.0 * (user + system) / elapsed;
        let mut count = || self.below(1 << 20) as f64;
        [elapsed, user, system, percent, count(), count()]
    }

    /// All loads, of one to ten runs each.
    fn groups(&mut self) -> Vec<Group> {
        let loads = [
            Load::Single,
            Load::Half(3),
            Load::Optimal(16),
            Load::Maximal,
        ];
        let mut group = |load| Group {
            load,
            runs: (0..=self.below(10)).map(|_| self.run()).collect(),
        };
        loads.map(&mut group).to_vec()
    }
}

const SEEDS: std::ops::Range<u64> = 1..201;

#[test]
fn each_load_is_printed_as_if_it_had_run_alone() {
    for seed in SEEDS {
        let groups = Numbers(seed).groups();
        let alone = groups
            .iter()
            .map(|group| kolivas::blocks(std::slice::from_ref(group), false));
        let together = kolivas::blocks(&groups, false);
        assert_eq!(together, alone.collect::<String>(), "seed {seed}");
    }
}

/// What the script prints of a load are the elapsed time of its runs and the other
/// figures of these and all before.
#[test]
fn with_compat_all_but_the_elapsed_time_is_about_everything_so_far() {
    for seed in SEEDS {
        let groups = Numbers(seed).groups();
        let compat = kolivas::blocks(&groups, true);
        let blocks: Vec<&str> = compat.split_terminator("\n\n").collect();
        assert_eq!(blocks.len(), groups.len(), "seed {seed}");
        for (index, block) in blocks.iter().enumerate() {
            let of = |runs: Vec<Run>| {
                let load = groups[index].load;
                kolivas::blocks(&[Group { load, runs }], true)
            };
            let alone = of(groups[index].runs.clone());
            let pooled = groups[..=index].iter().flat_map(|group| &group.runs);
            let pooled = of(pooled.copied().collect());
            let (alone, pooled) = (alone.lines(), pooled.lines());
            let expected: Vec<&str> = alone.take(2).chain(pooled.skip(2)).collect();
            let expected = expected.join("\n");
            assert_eq!(*block, expected.trim_end(), "seed {seed}");
        }
    }
}

#[test]
fn rows_are_read_back_as_they_were() {
    for seed in SEEDS {
        let groups = Numbers(seed).groups();
        let rows = kolivas::rows(&groups);
        let read = Columns::default().kernbench("rows", &rows, None);
        assert_eq!(read.as_ref(), Ok(&groups), "seed {seed}");
        let cut = groups.iter().map(|group| Group {
            load: group.load,
            runs: group.runs.iter().map(kolivas::cut_as_time).collect(),
        });
        let cut: Vec<Group> = cut.collect();
        let rows = kolivas::rows(&cut);
        let read = Columns::default().kernbench("rows", &rows, None);
        assert_eq!(read.as_ref(), Ok(&cut), "seed {seed}");
    }
}

#[test]
fn rows_look_as_time_prints_them() {
    let group = Group {
        load: Load::Half(2),
        runs: vec![[289.25, 509.66, 58.51, 196.0, 35461.0, 42677.0]],
    };
    let row = "half-2 289.25 509.66 58.51 196% 35461 42677\n";
    assert_eq!(kolivas::rows(&[group]), row);
}
