//! What a first store may get beside, or in place of, a frame of the allocator.

use crate::addr::Pfn;
use crate::design::{Design, Folio, Superpages};
use crate::frame::{MAX_ORDER, Owner};
use crate::table::Format;

/// Level of the leaves that superpages are mapped by.
pub(in crate::space) const LEVEL: u32 = 2;

/// Whether format and allocator allow for superpages.
pub(in crate::space) const fn could_have_superpages<F: Format>() -> bool {
    F::INDEX_BITS <= MAX_ORDER && F::MAX_LEAF_LEVEL >= LEVEL
}

/// What a first store may get beside a frame for its page: one byte to test for designs
/// that have nothing of it.
#[derive(Clone, Copy)]
pub(in crate::space) struct Extras(u8);

impl Extras {
    pub(in crate::space) const NONE: Extras = Extras(0);
    const RUNS: u8 = 1;
    const FOLIOS: u8 = 2;

    pub(in crate::space) fn of(design: &Design) -> Extras {
        let runs = u8::from(design.superpages == Superpages::Reserve) * Extras::RUNS;
        let folios = u8::from(design.folio != Folio::Off) * Extras::FOLIOS;
        Extras(runs | folios)
    }

    #[inline]
    pub(in crate::space) fn any(self) -> bool {
        self.0 != 0
    }

    /// Runs are set aside (`superpage=reserve`).
    #[inline]
    pub(in crate::space) fn runs(self) -> bool {
        self.0 & Extras::RUNS != 0
    }

    /// Folios.
    #[inline]
    pub(in crate::space) fn folios(self) -> bool {
        self.0 & Extras::FOLIOS != 0
    }
}

/// A frame that a fault has taken.
#[derive(Clone, Copy)]
pub(in crate::space) struct TakenFrame {
    pub(in crate::space) frame: Pfn,
    /// The run that it came from, and whose that was.
    pub(in crate::space) run: Option<(Pfn, Owner)>,
}

impl TakenFrame {
    /// A frame of no run.
    #[inline]
    pub(in crate::space) fn alone(frame: Pfn) -> TakenFrame {
        TakenFrame { frame, run: None }
    }
}
