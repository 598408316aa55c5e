//! A fault as perf's own events tell it, `page-faults` and its kin: an address, not what for.
//!
//! ```text
//! page-faults:     7f7bac553e06 _rtld_global+0xde6 (/usr/lib/ld.so)     7f7bac53b7ad _dl_start+0x3d (/usr/lib/ld.so)
//! ```
//!
//! Which fields are printed shows only over many lines: one number alone can be the address or that
//! of the instruction.

/// Kernel addresses begin here.
const KERNEL: u64 = 1 << 63;

/// The numbers of a line.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PlainFault<'a> {
    /// The event.
    pub name: &'a str,
    /// The number that stands first.
    pub first: Option<u64>,
    /// The number after it, of the instruction.
    pub second: Option<u64>,
    /// A symbol or file follows the first number.
    named: bool,
}

impl<'a> PlainFault<'a> {
    /// Takes apart what follows the event.
    pub fn parse(name: &'a str, fields: &str) -> PlainFault<'a> {
        let mut numbers = numbers(fields);
        let (first, rest) = match numbers.next() {
            Some((0, number, end)) => (Some(number), &fields[end..]),
            _ => (None, ""),
        };
        let far =
            |&(at, _, end): &(usize, u64, usize)| end - at == 16 || fields[..at].ends_with("  ");
        let second = numbers.find(far).map(|(_, number, _)| number);
        PlainFault {
            name,
            first,
            second: first.and(second),
            named: !rest.trim().is_empty(),
        }
    }

    /// Whether the event stands for all faults, not those of one kind.
    pub fn is_of_every_kind(&self) -> bool {
        matches!(self.name, "page-faults" | "faults")
    }
}

/// Hexadecimal words that can be addresses: place, value, end. What `data_src` prints is none.
fn numbers(fields: &str) -> impl Iterator<Item = (usize, u64, usize)> + '_ {
    let mut at = 0;
    std::iter::from_fn(move || {
        loop {
            let rest = &fields[at..];
            let begin = at + (rest.len() - rest.trim_start().len());
            let word = fields[begin..].split_whitespace().next()?;
            at = begin + word.len();
            let is_number = (4..=16).contains(&word.len()) || begin == 0;
            let is_source = fields[at..].trim_start().starts_with("|OP ");
            if let Ok(number) = u64::from_str_radix(word, 16)
                && is_number
                && !is_source
            {
                return Some((begin, number, at));
            }
        }
    })
}

/// What the lines of plain faults look like together.
#[derive(Default)]
pub struct Looks {
    pub faults: u64,
    with_two: u64,
    with_one: u64,
    named: u64,
    in_kernel: u64,
    chains: u64,
    /// There are lines of `page-faults`, which stand for those of other events too.
    pub every_kind: bool,
}

impl Looks {
    /// A fault's line.
    pub fn see(&mut self, fault: &PlainFault<'_>) {
        self.faults += 1;
        self.every_kind |= fault.is_of_every_kind();
        self.in_kernel += u64::from(fault.first.is_some_and(|number| number >= KERNEL));
        match (fault.first, fault.second) {
            (Some(_), Some(_)) => self.with_two += 1,
            (Some(_), None) => {
                self.with_one += 1;
                self.named += u64::from(fault.named);
            }
            _ => {}
        }
    }

    /// A line of a call chain.
    pub fn see_chain(&mut self) {
        self.chains += u64::from(self.faults > 0);
    }

    /// Whether the first number is the address, and not the instruction's. Two numbers are both; with
    /// call chains the instruction stands in these; and no instruction stands without its symbol.
    pub fn has_addresses(&self) -> bool {
        if self.with_two > 0 {
            return self.with_two >= self.with_one && self.in_kernel * 10 <= self.faults;
        }
        let bare = self.in_kernel == 0 && self.named * 2 < self.with_one;
        self.with_one > 0 && self.in_kernel == 0 && (self.chains >= self.faults || bare)
    }
}

/// Whether an instruction is the kernel's.
pub fn is_in_kernel(instruction: Option<u64>) -> bool {
    instruction.is_some_and(|at| at >= KERNEL)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(fields: &str) -> (Option<u64>, Option<u64>) {
        let fault = PlainFault::parse("page-faults", fields);
        (fault.first, fault.second)
    }

    #[test]
    fn the_numbers_of_a_line_are_found_whatever_is_printed_around_them() {
        for (fields, first, second) in [
            (
                "7f7bac553e06 _rtld_global+0xde6 (/usr/lib/ld.so)     7f7bac53b7ad _dl_start+0x3d (/usr/lib/ld.so)",
                0x7f7b_ac55_3e06,
                Some(0x7f7b_ac53_b7ad),
            ),
            (
                "7f7bac554110 [unknown] (//anon) ffffffff817554ea elf_load+0x28a ([kernel.kallsyms])",
                0x7f7b_ac55_4110,
                Some(0xffff_ffff_8175_54ea),
            ),
            (
                "0 [unknown] ([unknown])           401136 main+0x6 (/bin/x y)",
                0,
                Some(0x40_1136),
            ),
            (
                "7f7bac553e06          5080021 |OP N/A|LVL N/A|SNP N/A  7f7bac53b7ad",
                0x7f7b_ac55_3e06,
                Some(0x7f7b_ac53_b7ad),
            ),
            ("7f7bac553e06", 0x7f7b_ac55_3e06, None),
            (
                "7f7bac53b7ad add(int) (/bin/bad feed)",
                0x7f7b_ac53_b7ad,
                None,
            ),
        ] {
            assert_eq!(parsed(fields), (Some(first), second), "{fields}");
        }
        for fields in [
            "",
            "[unknown] (x)",
            "5080021 |OP N/A|LVL N/A",
            "main+0x6  401136",
        ] {
            assert_eq!(parsed(fields).0, None, "{fields}");
        }
    }

    #[test]
    fn one_number_is_an_address_only_where_it_can_be_no_instruction() {
        let looks = |lines: &[&str], chains: usize| {
            let mut looks = Looks::default();
            for line in lines {
                looks.see(&PlainFault::parse("page-faults", line));
            }
            (0..chains).for_each(|_| looks.see_chain());
            looks.has_addresses()
        };
        assert!(looks(&["7f00", "7f01"], 0));
        assert!(!looks(&["7f00", "ffffffff81000000"], 0));
        assert!(!looks(&["7f00 main (/bin/x)"], 0));
        assert!(looks(&["7f00 main (/bin/x)"], 3));
        assert!(looks(&["7f00 x (//anon)     401000 main (/bin/x)"], 0));
        assert!(!looks(&["", ""], 6) && !looks(&[], 0));
        // The instruction and the place in memory of what it used.
        assert!(!looks(
            &["ffffffff81755554 elf_load ([k])        1234f000"],
            0
        ));
    }
}
