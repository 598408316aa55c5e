//! Fault hooks, on the core and on the model: of private memory both kinds, of shared memory stores,
//! because the model does not know which of its pages are there.

use vellum::addr::Vpn;
use vellum::platform::HookKind;
use vellum::rmap::ReverseMap;
use vellum::space::{FaultError, HookError, Supply as Given, Traits};
use vellum::table::Format;

use super::drive::{Answer, Check, Driver, map_answer, same};
use super::model::{Caught, Content, Refusal};
use super::ops::{Supply, What};
use super::space::{Clean, Hooks};

pub fn caught(kind: HookKind) -> Result<Caught, String> {
    match kind {
        HookKind::Missing => Ok(Caught::Missing),
        HookKind::Store => Ok(Caught::Store),
        HookKind::Minor => Err("a hook that nobody has registered".into()),
    }
}

fn hook_answer<T>(result: Result<T, HookError>) -> Result<Answer<T>, String> {
    Ok(match result {
        Ok(value) => Ok(value),
        Err(HookError::Fault(FaultError::OutOfMemory | FaultError::GroupLimit(_))) => Err(None),
        Err(HookError::BadRange) => Err(Some(Refusal::BadRange)),
        Err(HookError::NotHooked) => Err(Some(Refusal::NotHooked)),
        Err(HookError::Exists) => Err(Some(Refusal::Exists)),
        Err(other) => return Err(format!("unexpected refusal: {other}")),
    })
}

impl<F: Format, R: ReverseMap> Driver<F, R> {
    pub fn on_hooks(&mut self, slot: u32, what: What) -> Check {
        match what {
            What::Hook {
                place,
                pages,
                hooks,
                ..
            } => {
                let start = self.page(slot, place);
                self.register(slot, start, pages, hooks)
            }
            What::Watch {
                place,
                pages,
                watches,
                ..
            } => {
                let start = self.page(slot, place);
                self.watch(slot, start, pages, watches)
            }
            What::Supply {
                place,
                pages,
                supply,
                ..
            } => {
                let start = self.page(slot, place);
                let pages = if self.tight { pages.min(1) } else { pages };
                self.supply(slot, start, pages, supply)
            }
            _ => Ok(()),
        }
    }

    /// Whether part of a range has hooks.
    pub fn has_hooks(&self, slot: u32, start: u64, pages: u64) -> bool {
        let cells = &self.model.spaces[&slot].cells;
        let mut cells = cells.range(start..start.saturating_add(pages));
        cells.any(|(_, cell)| cell.hooks.any())
    }

    fn register(&mut self, slot: u32, start: u64, pages: u64, mut hooks: Hooks) -> Check {
        let range = start..start.saturating_add(pages);
        let space = &self.model.spaces[&slot];
        let mut private = space.private.range(range.clone());
        if private.any(|(_, private)| private.freed) {
            // Whether it is missing, the model cannot tell.
            return Ok(());
        }
        let mut cells = space.cells.range(range);
        hooks.missing &= cells.all(|(_, cell)| cell.object.is_none());
        let of = |is_set, hook| if is_set { hook } else { Traits::NONE };
        let traits = of(hooks.missing, Traits::HOOK_MISSING);
        let traits = traits.union(of(hooks.stores, Traits::HOOK_STORES));
        let core = self.vm.space(self.ids[&slot]);
        let answer = map_answer(core.hooks(Vpn(start), pages).register(traits))?;
        if answer == Err(None) {
            return self.short(Some(slot));
        }
        let (spaces, objects) = (&mut self.model.spaces, &self.model.objects);
        let space = spaces.get_mut(&slot).expect("live");
        let wanted = space.register(start, pages, hooks, |cell| match cell.object {
            Some(key) => cell.shared && objects[&key].store.is_none(),
            None => cell.frames.is_none(),
        });
        same(answer, wanted.map_err(Some))
    }

    fn watch(&mut self, slot: u32, start: u64, pages: u64, watches: bool) -> Check {
        let core = self.vm.space(self.ids[&slot]);
        let hooks = core.hooks(Vpn(start), pages);
        let answer = hook_answer(match watches {
            true => hooks.protect(),
            false => hooks.unprotect(),
        })?;
        if answer == Err(None) {
            // Some are watched, and some were made.
            hooks.unprotect().map_err(|error| error.to_string())?;
            self.space(slot).unwatch(start, pages);
            self.adopt_clean(slot)?;
            return self.short(Some(slot));
        }
        let (spaces, objects) = (&mut self.model.spaces, &self.model.objects);
        let space = spaces.get_mut(&slot).expect("live");
        let wanted = space.may_watch(start, pages);
        same(answer, wanted.map_err(Some))?;
        if answer.is_err() {
            return Ok(());
        }
        space.unwatch(start, pages);
        for page in (start..start + pages).filter(|_| watches) {
            let cell = space.cells[&page];
            let clean = match cell.object {
                None if cell.hooks.missing && !space.has(page) => continue,
                None => Clean::Zero,
                Some(key) if cell.index >= objects[&key].pages => continue,
                Some(_) => Clean::Cached,
            };
            if !space.has(page) {
                space.clean.insert(page, clean);
            }
            space.watched.insert(page);
        }
        Ok(())
    }

    fn supply(&mut self, slot: u32, start: u64, pages: u64, supply: Supply) -> Check {
        let space = &self.model.spaces[&slot];
        let mut cells = space.cells.range(start..start.saturating_add(pages));
        if cells.any(|(_, cell)| cell.object.is_some()) {
            return Ok(());
        }
        let core = self.vm.space(self.ids[&slot]);
        let hooks = core.hooks(Vpn(start), pages);
        let answer = hook_answer(match supply {
            Supply::Zeroes => hooks.supply(Given::Zeroes),
            Supply::Words { value, watched } => {
                let bytes = (pages << self.shape.page_shift) as usize;
                let bytes = value.to_ne_bytes().repeat(bytes / 8);
                match watched {
                    true => hooks.supply(Given::Protected(&bytes)),
                    false => hooks.supply(Given::Bytes(&bytes)),
                }
            }
        })?;
        if answer == Err(None) {
            self.adopt_after_shortage(slot, start)?;
            return self.short(Some(slot));
        }
        let in_range = space.check_range(start, pages);
        let mut done = 0;
        let wanted = in_range.and_then(|()| {
            (start..start + pages).try_for_each(|page| {
                self.supply_page(slot, page, supply)?;
                done += 1;
                Ok(())
            })
        });
        let wanted = wanted.map(|()| done).or_else(|refusal| match done {
            0 => Err(Some(refusal)),
            done => Ok(done),
        });
        same(answer, wanted)
    }

    fn supply_page(&mut self, slot: u32, page: u64, supply: Supply) -> Result<(), Refusal> {
        let grown = self.model.grow_stack(slot, page);
        grown.map_err(|_| Refusal::NotHooked)?;
        let space = self.space(slot);
        let hooks = space.cells[&page].hooks;
        let watches = matches!(supply, Supply::Words { watched: true, .. });
        if !hooks.any() || watches && !hooks.stores {
            return Err(Refusal::NotHooked);
        }
        if space.has(page) {
            return Err(Refusal::Exists);
        }
        match supply {
            Supply::Zeroes => _ = space.clean.insert(page, Clean::Zero),
            Supply::Words { value, .. } => {
                self.model.own(slot, page, Content::of(value));
                self.space(slot).soil(page, 1);
            }
        }
        if watches {
            self.space(slot).watched.insert(page);
        }
        Ok(())
    }
}
