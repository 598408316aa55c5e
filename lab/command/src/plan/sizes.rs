//! Machines of several sizes: what is left of low memory, and who fits into it.

use super::Question;
use super::arithmetic::{FRAME, MOST_RAM, RECORD, frame_table};
use vellum_results::plan::{Begins, Demand, Fits, Size, Sizes};

/// The machines of `question`, with what `demand` says of them.
pub fn sizes(question: &Question, demand: Option<&Demand>) -> Sizes {
    let low = question.low_bytes;
    let when_full = |demand: &Demand, slop: f64| {
        let need = demand.low_of_a_copy() as f64 * slop;
        full_at(low, need / demand.all_of_a_copy() as f64)
    };
    Sizes {
        rows: memories(question.ram)
            .map(|ram| size(ram, question, demand))
            .collect(),
        fails_for_measured: demand.map(|demand| alone_at(low, demand.low_bytes())),
        fails_when_full: demand.map(|demand| when_full(demand, 1.0)),
        fails_when_full_with_slop: demand.map(|demand| when_full(demand, question.slop)),
    }
}

/// From the first to the last in doublings.
fn memories((from, to): (u64, u64)) -> impl Iterator<Item = u64> {
    let doublings = std::iter::successors(Some(from), |ram| ram.checked_mul(2));
    let below = doublings.take_while(move |ram| *ram < to);
    below.chain(std::iter::once(to))
}

fn size(ram_bytes: u64, question: &Question, demand: Option<&Demand>) -> Size {
    let frame_table_bytes = frame_table(ram_bytes);
    let left_bytes = question.low_bytes.saturating_sub(frame_table_bytes);
    let fits = demand.map(|demand| Fits {
        low: left_bytes / demand.low_of_a_copy(),
        low_with_slop: (left_bytes as f64 / (demand.low_of_a_copy() as f64 * question.slop)) as u64,
        all: ram_bytes / demand.all_of_a_copy(),
        measured: demand.low_bytes() <= left_bytes,
    });
    Size {
        ram_bytes,
        frame_table_bytes,
        left_bytes,
        fits,
    }
}

/// Where `need` bytes of low memory are more than the frame table leaves.
fn alone_at(low: u64, need: u64) -> Begins {
    match low.checked_sub(need) {
        None => Begins::Always,
        Some(left) => begins(low, left as f64 / (RECORD as f64 / FRAME as f64)),
    }
}

/// Where it is too little if each byte of memory in use needs `share` bytes of low memory.
fn full_at(low: u64, share: f64) -> Begins {
    begins(low, low as f64 / (RECORD as f64 / FRAME as f64 + share))
}

fn begins(low: u64, above: f64) -> Begins {
    match above {
        above if above >= MOST_RAM as f64 => Begins::Never,
        above if above <= low as f64 => Begins::Always,
        above => Begins::Above(above as u64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    #[test]
    fn memories_double_and_end_at_the_last() {
        let all: Vec<u64> = memories((4 * GIB, 20 * GIB)).map(|ram| ram / GIB).collect();
        assert_eq!(all, [4, 8, 16, 20]);
        assert_eq!(memories((GIB, GIB)).count(), 1);
    }

    #[test]
    fn the_frame_table_decides_where_a_workload_begins_to_fail() {
        // 768 MiB less the frame table of 32 GiB are 512 MiB.
        let low = 768 << 20;
        assert_eq!(alone_at(low, 512 << 20), Begins::Above(32 * GIB));
        assert_eq!(alone_at(low, 1 << 20), Begins::Never);
        assert_eq!(alone_at(low, 769 << 20), Begins::Always);
    }

    #[test]
    fn memory_that_is_full_needs_tables_in_proportion() {
        let low = 768 << 20;
        // One byte in 128 for the frame table, and as much for tables.
        assert_eq!(full_at(low, 1.0 / 128.0), Begins::Above(48 * GIB));
        assert_eq!(full_at(low, 1.0), Begins::Always);
        assert_eq!(full_at(low, 0.0), Begins::Never);
    }
}
