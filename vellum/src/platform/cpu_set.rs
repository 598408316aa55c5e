//! Sets of CPUs.

use super::CpuId;

/// A set of CPUs, exact up to 512 CPUs and rounded up to groups beyond that.
///
/// On machines of up to 64 CPUs it is one word. On larger ones it refers to [`CpuWords`],
/// which whoever asked for the set keeps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CpuSet<'w> {
    /// The first 64 CPUs, or whether there are any in the words.
    bits: u64,
    words: Option<&'w CpuWords>,
}

/// The CPUs of a machine of more than 64.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CpuWords {
    words: [u64; CpuWords::COUNT],
    shift: u32,
}

impl CpuWords {
    /// How many words there are.
    pub const COUNT: usize = 8;

    /// Log2 of the CPUs that share one bit on a machine of `cpus` CPUs.
    pub const fn shift_for(cpus: usize) -> u32 {
        let mut shift = 0;
        while cpus > (Self::COUNT * 64) << shift {
            shift += 1;
        }
        shift
    }

    /// Those whose bits are set, of a machine where `1 << shift` CPUs share a bit.
    pub const fn new(words: [u64; CpuWords::COUNT], shift: u32) -> CpuWords {
        CpuWords { words, shift }
    }

    /// Where the bit of `cpu` is: in which word, and which of its bits.
    #[inline]
    pub const fn place(cpu: CpuId, shift: u32) -> (usize, u64) {
        let group = cpu.0 as usize >> shift;
        (group / 64, 1 << (group % 64))
    }
}

impl<'w> CpuSet<'w> {
    /// No CPU.
    pub const EMPTY: CpuSet<'static> = CpuSet::from_bits(0);

    /// CPUs that such a set can hold without words.
    pub const SMALL: usize = 64;

    /// Those of the first 64 CPUs whose bits are set.
    #[inline]
    pub const fn from_bits(bits: u64) -> CpuSet<'static> {
        CpuSet { bits, words: None }
    }

    /// Those in `words`.
    pub fn of(words: &'w CpuWords) -> CpuSet<'w> {
        CpuSet {
            bits: u64::from(words.words.iter().any(|&word| word != 0)),
            words: Some(words),
        }
    }

    /// The bit of one of the first 64 CPUs.
    #[inline]
    pub const fn bit(cpu: CpuId) -> u64 {
        1 << cpu.0
    }

    /// Whether `cpu` is in the set.
    #[inline]
    pub const fn contains(self, cpu: CpuId) -> bool {
        match self.words {
            None => (cpu.0 as usize) < Self::SMALL && self.bits & Self::bit(cpu) != 0,
            Some(many) => {
                let (word, bit) = CpuWords::place(cpu, many.shift);
                word < CpuWords::COUNT && many.words[word] & bit != 0
            }
        }
    }

    /// Whether `cpu` is the only CPU that can be in the set.
    #[inline]
    pub(crate) fn has_no_other_than(self, cpu: CpuId) -> bool {
        match self.words {
            None => self.bits & !Self::bit(cpu) == 0,
            Some(many) => many.has_no_other_than(cpu),
        }
    }

    /// Whether the set is empty.
    #[inline]
    pub const fn is_empty(self) -> bool {
        self.bits == 0
    }

    /// The members, on a machine of `cpus` CPUs, ascending.
    #[inline]
    pub fn iter(self, cpus: usize) -> CpuIter<'w> {
        let (word, more, shift) = match self.words {
            None => (self.bits, &[][..], 0),
            Some(many) => (many.words[0], &many.words[1..], many.shift),
        };
        CpuIter {
            word,
            base: 0,
            more,
            shift,
            place: 0,
            cpus: cpus as u32,
        }
    }
}

/// The members of a [`CpuSet`].
#[derive(Clone, Debug)]
pub struct CpuIter<'w> {
    /// What is left of the word at hand, whose first bit has the number `base`.
    word: u64,
    base: u32,
    more: &'w [u64],
    shift: u32,
    /// Which of the CPUs of the first bit that is left comes next.
    place: u32,
    cpus: u32,
}

impl Iterator for CpuIter<'_> {
    type Item = CpuId;

    #[inline]
    fn next(&mut self) -> Option<CpuId> {
        while self.word == 0 {
            let (&word, more) = self.more.split_first()?;
            (self.word, self.more) = (word, more);
            self.base += u64::BITS;
        }
        let bit = self.base + self.word.trailing_zeros();
        let cpu = (bit << self.shift) + self.place;
        self.place += 1;
        if self.place >> self.shift != 0 {
            self.place = 0;
            self.word &= self.word - 1;
        }
        // Of the last bits some CPUs may not exist.
        (cpu < self.cpus).then_some(CpuId(cpu as u16))
    }
}

impl CpuWords {
    fn has_no_other_than(&self, cpu: CpuId) -> bool {
        let (place, bit) = Self::place(cpu, self.shift);
        let mut words = self.words.iter().enumerate();
        words.all(|(word, &bits)| {
            let allowed = if word == place && self.shift == 0 {
                bit
            } else {
                0
            };
            bits & !allowed == 0
        })
    }
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::*;

    fn words(cpus: &[u16], shift: u32) -> CpuWords {
        let mut words = [0; CpuWords::COUNT];
        for &cpu in cpus {
            let (word, bit) = CpuWords::place(CpuId(cpu), shift);
            words[word] |= bit;
        }
        CpuWords::new(words, shift)
    }

    fn members(set: CpuSet<'_>, cpus: usize) -> Vec<u16> {
        set.iter(cpus).map(|cpu| cpu.0).collect()
    }

    #[test]
    fn a_set_of_few_cpus_has_those_whose_bits_are_set() {
        let set = CpuSet::from_bits(1 << 63 | 0b101);
        assert_eq!(members(set, 64), [0, 2, 63]);
        assert_eq!(members(set, 3), [0, 2], "there are no others");
        assert!(set.contains(CpuId(63)) && !set.contains(CpuId(1)) && !set.contains(CpuId(64)));
        assert!(!set.is_empty() && CpuSet::EMPTY.is_empty());
        assert!(CpuSet::from_bits(4).has_no_other_than(CpuId(2)));
        assert!(CpuSet::EMPTY.has_no_other_than(CpuId(2)));
        assert!(!set.has_no_other_than(CpuId(2)));
    }

    #[test]
    fn a_set_of_up_to_512_cpus_is_exact() {
        assert_eq!([64, 65, 512].map(CpuWords::shift_for), [0, 0, 0]);
        let cpus = [0, 63, 64, 130, 448, 511];
        let words = words(&cpus, 0);
        let set = CpuSet::of(&words);
        assert_eq!(members(set, 512), cpus);
        let contained = (0..600).filter(|&cpu| set.contains(CpuId(cpu)));
        assert_eq!(contained.collect::<Vec<_>>(), cpus);
        assert!(!set.has_no_other_than(CpuId(64)));
    }

    #[test]
    fn one_of_many_cpus_is_known_to_be_alone() {
        let one = words(&[300], 0);
        assert!(CpuSet::of(&one).has_no_other_than(CpuId(300)));
        assert!(!CpuSet::of(&one).has_no_other_than(CpuId(44)));
        let nobody = words(&[], 0);
        assert!(CpuSet::of(&nobody).is_empty());
        assert!(CpuSet::of(&nobody).has_no_other_than(CpuId(300)));
    }

    #[test]
    fn beyond_512_cpus_a_set_has_whole_groups() {
        assert_eq!(
            [513, 1024, 1025, 4096].map(CpuWords::shift_for),
            [1, 1, 2, 3]
        );
        let some = words(&[3, 600], 1);
        let set = CpuSet::of(&some);
        assert_eq!(members(set, 1000), [2, 3, 600, 601]);
        assert_eq!(members(set, 601), [2, 3, 600]);
        let one = words(&[3], 1);
        assert!(
            !CpuSet::of(&one).has_no_other_than(CpuId(3)),
            "CPU 2 may be there"
        );
    }
}
