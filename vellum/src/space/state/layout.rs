//! Where a space places what is mapped without a place of its own.

use super::locked::LockedSpace;
use super::manager::Vm;
use crate::addr::{PageRange, Vpn};
use crate::platform::Platform;
use crate::rmap::ReverseMap;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::table::Format;

use super::range::LOWEST;

/// Ranges that a space can keep free.
const KEPT: usize = 4;

/// How a space is laid out ([`Space::set_layout`](crate::space::Space::set_layout)).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Layout {
    /// The lowest page that can be mapped, also at a fixed place (Linux's `mmap_min_addr`): 16, so
    /// that null pointers fault, unless somebody says otherwise.
    pub lowest: Vpn,
    /// What is mapped anywhere comes below this page, and above only if there is no gap below
    /// (Linux's `mmap_base`).
    pub base: Vpn,
    /// Where nothing is placed, and neither heap nor stacks grow, but what is mapped at a fixed place
    /// may be. Empty ranges keep nothing free.
    pub kept_free: [PageRange; KEPT],
    /// For the embedder, who maps it: the page behind the first stack.
    pub stack_end: Vpn,
    /// For the embedder, who calls [`Space::set_heap_start`](crate::space::Space::set_heap_start):
    /// how many pages behind the program the heap begins.
    pub heap_gap: u64,
}

/// How many bits of each place are random ([`Layout::random`]).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entropy {
    /// Of [`Layout::base`], beside those of the stack.
    pub base: u32,
    /// Of [`Layout::stack_end`].
    pub stack: u32,
    /// Of [`Layout::heap_gap`].
    pub heap: u32,
}

/// SplitMix64 (Steele, Lea and Flood 2014): the next random number.
fn next(seed: &mut u64) -> u64 {
    *seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let word = (*seed ^ *seed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ word >> 31
}

impl Layout {
    /// The same for all: mappings from the end of what a user space can map down.
    pub fn fixed<F: Format>() -> Layout {
        let end = Vpn(F::USER_END.0 - 1);
        Layout {
            lowest: LOWEST,
            base: end,
            kept_free: [PageRange::default(); KEPT],
            stack_end: end,
            heap_gap: 0,
        }
    }

    /// How random [`Layout::random`] is: of the base up to 28 bits, but at most a 128th of the
    /// address space; of the stack up to 22, and of the heap up to 18, at most a 256th and a 64th.
    /// So it is 28, 22 and 18 bits on x86-64, as on Linux, and 12, 11 and 13 on x86-pae.
    pub fn entropy<F: Format>() -> Entropy {
        let all = (F::USER_END.0 + 1).ilog2();
        let bits = |most: u32, share: u32| most.min(all.saturating_sub(share));
        Entropy {
            base: bits(28, 7),
            stack: bits(22, 8),
            heap: bits(18, 6),
        }
    }

    /// A layout that nobody can guess who does not know the seed (`randomize_va_space`): the same
    /// for the same seed. The base leaves room for a stack of `stack_pages` pages, of 128 MiB at
    /// least.
    pub fn random<F: Format>(mut seed: u64, stack_pages: u64) -> Layout {
        let entropy = Self::entropy::<F>();
        let mut pages = |bits: u32| next(&mut seed) & ((1 << bits) - 1);
        let fixed = Self::fixed::<F>();
        let stack_end = fixed.stack_end.0 - pages(entropy.stack);
        let most = F::USER_END.0 / 6 * 5;
        let room = stack_pages.clamp((128 << 20 >> F::FRAME_SHIFT).min(most), most);
        let base = stack_end.saturating_sub(room + pages(entropy.base));
        Layout {
            base: Vpn(base.max(F::USER_END.0 / 8)),
            stack_end: Vpn(stack_end),
            heap_gap: pages(entropy.heap),
            ..fixed
        }
    }
}

/// A layout as its space keeps it. Changed by who has all locks of the space.
#[derive(Debug, Default)]
pub(in crate::space) struct LayoutWords {
    lowest: AtomicU64,
    base: AtomicU64,
    kept: [[AtomicU64; 2]; KEPT],
    stack_end: AtomicU64,
    heap_gap: AtomicU64,
    has_kept: AtomicU64,
}

impl LayoutWords {
    pub(in crate::space) fn set(&self, layout: &Layout) {
        let set = |word: &AtomicU64, value| word.store(value, Ordering::Relaxed);
        set(&self.lowest, layout.lowest.0);
        set(&self.base, layout.base.0);
        set(&self.stack_end, layout.stack_end.0);
        set(&self.heap_gap, layout.heap_gap);
        for ([start, end], kept) in self.kept.iter().zip(layout.kept_free) {
            set(start, kept.start.0);
            set(end, kept.end.0);
        }
        let has_kept = layout.kept_free.iter().any(|kept| !kept.is_empty());
        set(&self.has_kept, u64::from(has_kept));
    }

    pub(in crate::space) fn get(&self) -> Layout {
        let get = |word: &AtomicU64| word.load(Ordering::Relaxed);
        Layout {
            lowest: self.lowest(),
            base: self.base(),
            kept_free: core::array::from_fn(|nth| PageRange {
                start: Vpn(get(&self.kept[nth][0])),
                end: Vpn(get(&self.kept[nth][1])),
            }),
            stack_end: Vpn(get(&self.stack_end)),
            heap_gap: get(&self.heap_gap),
        }
    }

    /// The lowest page that can be mapped.
    #[inline]
    pub(in crate::space) fn lowest(&self) -> Vpn {
        Vpn(self.lowest.load(Ordering::Relaxed))
    }

    #[inline]
    fn base(&self) -> Vpn {
        Vpn(self.base.load(Ordering::Relaxed))
    }

    /// A range that is kept free, if one overlaps this one.
    #[inline]
    pub(in crate::space) fn kept_in(&self, range: PageRange) -> Option<PageRange> {
        match self.has_kept.load(Ordering::Relaxed) {
            0 => None,
            _ => self.find_kept(range),
        }
    }

    #[cold]
    fn find_kept(&self, range: PageRange) -> Option<PageRange> {
        let kept = self.get().kept_free;
        kept.into_iter()
            .find(|kept| !kept.is_empty() && kept.overlaps(range))
    }
}

impl<P: Platform, F: Format, R: ReverseMap> Vm<P, F, R> {
    /// The highest gap for `pages` pages within `bounds`, below the base of the space if there is
    /// one, at a page that is a multiple of `1 << order`.
    pub(in crate::space) fn place_in_gap(
        &self,
        space: LockedSpace<'_, R>,
        (pages, order): (u64, u32),
        bounds: PageRange,
    ) -> Option<Vpn> {
        let mask = 1u64.checked_shl(order)? - 1;
        let width = pages.checked_add(mask)?;
        let layout = &space.layout;
        let bounds = PageRange {
            start: bounds.start.max(layout.lowest()),
            ..bounds
        };
        let below = PageRange {
            end: bounds.end.min(layout.base()),
            ..bounds
        };
        let find = |bounds: PageRange| {
            let fits = bounds.start < bounds.end;
            fits.then(|| self.find_gap(space, width, bounds)).flatten()
        };
        let mut found = find(below);
        if found.is_none() && below != bounds {
            found = find(bounds);
        }
        found.map(|start| Vpn((start.0 + mask) & !mask))
    }
}
