//! Touches and calls: what tasks do to memory and files, as words.

use vellum_engine::{Access, Advice, Backing, Op, Prot, Sharing, SpaceSlot};

use super::{Planner, TaskNumber};
use crate::linux::protocol::{self, op, word};
use crate::replay::Class;
use crate::replay::regions::{Region, Source};

impl Planner<'_> {
    pub(super) fn touch(
        &mut self,
        task: TaskNumber,
        space: SpaceSlot,
        page: u64,
        access: Access,
        class: Class,
    ) {
        let regions = &mut self.spaces[space.0 as usize].regions;
        if regions.at(page).is_none() {
            regions.grow_stack(page);
        }
        let file = regions.at(page).and_then(|region| region.file_page(page));
        if let Some((file, _)) = file {
            self.use_file(space.0, file.0, false);
        }
        let code = match access {
            Access::Write => op::WRITE,
            Access::Read | Access::Execute => op::READ,
        };
        self.plan.entries[class as usize].touches += 1;
        self.put(task, space.0, &[word(code, class as u8, 0, page)]);
    }

    pub(super) fn map(&mut self, task: TaskNumber, op: &Op, class: Class) {
        let (slot, region) = match *op {
            Op::Map {
                space,
                page,
                pages,
                prot,
                sharing,
                backing,
                grows_down,
            } => {
                let source = match backing {
                    Backing::Anonymous => Source::Anonymous,
                    Backing::File { file, page } => Source::File { file, page },
                };
                let region = Region {
                    start: page,
                    end: page + pages,
                    prot,
                    shared: sharing == Sharing::Shared,
                    grows_down,
                    source,
                };
                (space.0, region)
            }
            Op::Brk { space, start, end } => {
                let heap = self.spaces[space.0 as usize].heap.replace(end);
                let before = heap.unwrap_or(start);
                if end <= before {
                    self.unmap(task, space.0, (end, before), class);
                    return;
                }
                (space.0, Region::anonymous(before, end))
            }
            _ => return,
        };
        let (file, first) = match region.source {
            Source::File { file, page } => {
                self.use_file(slot, file.0, false);
                (u64::from(file.0), page)
            }
            _ => (0, 0),
        };
        let regions = &mut self.spaces[slot as usize].regions;
        let replaces = !regions.parts(region.start, region.end).is_empty();
        let flags = [
            (region.shared, protocol::FLAG_SHARED),
            (region.grows_down, protocol::FLAG_GROWS_DOWN),
            (
                matches!(region.source, Source::File { .. }),
                protocol::FLAG_FILE,
            ),
            (replaces, protocol::FLAG_REPLACES),
        ];
        let set = flags.iter().filter(|(on, _)| *on);
        let flags = set.fold(rights(region.prot), |all, (_, flag)| all | flag);
        regions.insert(region);
        let words = [
            word(op::MAP, class as u8, flags, region.start),
            region.end - region.start,
            file,
            first,
        ];
        self.call(task, slot, class, &words);
    }

    fn unmap(&mut self, task: TaskNumber, space: u32, (start, end): (u64, u64), class: Class) {
        if start < end {
            self.spaces[space as usize].regions.remove(start, end);
            let words = [word(op::UNMAP, class as u8, 0, start), end - start];
            self.call(task, space, class, &words);
        }
    }

    /// The other calls about memory, and those about files.
    pub(super) fn change(&mut self, task: TaskNumber, op: &Op, class: Class) {
        let own = self.tasks[task as usize].space;
        let code = class as u8;
        match *op {
            Op::Unmap { space, page, pages } => {
                self.unmap(task, space.0, (page, page + pages), class);
            }
            Op::Protect {
                space,
                page,
                pages,
                prot,
            } => {
                let regions = &mut self.spaces[space.0 as usize].regions;
                regions.protect(page, page + pages, prot);
                let words = [word(op::PROTECT, code, rights(prot), page), pages];
                self.call(task, space.0, class, &words);
            }
            Op::Remap {
                space,
                page,
                pages,
                new_page,
                new_pages,
            } => {
                let regions = &mut self.spaces[space.0 as usize].regions;
                let moved = regions.remove(page, page + pages);
                if let Some(region) = moved.first() {
                    let mut region = region.moved_to(new_page);
                    region.end = new_page + new_pages;
                    regions.insert(region);
                }
                let words = [word(op::REMAP, code, 0, page), pages, new_page, new_pages];
                self.call(task, space.0, class, &words);
            }
            Op::Advise {
                space,
                page,
                pages,
                advice,
            } => {
                let kind = match advice {
                    Advice::DontNeed => op::DROP,
                    Advice::Free => op::FREE,
                    Advice::Cold => op::COLD,
                    Advice::PageOut => op::PAGE_OUT,
                    // What the host's kernel maps at once is for its administrator to say.
                    Advice::Folio(_) => return,
                };
                self.call(task, space.0, class, &[word(kind, code, 0, page), pages]);
            }
            Op::FileRead { file, page, pages } => {
                self.use_file(own, file.0, false);
                let words = [word(op::FILE_READ, code, 0, page), u64::from(file.0), pages];
                self.call(task, own, class, &words);
            }
            Op::FileWrite { file, page, pages } => {
                self.use_file(own, file.0, true);
                let words = [
                    word(op::FILE_WRITE, code, 0, page),
                    u64::from(file.0),
                    pages,
                ];
                self.call(task, own, class, &words);
            }
            Op::Truncate { file, pages } => {
                self.use_file(own, file.0, true);
                let words = [word(op::TRUNCATE, code, 0, pages), u64::from(file.0)];
                self.call(task, own, class, &words);
            }
            // Files are made before a replay begins; the others are no part of one.
            _ => {}
        }
    }

    fn call(&mut self, task: TaskNumber, space: u32, class: Class, words: &[u64]) {
        self.plan.entries[class as usize].calls += 1;
        self.put(task, space, words);
    }
}

fn rights(prot: Prot) -> u8 {
    u8::from(prot.read) | u8::from(prot.write) << 1 | u8::from(prot.execute) << 2
}
