//! In which order the arms execute each slice.
//!
//! In six passes every slice is executed in all six orders of three arms. Which
//! of them comes in which pass is drawn for each slice: a fixed rotation would
//! fall into step with whatever disturbs the machine at regular intervals.

use super::ARMS;
use crate::stats::Random;

/// The orders in which the arms can execute a slice. Each arm comes first, second
/// and last equally often, and before each other arm equally often.
const ORDERS: [[usize; ARMS]; 6] = [
    [0, 1, 2],
    [2, 1, 0],
    [1, 2, 0],
    [0, 2, 1],
    [2, 0, 1],
    [1, 0, 2],
];

/// The order of the arms for each slice of pass `pass`.
pub(super) fn orders(slices: usize, pass: usize, seed: u64) -> Vec<[usize; ARMS]> {
    // The passes of one block of six share the sequences drawn for their slices.
    let block = (pass / ORDERS.len()) as u64;
    let mut random = Random::seeded(seed.wrapping_add(block << 32));
    let draw = |_| {
        let mut sequence = ORDERS;
        random.shuffle(&mut sequence);
        sequence[pass % ORDERS.len()]
    };
    (0..slices).map(draw).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_arm_takes_every_place_and_precedes_every_other_equally_often() {
        for arm in 0..ARMS {
            for place in 0..ARMS {
                let times = ORDERS.iter().filter(|order| order[place] == arm).count();
                assert_eq!(times, 2, "arm {arm} in place {place}");
            }
        }
        for (one, other) in [(0, 1), (0, 2), (1, 2)] {
            let place = |order: &[usize; ARMS], arm| order.iter().position(|&a| a == arm);
            let first = ORDERS
                .iter()
                .filter(|o| place(o, one) < place(o, other))
                .count();
            assert_eq!(first, 3, "arm {one} before arm {other}");
        }
    }

    #[test]
    fn six_passes_execute_every_slice_in_every_order() {
        for block in [0, 6] {
            let passes: Vec<_> = (block..block + 6).map(|pass| orders(50, pass, 3)).collect();
            for slice in 0..50 {
                let mut seen: Vec<_> = passes.iter().map(|pass| pass[slice]).collect();
                seen.sort_unstable();
                seen.dedup();
                assert_eq!(seen.len(), 6, "slice {slice}");
            }
        }
        assert_ne!(orders(50, 0, 3), orders(50, 6, 3));
        assert_ne!(orders(50, 0, 3), orders(50, 0, 4));
    }
}
