//! What lines have cost.

use std::collections::HashMap;

use crate::line::LineId;
use crate::places::{PAGE_LINES, Spot};
use crate::profile::LineCosts;

/// Lines whose costs are kept together: most pages have few lines that cost anything.
const GROUP: usize = 8;
/// No page.
const NONE: u32 = u32::MAX;

/// Where the costs of a line are, for as long as there are costs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct CostId(u32);

/// A page of a place with lines that cost anything.
#[derive(Debug)]
struct Page {
    spot: Spot,
    groups: [Option<Box<[LineCosts; GROUP]>>; PAGE_LINES / GROUP],
}

/// The costs of all lines.
#[derive(Default, Debug)]
pub(crate) struct Costs {
    pages: Vec<Page>,
    by_spot: HashMap<Spot, u32>,
    /// The number of the page whose lines are on a page of the directory now.
    by_page: Vec<u32>,
}

impl Costs {
    /// Lines of a page of a place are on a page of the directory from now on.
    pub(crate) fn begin_page(&mut self, page: u32, spot: Spot) {
        let page = page as usize;
        self.by_page.resize(self.by_page.len().max(page + 1), NONE);
        self.by_page[page] = self.by_spot.get(&spot).copied().unwrap_or(NONE);
    }

    /// Where those of a line are, whose page is one of `spots`, those of the directory's pages.
    #[inline]
    pub(crate) fn id(&mut self, line: LineId, spots: &[Spot]) -> CostId {
        let page = line as usize / PAGE_LINES;
        let number = match self.by_page[page] {
            NONE => self.begin(page, spots[page]),
            number => number,
        };
        CostId(number * PAGE_LINES as u32 + line % PAGE_LINES as u32)
    }

    #[cold]
    fn begin(&mut self, page: usize, spot: Spot) -> u32 {
        let number = self.pages.len() as u32;
        self.pages.push(Page {
            spot,
            groups: Default::default(),
        });
        self.by_spot.insert(spot, number);
        self.by_page[page] = number;
        number
    }

    #[inline]
    pub(crate) fn at(&mut self, id: CostId) -> &mut LineCosts {
        let (page, line) = (id.0 as usize / PAGE_LINES, id.0 as usize % PAGE_LINES);
        let group = &mut self.pages[page].groups[line / GROUP];
        &mut group.get_or_insert_default()[line % GROUP]
    }

    /// Forgets them all.
    pub(crate) fn forget(&mut self) {
        for page in &mut self.pages {
            page.groups = Default::default();
        }
    }

    /// Those of every line that cost anything, with its page and its number there.
    pub(crate) fn all(&self) -> impl Iterator<Item = (Spot, usize, LineCosts)> {
        self.pages.iter().flat_map(|page| {
            let groups = page.groups.iter().enumerate();
            let lines = groups.flat_map(|(group, lines)| {
                let lines = lines.iter().flat_map(|lines| lines.iter().enumerate());
                lines.map(move |(line, costs)| (group * GROUP + line, *costs))
            });
            lines
                .filter(|(_, costs)| *costs != LineCosts::default())
                .map(|(line, costs)| (page.spot, line, costs))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_stay_with_the_page_of_a_place_wherever_the_directory_has_it() {
        let mut costs = Costs::default();
        let [one, other] = [5, 9].map(|page| Spot { place: 0, page });
        costs.begin_page(0, one);
        let id = costs.id(3, &[one]);
        costs.at(id).lost += 7;
        // The directory gives the page to another, and later takes up the first elsewhere.
        costs.begin_page(0, other);
        let other_id = costs.id(3, &[other]);
        costs.at(other_id).spun += 2;
        costs.begin_page(1, one);
        let again = costs.id(PAGE_LINES as u32 + 3, &[other, one]);
        assert_eq!(again, id);
        costs.at(id).lost += 1;
        let all: Vec<(u32, usize, u64, u64)> = costs
            .all()
            .map(|(spot, line, costs)| (spot.page, line, costs.lost, costs.spun))
            .collect();
        assert_eq!(all, [(5, 3, 8, 0), (9, 3, 0, 2)]);
        costs.forget();
        assert_eq!(costs.all().count(), 0);
        costs.at(id).lost = 1;
        assert_eq!(costs.all().count(), 1);
    }
}
