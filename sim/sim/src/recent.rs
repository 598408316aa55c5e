//! Lines that were used lately, found by their host address without looking for their place.

use crate::line::LineId;
use crate::places::{LINE, PAGE_LINES};

/// How many are remembered: one for each remainder of their number.
const RECENT: usize = 1 << 16;

/// A line: what its host address is, in lines, beside the remainder, and what the directory knows it
/// by. Half a word each, so that a host's cache has room for many; a host's addresses have fewer
/// bits than that needs.
#[derive(Clone, Copy, Debug)]
struct Recent {
    quotient: u32,
    id: LineId,
}

/// No line.
const NONE: Recent = Recent {
    quotient: u32::MAX,
    id: 0,
};

/// See the module.
#[derive(Debug)]
pub(crate) struct RecentLines(Box<[Recent]>);

/// The quotient and the remainder of a line at a host address.
#[inline]
fn parts(address: usize) -> (u32, usize) {
    let host_line = address / LINE;
    ((host_line / RECENT) as u32, host_line % RECENT)
}

impl RecentLines {
    /// None yet.
    pub(crate) fn new() -> RecentLines {
        RecentLines(vec![NONE; RECENT].into_boxed_slice())
    }

    /// The line at a host address, if it was used lately.
    #[inline]
    pub(crate) fn find(&self, address: usize) -> Option<LineId> {
        let (quotient, remainder) = parts(address);
        let recent = self.0[remainder];
        (recent.quotient == quotient).then_some(recent.id)
    }

    /// The line at a host address is used.
    #[inline]
    pub(crate) fn note(&mut self, address: usize, id: LineId) {
        let (quotient, remainder) = parts(address);
        self.0[remainder] = Recent { quotient, id };
    }

    /// The lines of a page at a host address are not known by what they were any more.
    pub(crate) fn forget_page(&mut self, address: usize) {
        for line in 0..PAGE_LINES {
            let (quotient, remainder) = parts(address + line * LINE);
            let recent = &mut self.0[remainder];
            if recent.quotient == quotient {
                *recent = NONE;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_found_until_another_with_its_remainder_is_used() {
        let mut recent = RecentLines::new();
        let (one, other) = (0x4_0000, 0x4_0000 + RECENT * LINE);
        assert_eq!(recent.find(one), None);
        recent.note(one, 7);
        assert_eq!(recent.find(one + LINE - 1), Some(7));
        assert_eq!(recent.find(one + LINE), None);
        assert_eq!(recent.find(other), None);
        recent.note(other, 8);
        assert_eq!((recent.find(one), recent.find(other)), (None, Some(8)));
        recent.note(one + 2 * LINE, 9);
        recent.forget_page(one);
        assert_eq!(
            (recent.find(one + 2 * LINE), recent.find(other)),
            (None, Some(8))
        );
    }
}
