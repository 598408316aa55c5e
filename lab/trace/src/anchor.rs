//! Guesses the next page of a task from the pages it used before.
//!
//! Address-space randomisation makes absolute addresses of two runs of one
//! program different, but distances inside a region stay the same. A task
//! therefore keeps a few *anchors*, the places where it last was, most
//! recently used first; a page is coded as "anchor number, distance". Two
//! compiler runs then look alike, and the compressor folds them together.
//!
//! Writer and reader run the same code over the same pages, so the table never
//! travels. `docs/trace-format.md` states the rules.

use crate::event::FileId;

/// Anchors a task has at most.
pub const SLOTS: usize = 24;
/// A page at most this far from its anchor moves the anchor; one further away
/// leaves it where it is and becomes an anchor of its own.
const NEAR: u64 = 32;
/// A page further than this from every anchor is coded by its number.
const FAR: u64 = 1 << 22;

/// Where a file's pages lie around an anchor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Backing {
    pub file: FileId,
    /// Page of the file minus page of the address, wrapping.
    pub shift: u64,
}

#[derive(Clone, Copy, Debug)]
struct Anchor {
    page: u64,
    backing: Option<Backing>,
}

/// How a page is coded: an anchor and a distance, or (`slot == ESCAPE`) the
/// page number itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Code {
    pub slot: u8,
    /// Distance from the page after the anchor, or the page number.
    pub distance: i64,
}

/// The slot number that says "no anchor".
pub const ESCAPE: u8 = SLOTS as u8;

/// The anchors of one task. The most recently used one is first.
#[derive(Clone, Debug, Default)]
pub struct Anchors {
    slots: Vec<Anchor>,
}

impl Anchors {
    /// Codes `page` and moves to it.
    pub fn encode(&mut self, page: u64) -> Code {
        let mut best: Option<(u64, usize)> = None;
        for (slot, anchor) in self.slots.iter().enumerate() {
            let distance = page.wrapping_sub(anchor.page + 1) as i64;
            let away = distance.unsigned_abs();
            if best.is_none_or(|(least, _)| away < least) {
                best = Some((away, slot));
            }
        }
        let code = match best {
            Some((away, slot)) if away <= FAR => Code {
                slot: slot as u8,
                distance: page.wrapping_sub(self.slots[slot].page + 1) as i64,
            },
            _ => Code {
                slot: ESCAPE,
                distance: page as i64,
            },
        };
        self.follow(code, page);
        code
    }

    /// The page that `code` stands for, after moving to it. `None` if there is
    /// no such anchor or no such page.
    pub fn decode(&mut self, code: Code) -> Option<u64> {
        let page = if code.slot == ESCAPE {
            code.distance as u64
        } else {
            let anchor = self.slots.get(usize::from(code.slot))?;
            (anchor.page + 1).wrapping_add(code.distance as u64)
        };
        if page >> 52 != 0 {
            return None;
        }
        self.follow(code, page);
        Some(page)
    }

    fn follow(&mut self, code: Code, page: u64) {
        let mut anchor = Anchor {
            page,
            backing: None,
        };
        if code.slot == ESCAPE {
            self.slots.truncate(SLOTS - 1);
            self.slots.insert(0, anchor);
            return;
        }
        let slot = usize::from(code.slot);
        anchor.backing = self.slots[slot].backing;
        if code.distance.unsigned_abs() <= NEAR {
            self.slots.remove(slot);
        } else {
            self.slots.truncate(SLOTS - 1);
        }
        self.slots.insert(0, anchor);
    }

    /// Page and file of the anchor used last.
    pub fn current(&self) -> (u64, Option<Backing>) {
        self.slots
            .first()
            .map_or((0, None), |anchor| (anchor.page, anchor.backing))
    }

    /// Says which file lies around the anchor used last.
    pub fn set_backing(&mut self, backing: Option<Backing>) {
        if let Some(first) = self.slots.first_mut() {
            first.backing = backing;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reader_and_writer_agree_on_every_page() {
        let (mut writer, mut reader) = (Anchors::default(), Anchors::default());
        let mut state = 7u64;
        for step in 0..20_000u64 {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let base = [0x400, 0x7f_ffff_0000, 0x5555_0000, (1 << 52) - 200_000]
                [(state >> 60) as usize & 3];
            let page = base + ((state >> 33) % [4, 90, 100_000][(step % 3) as usize]);
            let code = writer.encode(page);
            assert_eq!(reader.decode(code), Some(page), "step {step}");
        }
    }

    #[test]
    fn codes_that_name_nothing_are_refused() {
        let mut anchors = Anchors::default();
        let slot = |slot, distance| Code { slot, distance };
        assert_eq!(anchors.decode(slot(0, 0)), None);
        assert_eq!(anchors.decode(slot(ESCAPE, -1)), None);
        assert_eq!(anchors.decode(slot(ESCAPE, 5)), Some(5));
        assert_eq!(anchors.decode(slot(0, -7)), None);
        assert_eq!(anchors.decode(slot(1, 0)), None);
        assert_eq!(anchors.decode(slot(255, 0)), None);
    }
}
