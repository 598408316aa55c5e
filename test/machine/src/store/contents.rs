//! What pages hold where nobody knows.
//!
//! A recording has the faults of a program and not what it wrote, so pages of a replay are zero
//! but for a few words, and would take next to nothing in a compressed store. [`Contents`] has
//! pages that compress about as those of real programs do, and mixes each page with one of them:
//! what the page holds is not lost, and what is compressed is of a realistic size.
//!
//! Of twenty pages, four are zero, one does not compress, and LZ4 makes 700 to 2000 bytes of each
//! of the others: rounded figures of the memory that Cargo and Python have written, as
//! `cargo bench -p vellum-compressed` prints them.

/// Pages that there are.
const PAGES: u64 = 40;
/// Those that are zero, and those that are random, of which the last are.
const ZERO: u64 = 8;
const RANDOM: u64 = 2;

/// Pages that compress as those of programs do. The same every time.
#[derive(Clone, Debug)]
pub struct Contents {
    pages: Vec<Box<[u8]>>,
}

fn mixed(number: u64) -> u64 {
    let mixed = (number ^ number >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}

/// Numbers that look random.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mixed(self.0)
    }
}

impl Contents {
    /// Pages of `page_bytes` bytes, a multiple of 8.
    pub fn new(page_bytes: usize) -> Contents {
        let page = |number| {
            let words = (0..page_bytes / 8).scan(
                (Numbers(number), [0; 4]),
                move |(numbers, last), place| {
                    let word = Self::word(number, numbers, last[place % last.len()]);
                    last[place % last.len()] = word;
                    Some(word.to_le_bytes())
                },
            );
            words.flatten().collect()
        };
        Contents {
            pages: (0..PAGES).map(page).collect(),
        }
    }

    /// A word of a page, which follows one four words before: fields of records that are
    /// alike, pointers and small numbers.
    fn word(number: u64, numbers: &mut Numbers, last: u64) -> u64 {
        let random = numbers.next();
        if number < ZERO {
            return 0;
        }
        if number >= PAGES - RANDOM {
            return random;
        }
        // From 1 word in 7 to 2 in 5 are new.
        let share = 37 + (number - ZERO) * 68 / (PAGES - RANDOM - ZERO);
        match random & 0xff {
            kind if kind >= share => last,
            kind if kind & 1 == 0 => 0x7f00_0000_0000_0000 | random >> 16 & 0xff_fff8,
            _ => random >> 16 & 0xff,
        }
    }

    /// Mixes a page with the one of a number; once more, and it is as it was.
    pub fn mix(&self, number: u64, page: &mut [u8]) {
        let contents = &self.pages[(mixed(number) % PAGES) as usize];
        for (byte, other) in page.iter_mut().zip(contents) {
            *byte ^= other;
        }
    }
}

#[cfg(test)]
mod tests {
    use vellum_compressed::Scratch;

    use super::*;

    #[test]
    fn pages_compress_as_is_said_of_them() {
        for page_bytes in [4096, 16384] {
            let contents = Contents::new(page_bytes);
            let mut scratch = Scratch::new(page_bytes);
            let sizes = contents.pages.iter().map(|page| {
                let packed = scratch.compress(page).expect("room");
                packed * 4096 / page_bytes
            });
            let sizes: Vec<usize> = sizes.collect();
            let (zero, others) = sizes.split_at(ZERO as usize);
            let (others, random) = others.split_at((PAGES - ZERO - RANDOM) as usize);
            assert!(zero.iter().all(|&size| size < 40), "{zero:?}");
            assert!(random.iter().all(|&size| size > 4000), "{random:?}");
            let range = (others.iter().min().unwrap(), others.iter().max().unwrap());
            assert!(*range.0 > 600 && *range.1 < 2200, "{others:?}");
            let mean = others.iter().sum::<usize>() / others.len();
            assert!((1150..1450).contains(&mean), "{mean}");
        }
    }

    #[test]
    fn a_page_mixed_twice_is_as_it_was() {
        let contents = Contents::new(4096);
        for slot in 0..100 {
            let page: Vec<u8> = (0..4096).map(|at| (at * slot) as u8).collect();
            let mut other = page.clone();
            contents.mix(slot as u64, &mut other);
            contents.mix(slot as u64, &mut other);
            assert_eq!(page, other);
        }
    }
}
