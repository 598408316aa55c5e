//! In which order the arms execute each slice.
//!
//! The orders of `n` arms are the `n` rotations of a random one and their
//! reversals, so that each arm comes in each place equally often, and before
//! each other arm equally often; of three arms they are all six there are. In
//! `2 n` passes every slice is executed in each of its orders. Which of them comes
//! in which pass is drawn for each slice: a fixed rotation would fall into step
//! with whatever disturbs the machine at regular intervals.

use crate::stats::Random;

/// The nearest numbers of passes, at most and at least `passes`, that share out the
/// places in the order of `arms` arms, and their arenas, evenly; both are `passes` if
/// it does.
pub fn even_passes(passes: usize, arms: usize) -> (usize, usize) {
    let orders = 2 * arms;
    (passes / orders * orders, passes.next_multiple_of(orders))
}

/// The order of `arms` arms for each slice of pass `pass`.
pub fn orders(slices: usize, arms: usize, pass: usize, seed: u64) -> Vec<Vec<usize>> {
    let orders = 2 * arms;
    // The passes of one block share the sequences drawn for their slices.
    let block = (pass / orders) as u64;
    let mut random = Random::seeded(seed.wrapping_add(block << 32));
    let draw = |_| {
        let mut base: Vec<usize> = (0..arms).collect();
        random.shuffle(&mut base);
        let mut sequence: Vec<usize> = (0..orders).collect();
        random.shuffle(&mut sequence);
        order(&base, sequence[pass % orders])
    };
    (0..slices).map(draw).collect()
}

/// The order in which the engines of `arms` arms are made for pass `pass`.
pub fn build_order(arms: usize, pass: usize, seed: u64) -> Vec<usize> {
    // Apart from the sequences of the slices.
    let mut random = Random::seeded(seed.wrapping_add((pass as u64) << 32).wrapping_add(1 << 31));
    let mut order: Vec<usize> = (0..arms).collect();
    random.shuffle(&mut order);
    order
}

/// Order number `index` of those that `base` gives.
fn order(base: &[usize], index: usize) -> Vec<usize> {
    let mut order = base.to_vec();
    order.rotate_left(index / 2);
    if index % 2 == 1 {
        order.reverse();
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_arm_takes_every_place_and_precedes_every_other_equally_often() {
        for arms in 2..7usize {
            let base: Vec<usize> = (0..arms).collect();
            let all: Vec<Vec<usize>> = (0..2 * arms).map(|index| order(&base, index)).collect();
            for arm in 0..arms {
                for place in 0..arms {
                    let times = all.iter().filter(|order| order[place] == arm).count();
                    assert_eq!(times, 2, "arm {arm} of {arms} in place {place}");
                }
                for other in 0..arm {
                    let place = |order: &[usize], arm| order.iter().position(|&a| a == arm);
                    let first = |order: &&Vec<usize>| place(order, arm) < place(order, other);
                    let first = all.iter().filter(first).count();
                    assert_eq!(first, arms, "arm {arm} of {arms} before arm {other}");
                }
            }
        }
    }

    #[test]
    fn engines_are_made_in_every_order_of_three_about_equally_often() {
        let mut counts = std::collections::BTreeMap::new();
        for pass in 0..600 {
            *counts.entry(build_order(3, pass, 1)).or_insert(0) += 1;
        }
        assert_eq!(counts.len(), 6);
        assert!(
            counts.values().all(|count| (60..140).contains(count)),
            "{counts:?}"
        );
    }

    #[test]
    fn even_numbers_of_passes_are_multiples_of_the_orders() {
        assert_eq!(even_passes(6, 3), (6, 6));
        assert_eq!(even_passes(5, 3), (0, 6));
        assert_eq!(even_passes(13, 3), (12, 18));
        assert_eq!(even_passes(6, 8), (0, 16));
    }

    #[test]
    fn six_passes_execute_every_slice_in_every_order_of_three_arms() {
        for block in [0, 6] {
            let passes: Vec<_> = (block..block + 6)
                .map(|pass| orders(50, 3, pass, 3))
                .collect();
            for slice in 0..50 {
                let mut seen: Vec<_> = passes.iter().map(|pass| pass[slice].clone()).collect();
                seen.sort_unstable();
                seen.dedup();
                assert_eq!(seen.len(), 6, "slice {slice}");
            }
        }
        assert_ne!(orders(50, 3, 0, 3), orders(50, 3, 6, 3));
        assert_ne!(orders(50, 3, 0, 3), orders(50, 3, 0, 4));
    }
}
