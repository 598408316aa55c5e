use core::ptr::NonNull;
use core::sync::atomic::Ordering;
use std::format;
use std::vec::Vec;

use super::{FrameBytes, WORD, Word, machine, portable};
use crate::sync::atomic::AtomicU64;
use crate::testing::Rng;

/// Bytes of the frames here. Not a power of two, so that no size is round by itself.
const SIZE: usize = if cfg!(miri) { 1024 } else { 4096 } + 64 + 24;
const ROUNDS: usize = if cfg!(miri) { 60 } else { 1_000 };
/// Of places that follow each other, how far apart those are that are tried.
const APART: usize = if cfg!(miri) { 7 } else { 1 };
/// Words that are zeroed and copied: none, about a line, about eight, a whole page.
const COUNTS: &[usize] = match cfg!(miri) {
    true => &[0, 1, 9, 65],
    false => &[0, 1, 7, 8, 9, 16, 63, 64, 65, 100, 512],
};
/// Of ways to do a thing, the first that Miri runs: those before are the same there.
const fn first_way(ways: usize) -> usize {
    if cfg!(miri) { ways / 2 } else { 0 }
}

/// A frame's words.
struct Memory(Vec<AtomicU64>);

impl Memory {
    fn new(words: usize) -> Memory {
        Memory((0..words as u64).map(AtomicU64::new).collect())
    }

    fn bytes(&self) -> FrameBytes<'_> {
        FrameBytes::of_words(&self.0)
    }

    fn words(&self) -> &[Word] {
        self.bytes().words
    }

    /// Looks at the bytes one by one, by no method that is tested here.
    fn contents(&self) -> Vec<u8> {
        let load = |word: &AtomicU64| word.load(Ordering::Relaxed).to_ne_bytes();
        self.0.iter().flat_map(load).collect()
    }
}

fn random_bytes(rng: &mut Rng, count: usize) -> Vec<u8> {
    (0..count).map(|_| rng.next() as u8).collect()
}

/// An offset near a border of words more often than not, and a count that is short,
/// long or too long.
fn place(rng: &mut Rng) -> (usize, usize) {
    let offset = match rng.below(4) {
        0 => rng.below(SIZE + 20),
        1 => rng.below(SIZE / WORD) * WORD,
        2 => SIZE - rng.below(20),
        _ => rng.below(20),
    };
    let count = match rng.below(4) {
        0 => rng.below(3 * WORD),
        1 => 64 * WORD + rng.below(4 * WORD) - 2 * WORD,
        2 => SIZE + rng.below(20),
        _ => rng.below(SIZE),
    };
    (offset, count)
}

#[test]
fn bytes_are_what_a_plain_array_would_hold() {
    let mut rng = Rng::new(71);
    let memory = Memory::new(SIZE / WORD);
    let bytes = memory.bytes();
    let mut model = memory.contents();
    assert_eq!(bytes.size(), SIZE);
    for round in 0..ROUNDS {
        let (offset, count) = place(&mut rng);
        let fits = count.min(SIZE.saturating_sub(offset));
        match rng.below(40) {
            0 => {
                bytes.zero();
                model.fill(0);
                assert!(bytes.is_zero());
            }
            1 => {
                let word = rng.next();
                bytes.fill(word);
                for place in model.chunks_exact_mut(WORD) {
                    place.copy_from_slice(&word.to_ne_bytes());
                }
            }
            2..=20 => {
                let data = random_bytes(&mut rng, count);
                assert_eq!(bytes.write(offset, &data), fits, "round {round}");
                let offset = offset.min(SIZE);
                model[offset..offset + fits].copy_from_slice(&data[..fits]);
            }
            _ => {
                let mut data = random_bytes(&mut rng, count);
                let mut wanted = data.clone();
                let start = offset.min(SIZE);
                wanted[..fits].copy_from_slice(&model[start..start + fits]);
                assert_eq!(bytes.read(offset, &mut data), fits, "round {round}");
                assert_eq!(data, wanted, "round {round}: {count} bytes at {offset}");
                continue;
            }
        }
        assert_eq!(
            memory.contents(),
            model,
            "round {round}: {count} at {offset}"
        );
    }
}

#[test]
fn offsets_past_the_end_read_and_write_nothing() {
    let memory = Memory::new(8);
    let before = memory.contents();
    let mut data = [9; 3];
    for offset in [64, 65, usize::MAX - 8, usize::MAX] {
        assert_eq!(memory.bytes().write(offset, &data), 0);
        assert_eq!(memory.bytes().read(offset, &mut data), 0);
    }
    assert_eq!((memory.contents(), data), (before, [9; 3]));
    assert_eq!(memory.bytes().write(62, &data), 2);
    assert_eq!(memory.bytes().read(61, &mut data), 3);
    assert_eq!(data, [0, 9, 9]);
}

#[test]
fn a_frame_is_zero_only_when_its_last_byte_is() {
    let memory = Memory::new(SIZE / WORD);
    memory.bytes().zero();
    for at in [0, 7, 8, SIZE / 2, SIZE - 1] {
        assert_eq!(memory.bytes().write(at, &[1]), 1);
        assert!(!memory.bytes().is_zero(), "byte {at}");
        assert_eq!(memory.bytes().write(at, &[0]), 1);
        assert!(memory.bytes().is_zero());
    }
}

#[test]
fn copies_end_with_the_shorter_of_the_two() {
    for (from, to) in [
        (0, 9),
        (9, 0),
        (5, 9),
        (9, 5),
        (100, 70),
        (70, 100),
        (512, 512),
    ] {
        let (source, target) = (Memory::new(from), Memory::new(to));
        source.bytes().fill(0x1122_3344_5566_7788);
        let mut wanted = target.contents();
        let copied = from.min(to) * WORD;
        wanted[..copied].copy_from_slice(&source.contents()[..copied]);
        target.bytes().copy_from(source.bytes());
        assert_eq!(target.contents(), wanted, "{from} words to {to}");
    }
}

/// A way to zero words, by name.
type Zeroing = (&'static str, fn(&[Word]));

/// The ways to zero the words of a slice.
const ZEROING: [Zeroing; 6] = [
    ("fill", |words| machine::fill(words, 0)),
    ("towards", |words| {
        machine::zero_towards(words, words.as_ptr().cast())
    }),
    ("around caches", machine::zero_around_caches),
    ("portable fill", |words| portable::fill(words, 0)),
    ("portable towards", |words| {
        portable::zero_towards(words, core::ptr::null())
    }),
    ("portable around caches", portable::zero_around_caches),
];

#[test]
fn every_way_to_zero_stays_within_its_words() {
    for (name, zero) in &ZEROING[first_way(ZEROING.len())..] {
        for first in (0..9).step_by(APART) {
            for &count in COUNTS {
                let memory = Memory::new(530);
                memory.bytes().fill(u64::MAX);
                let mut wanted = memory.contents();
                wanted[first * WORD..(first + count) * WORD].fill(0);
                zero(&memory.words()[first..first + count]);
                assert_eq!(
                    memory.contents(),
                    wanted,
                    "{name}: {count} words at {first}"
                );
            }
        }
    }
}

/// A way to copy bytes through the words of a slice, there and back.
type ThereAndBack = fn(&[u8], &[Word], &mut [u8]);

#[test]
fn both_ways_to_copy_stay_within_their_words() {
    let ways: [(&str, ThereAndBack); 2] = [
        ("assembly", |data, words, back| {
            let middle = Memory::new(words.len());
            machine::copy_in(data, words);
            machine::copy(words, middle.words());
            machine::copy_out(middle.words(), back);
        }),
        ("portable", |data, words, back| {
            let middle = Memory::new(words.len());
            portable::copy_in(data, words);
            portable::copy(words, middle.words());
            portable::copy_out(middle.words(), back);
        }),
    ];
    let mut rng = Rng::new(72);
    for (name, way) in &ways[first_way(ways.len())..] {
        for &count in COUNTS {
            // Places that lie alike in 32 bytes and such that do not, from words that are
            // aligned to 16 bytes and from words that are not.
            for (shift, first) in (0..40)
                .step_by(APART)
                .flat_map(|shift| [(shift, 1), (shift, 2)])
            {
                let data = random_bytes(&mut rng, count * WORD + shift);
                let data = &data[shift..];
                let mut back = random_bytes(&mut rng, (count + 1) * WORD + shift);
                let mut wanted_back = back.clone();
                wanted_back[shift..shift + count * WORD].copy_from_slice(data);
                let memory = Memory::new(count + first + 1);
                let mut wanted = memory.contents();
                wanted[first * WORD..(count + first) * WORD].copy_from_slice(data);
                let words = &memory.words()[first..count + first];
                way(data, words, &mut back[shift..shift + count * WORD]);
                let what = format!("{name}: {count} words from {first} on, {shift}");
                assert_eq!(memory.contents(), wanted, "{what}");
                assert_eq!(back, wanted_back, "{what}");
            }
        }
    }
}

#[test]
fn bytes_beside_those_that_are_written_keep_what_others_store() {
    const TURNS: u8 = if cfg!(miri) { 20 } else { 250 };
    let memory = Memory::new(66);
    memory.bytes().zero();
    // Neighbours in one word, and long writes whose ends meet inside of a word.
    let parts = [0..3, 3..8, 8..261, 261..521];
    std::thread::scope(|scope| {
        for part in parts.clone() {
            let bytes = memory.bytes();
            scope.spawn(move || {
                let mut seen = std::vec![0; part.len()];
                for turn in 1..=TURNS {
                    let data = std::vec![turn; part.len()];
                    assert_eq!(bytes.write(part.start, &data), part.len());
                    assert_eq!(bytes.read(part.start, &mut seen), part.len());
                    assert_eq!(seen, data, "{part:?} was changed by others");
                }
            });
        }
    });
    assert_eq!(memory.contents()[..521], [TURNS; 521]);
    assert_eq!(memory.contents()[521..], [0; 528 - 521]);
}

/// As when a page is copied for a task, read, or written back, while another task
/// stores to it.
#[test]
fn a_copy_of_a_page_that_is_stored_to_has_each_word_before_or_after() {
    const TURNS: u8 = if cfg!(miri) { 3 } else { 200 };
    let words = if cfg!(miri) { 70 } else { 512 };
    let [page, copy] = [(); 2].map(|()| Memory::new(words));
    page.bytes().zero();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for turn in 1..=TURNS {
                // A processor's stores, a whole fill, and a write of some of it.
                let value = u64::from_ne_bytes([turn; WORD]);
                for word in page.bytes().words() {
                    word.store(value, Ordering::Relaxed);
                }
                page.bytes().fill(value);
                page.bytes().write(8, &[turn; 64 * WORD]);
            }
        });
        let mut read = std::vec![0; words * WORD + 32];
        for turn in 0..TURNS {
            copy.bytes().copy_from(page.bytes());
            // Half of the places lie otherwise in 32 bytes than the page does.
            let read = &mut read[usize::from(turn % 4) * WORD..][..words * WORD];
            page.bytes().read(0, read);
            for word in copy.contents().chunks(WORD).chain(read.chunks(WORD)) {
                assert!(
                    word.iter().all(|byte| *byte == word[0]),
                    "a torn word: {word:?}"
                );
            }
        }
    });
    copy.bytes().copy_from(page.bytes());
    assert_eq!(copy.contents(), std::vec![TURNS; words * WORD]);
}

#[test]
fn words_are_the_frame_itself() {
    let memory = Memory::new(4);
    memory.bytes().words()[2].store(7, Ordering::Relaxed);
    assert_eq!(memory.0[2].load(Ordering::Relaxed), 7);
    let start = NonNull::from(&memory.0[1..]).cast();
    // SAFETY: three words, accessed as atomics only.
    let part = unsafe { FrameBytes::new(start, 3 * WORD) };
    part.zero();
    assert_eq!(memory.contents()[..WORD], [0; WORD]);
    assert!(part.is_zero());
}
