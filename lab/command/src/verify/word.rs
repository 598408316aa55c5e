//! What a word of memory may hold: the writes that no later write is certain to
//! have overwritten.

use super::clocks::{Clocks, Place};

/// One value that was put in a word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Write {
    /// The value.
    pub value: u64,
    /// Who wrote it; `None` for what was there before every operation.
    pub by: Option<Place>,
}

/// The admissible values of one word.
#[derive(Clone, Debug)]
pub struct Word {
    last: Write,
    /// Earlier writes that somebody may still see. Empty with one CPU.
    others: Vec<Write>,
    /// Zero is admissible as well (`MADV_FREE`, holes of files).
    or_zero: bool,
}

impl Word {
    /// A word that holds `value` before every operation.
    pub fn initial(value: u64, or_zero: bool) -> Self {
        Self {
            last: Write { value, by: None },
            others: Vec::new(),
            or_zero,
        }
    }

    /// A word that held `value` before every operation, and that `by` has cut off.
    pub fn cut(value: u64, by: Place) -> Self {
        Self {
            others: vec![Write { value, by: None }],
            ..Self::replaced(0, by)
        }
    }

    /// A word that `by` has put there in the place of everything before.
    pub fn replaced(value: u64, by: Place) -> Self {
        Self {
            last: Write {
                value,
                by: Some(by),
            },
            others: Vec::new(),
            or_zero: false,
        }
    }

    /// `by` writes `value`. Earlier writes stay admissible for those who are not
    /// certain to come later: all in the same slice, which began at `barrier`.
    pub fn write(&mut self, value: u64, by: Place, clocks: &Clocks, barrier: &[u32]) {
        let new = Write {
            value,
            by: Some(by),
        };
        let before = std::mem::replace(&mut self.last, new);
        let or_zero = std::mem::replace(&mut self.or_zero, false);
        if barrier.len() == 1 {
            self.others.clear();
            return;
        }
        self.others.push(before);
        if or_zero {
            self.others.push(Write { value: 0, ..before });
        }
        if self.others.len() > 1 {
            self.forget(clocks, barrier);
        }
    }

    /// Drops writes that were overwritten before the slice began.
    fn forget(&mut self, clocks: &Clocks, barrier: &[u32]) {
        let old = |write: &Write| {
            write
                .by
                .is_none_or(|by| by.position < barrier[by.cpu as usize])
        };
        let all = self.others.clone();
        self.others.retain(|write| {
            !all.iter()
                .any(|later| old(later) && precedes(clocks, write, later))
        });
    }

    /// The page may be dropped from here on.
    pub fn allow_zero(&mut self) {
        self.or_zero = true;
    }

    /// A copy made by `by`. Whatever `by` may have found stays possible in the
    /// copy, however the original goes on.
    pub fn copied(&self, by: Place, clocks: &Clocks) -> Self {
        let copy = |write: &Write| Write {
            value: write.value,
            by: Some(by),
        };
        if self.others.is_empty() {
            return Self {
                last: copy(&self.last),
                others: Vec::new(),
                or_zero: self.or_zero,
            };
        }
        let mut found = self
            .writes()
            .filter(|write| self.admits(write.value, by, clocks))
            .map(copy);
        let last = found.next().unwrap_or_else(|| copy(&self.last));
        Self {
            last,
            others: found.collect(),
            or_zero: self.or_zero,
        }
    }

    /// This word is a copy of `source` that `by` is making: takes in what was
    /// written to the source in the meantime.
    pub fn merge(&mut self, source: &Word, by: Place, clocks: &Clocks) {
        let copy = source.copied(by, clocks);
        for write in copy.writes() {
            if self.writes().all(|known| known != write) {
                self.others.push(*write);
            }
        }
        self.or_zero |= copy.or_zero;
    }

    /// Whether the page may have been dropped.
    pub fn admits_zero(&self) -> bool {
        self.or_zero
    }

    fn writes(&self) -> impl Iterator<Item = &Write> {
        std::iter::once(&self.last).chain(&self.others)
    }

    /// Whether `reader` may find `value`.
    pub fn admits(&self, value: u64, reader: Place, clocks: &Clocks) -> bool {
        if self.or_zero && value == 0 {
            return true;
        }
        if self.others.is_empty() {
            return self.last.value == value;
        }
        let overwritten = |write: &Write| {
            self.writes().any(|later| {
                precedes(clocks, write, later)
                    && later
                        .by
                        .is_some_and(|by| by == reader || clocks.precedes(by, reader))
            })
        };
        self.writes()
            .any(|write| write.value == value && !overwritten(write))
    }

    /// The value of the last write, for messages.
    pub fn expected(&self) -> u64 {
        self.last.value
    }
}

/// Whether `first` is certain to have been overwritten by `second`.
fn precedes(clocks: &Clocks, first: &Write, second: &Write) -> bool {
    match (first.by, second.by) {
        (None, Some(_)) => true,
        (Some(first), Some(second)) => clocks.precedes(first, second),
        (_, None) => false,
    }
}

/// The two words of a page that are watched: its first and its last. Writes
/// alternate between them, so that a copy that was not made shows in the other.
#[derive(Clone, Debug)]
pub struct Page {
    /// The words at [`offsets`].
    pub words: [Word; 2],
    /// It has been written and counted.
    pub counted: bool,
}

/// Byte offsets of the watched words in a page of `1 << page_shift` bytes.
pub const fn offsets(page_shift: u32) -> [u64; 2] {
    [0, (1 << page_shift) - 8]
}

impl Page {
    /// A page that holds `value` in every word before every operation.
    pub fn initial(value: u64, or_zero: bool) -> Self {
        Self {
            words: [Word::initial(value, or_zero), Word::initial(value, or_zero)],
            counted: false,
        }
    }

    /// A page that held `value` in every word, and that `by` has cut off a file.
    pub fn cut(value: u64, by: Place) -> Self {
        let word = Word::cut(value, by);
        Self {
            words: [word.clone(), word],
            counted: false,
        }
    }

    /// A private copy made by `by`.
    pub fn copied(&self, by: Place, clocks: &Clocks) -> Self {
        Self {
            words: [
                self.words[0].copied(by, clocks),
                self.words[1].copied(by, clocks),
            ],
            counted: false,
        }
    }

    /// Whether the page may have been dropped.
    pub fn may_be_absent(&self) -> bool {
        self.words.iter().any(Word::admits_zero)
    }
}
