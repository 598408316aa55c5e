//! Lines that were used lately, found by their host address without looking for their place.

use crate::directory::LineId;
use crate::places::{LINE, PAGE_LINES};

/// How many are remembered: one for each remainder of their number.
const RECENT: usize = 1 << 13;

/// A line: the number of its host address in lines, and what the directory knows it by.
#[derive(Clone, Copy, Debug)]
struct Recent {
    host_line: usize,
    id: LineId,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct RecentLines(Box<[Recent]>);

impl RecentLines {
    /// None yet.
    pub(crate) fn new() -> RecentLines {
        let none = Recent {
            host_line: usize::MAX,
            id: 0,
        };
        RecentLines(vec![none; RECENT].into_boxed_slice())
    }

    /// The line at a host address, if it was used lately.
    #[inline]
    pub(crate) fn find(&self, address: usize) -> Option<LineId> {
        let host_line = address / LINE;
        let recent = self.0[host_line % RECENT];
        (recent.host_line == host_line).then_some(recent.id)
    }

    /// The line at a host address is used.
    #[inline]
    pub(crate) fn note(&mut self, address: usize, id: LineId) {
        let host_line = address / LINE;
        self.0[host_line % RECENT] = Recent { host_line, id };
    }

    /// The lines of a page at a host address are not known by what they were any more.
    pub(crate) fn forget_page(&mut self, address: usize) {
        let first = address / LINE;
        for host_line in first..first + PAGE_LINES {
            let recent = &mut self.0[host_line % RECENT];
            if recent.host_line == host_line {
                recent.host_line = usize::MAX;
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
