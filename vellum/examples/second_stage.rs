//! Page tables alone, as a hypervisor uses them: the second stage of a guest's memory, in the
//! format of Intel's extended page tables (EPT), which this file brings along. The core knows
//! nothing of it.
//!
//! First the tables and their cursor without anything above them: a guest's memory is filled
//! in as it is touched, in pages of 4 KiB and 2 MiB, write-protected to see what it stores to
//! (dirty logging), and taken away again with one flush. Then a whole manager over the same
//! format: a guest is an address space, and a copy of a running guest is a fork.
//!
//! `cargo run -p vellum --example second_stage`

#[path = "board/mod.rs"]
mod board;

use std::error::Error;

use board::{Board, PAGE};
use vellum::addr::{Access, Geometry, MemoryType, PageRange, Pfn, Prot, Vpn};
use vellum::frame::{PhysicalMemory, Request, Site};
use vellum::platform::{CpuId, CpuSet, Policy, Sleep, SpaceTag, Store, TaskToken};
use vellum::rmap::Family;
use vellum::space::{Layout, MapRequest, Placement};
use vellum::sync::Pin;
use vellum::table::{
    Cursor, Direct, FlushTarget, Format, Fresh, Gather, Marks, Swapped, Tables, Users,
};
use vellum::{Design, Vm};

/// There is one task, which nobody waits for.
impl Sleep for Board {
    fn current_task(&self) -> TaskToken {
        TaskToken(0)
    }
    fn park(&self) {}
    fn unpark(&self, _: TaskToken) {}
}

impl Store for Board {}

impl Policy for Board {}

/// EPT with four levels: 48 bits of guest-physical address. A guest's root is given to the
/// processor as an EPT pointer with accessed and dirty bits enabled (bit 6).
pub struct Ept;

const READ: u64 = 1 << 0;
const WRITE: u64 = 1 << 1;
const EXECUTE: u64 = 1 << 2;
const MEMORY_TYPE: u64 = 7 << 3;
/// The guest's own page attributes do not matter.
const IGNORE_PAT: u64 = 1 << 6;
const LARGE: u64 = 1 << 7;
const ACCESSED: u64 = 1 << 8;
const DIRTY: u64 = 1 << 9;
/// Ignored by the processor: the entry holds something, even if it allows nothing.
const MAPPED: u64 = 1 << 11;
const FRAME: u64 = 0x000f_ffff_ffff_f000;
/// Ignored, as all but bits 0 to 2 of an entry that allows nothing: the page is in swap.
const SWAPPED: u64 = 1 << 10;
/// The same: no other entry names the slot.
const EXCLUSIVE: u64 = 1 << 52;

const UNCACHED: u64 = 0;
const WRITE_COMBINING: u64 = 1 << 3;
const WRITE_BACK: u64 = 6 << 3;

fn rights(prot: Prot) -> u64 {
    let mut bits = match prot.memory_type() {
        MemoryType::WriteBack => WRITE_BACK,
        MemoryType::WriteCombining => WRITE_COMBINING | IGNORE_PAT,
        MemoryType::Uncached => UNCACHED | IGNORE_PAT,
    };
    if !prot.is_none() {
        // Entries that allow stores or fetches and no loads are misconfigured, or need a
        // processor that has them.
        bits |= READ;
    }
    if prot.can_write() {
        bits |= WRITE;
    }
    if prot.can_execute() {
        bits |= EXECUTE;
    }
    bits
}

// SAFETY: frames of 4 KiB; nothing else is defined.
unsafe impl Geometry for Ept {
    const FRAME_SHIFT: u32 = 12;
}

// SAFETY: by the conditions of the trait, 1. indices are the trait's own, and `USER_END` is
// what four levels cover; 2. every entry has `MAPPED`, 32 bits of frame number lie inside of
// `FRAME`, and `LARGE` tells leaves from tables above level 1; 3. `MAPPED` and the frame are
// left alone; 4. the rights are those that `prot` reads back; 5. entries of pages in swap have
// bits 0 to 2 and `MAPPED` clear.
unsafe impl Format for Ept {
    const NAME: &'static str = "ept";
    type Reach = Direct;
    const LEVELS: u32 = 4;
    const MAX_LEAF_LEVEL: u32 = 3;
    const USER_END: Vpn = Vpn(1 << 36);

    fn table_entry(table: Pfn, _: u32) -> u64 {
        u64::from(table.0) << 12 | READ | WRITE | EXECUTE | MAPPED
    }
    fn leaf(frame: Pfn, level: u32, prot: Prot, marks: Marks) -> u64 {
        let large = if level > 1 { LARGE } else { 0 };
        let entry = u64::from(frame.0) << 12 | MAPPED | large | rights(prot);
        Self::with_marks(entry, marks)
    }
    fn is_mapped(entry: u64) -> bool {
        entry & MAPPED != 0
    }
    fn is_leaf(entry: u64, level: u32) -> bool {
        level == 1 || entry & LARGE != 0
    }
    fn frame(entry: u64, _: u32) -> Pfn {
        Pfn(((entry & FRAME) >> 12) as u32)
    }
    fn prot(entry: u64, _: u32) -> Prot {
        let memory = match entry & MEMORY_TYPE {
            UNCACHED => MemoryType::Uncached,
            WRITE_COMBINING => MemoryType::WriteCombining,
            _ => MemoryType::WriteBack,
        };
        let all = [
            (READ, Prot::READ),
            (WRITE, Prot::WRITE),
            (EXECUTE, Prot::EXECUTE),
        ];
        let set = all.iter().filter(|(bit, _)| entry & bit != 0);
        set.fold(Prot::NONE, |prot, (_, right)| prot.union(*right))
            .with_type(memory)
    }
    fn is_writable(entry: u64) -> bool {
        entry & WRITE != 0
    }
    fn marks(entry: u64) -> Marks {
        Marks {
            accessed: entry & ACCESSED != 0,
            dirty: entry & DIRTY != 0,
        }
    }
    fn write_protect(entry: u64) -> u64 {
        entry & !WRITE
    }
    fn with_marks(entry: u64, marks: Marks) -> u64 {
        let accessed = if marks.accessed { ACCESSED } else { 0 };
        let dirty = if marks.dirty { DIRTY } else { 0 };
        entry & !(ACCESSED | DIRTY) | accessed | dirty
    }
    fn with_prot(entry: u64, _: u32, prot: Prot) -> u64 {
        entry & !(READ | WRITE | EXECUTE | MEMORY_TYPE | IGNORE_PAT) | rights(prot)
    }
    fn swap(page: Swapped) -> u64 {
        let exclusive = if page.exclusive { EXCLUSIVE } else { 0 };
        page.slot << 12 | SWAPPED | exclusive
    }
    fn swapped(entry: u64) -> Swapped {
        Swapped {
            clean: false,
            slot: (entry & FRAME) >> 12,
            exclusive: entry & EXCLUSIVE != 0,
        }
    }
}

/// What the processor does with an access of the guest: the page's frame, or `None`, which is
/// an EPT violation.
fn walk(board: &Board, root: Pfn, page: u64, access: u64) -> Option<Pfn> {
    let mut table = root;
    for level in (1..=4).rev() {
        let shift = 9 * (level - 1);
        let index = (page >> shift) as usize & 511;
        let word = &board.bytes(table).words()[index];
        let entry = word.load(std::sync::atomic::Ordering::Relaxed);
        if entry & access == 0 {
            return None;
        }
        let frame = ((entry & FRAME) >> 12) as u32;
        if level == 1 || entry & LARGE != 0 {
            let marks = ACCESSED | if access == WRITE { DIRTY } else { 0 };
            word.fetch_or(marks, std::sync::atomic::Ordering::Relaxed);
            return Some(Pfn(frame + (page & ((1 << shift) - 1)) as u32));
        }
        table = Pfn(frame);
    }
    None
}

const GUEST: u32 = 1;
const RIGHTS: Prot = Prot::READ_WRITE.union(Prot::EXECUTE);

/// One guest's tables.
struct Guest<'a> {
    memory: &'a PhysicalMemory<Board>,
    root: Pfn,
}

impl<'a> Guest<'a> {
    fn new(memory: &'a PhysicalMemory<Board>) -> Result<Guest<'a>, Box<dyn Error>> {
        let root = Tables::<Board, Ept>::make_root(memory, &Fresh, &memory.pin(), GUEST)?;
        Ok(Guest { memory, root })
    }

    fn tables<'p>(&'p self, pin: &'p Pin<'_>) -> Tables<'p, Board, Ept> {
        // SAFETY: the root was made for this, and is retired when the guest ends; only
        // leaves are put into its tables here.
        unsafe { Tables::new(self.memory, &Fresh, pin, self.root, GUEST) }
    }

    fn gather<'p>(&'p self, pin: &'p Pin<'_>) -> Gather<'p, Board> {
        let target = FlushTarget {
            tag: SpaceTag(GUEST),
            cpus: CpuSet::from_bits(CpuSet::bit(CpuId(0))),
        };
        // SAFETY: frames and tables put in are those of this guest's entries, which the one
        // CPU may know.
        unsafe { Gather::new(self.memory, &Fresh, pin, target) }
    }

    /// An EPT violation: gives the page memory.
    fn violation(&self, page: u64, wanted_level: u32) -> Result<(), Box<dyn Error>> {
        let pin = self.memory.pin();
        let order = 9 * (wanted_level - 1);
        let request = Request::page(Site::AnonymousPage).order(order).zeroed();
        let block = self.memory.view().alloc(&pin, request)?;
        let tables = self.tables(&pin);
        let mut cursor = Cursor::new(&tables);
        let table = cursor.find_or_make(Vpn(page), wanted_level)?;
        let index = Ept::index(Vpn(page), wanted_level);
        if table.level() == wanted_level && table.load(index) == 0 {
            let leaf = Ept::leaf(block.into_raw(), wanted_level, RIGHTS, Marks::default());
            table.fill(index, leaf);
            table.count_made(1);
        } // else another processor of the guest was faster, and the block goes back
        Ok(())
    }

    /// Takes the right to store away, so that stores are seen.
    fn protect(&self, range: PageRange) {
        let pin = self.memory.pin();
        let mut gather = self.gather(&pin);
        for span in self.tables(&pin).spans(range) {
            for index in span.first..span.first + span.count {
                if Ept::is_writable(span.table.load(index)) {
                    span.table
                        .update(index, Users::Hardware, Ept::write_protect);
                    gather.stale(span.table.page(index));
                }
            }
        }
    }

    /// Gives it back for one page, which the guest stored to.
    fn allow(&self, page: u64) {
        let pin = self.memory.pin();
        if let Some(table) = self.tables(&pin).lock(Vpn(page)) {
            let (level, index) = (table.level(), Ept::index(Vpn(page), table.level()));
            table.update(index, Users::Hardware, |entry| {
                Ept::with_prot(entry, level, RIGHTS)
            });
        }
    }

    /// Takes pages of 4 KiB away, and frees them and their tables after one flush.
    fn remove(&self, range: PageRange) {
        let pin = self.memory.pin();
        let mut gather = self.gather(&pin);
        let tables = self.tables(&pin);
        let mut cursor = Cursor::new(&tables);
        for page in range.start.0..range.end.0 {
            let Some(table) = cursor.find(Vpn(page)) else {
                continue;
            };
            let index = Ept::index(Vpn(page), 1);
            if table.level() != 1 || !Ept::is_mapped(table.load(index)) {
                continue;
            }
            let old = table.clear(index, Users::Hardware);
            table.count_cleared(1);
            gather.stale(Vpn(page));
            gather.frame(Ept::frame(old, 1));
            cursor.unlink_if_empty(&mut gather);
        }
    }
}

fn tables_alone() -> Result<(), Box<dyn Error>> {
    let memory = PhysicalMemory::new(Board::new(8192))?;
    let board = memory.platform();
    let before = memory.stats().used();
    let guest = Guest::new(&memory)?;
    let run = |page: u64, access: u64| walk(board, guest.root, page, access);

    // The guest touches pages; each is there after one violation.
    for page in [0, 1, 511, 512, 1 << 20, (1 << 36) - 1] {
        assert_eq!(run(page, WRITE), None);
        guest.violation(page, 1)?;
        let frame = run(page, WRITE).ok_or("still not there")?;
        board.bytes(frame).write(8, &page.to_le_bytes());
    }
    // A range gets a large page: 512 pages are there after one violation.
    guest.violation(1024, 2)?;
    let first = run(1024, READ).ok_or("no large page")?;
    assert_eq!(run(1024 + 511, WRITE), Some(first.offset(511)));
    assert_eq!(run(1024 + 512, READ), None);

    // Dirty logging: one flush for all, and stores are seen one by one.
    let flushes = board.flushes.get();
    guest.protect(PageRange::new(Vpn(0), 513));
    assert_eq!(board.flushes.get(), flushes + 1);
    assert!(run(511, READ).is_some());
    assert_eq!(run(511, WRITE), None);
    guest.allow(511);
    assert!(run(511, WRITE).is_some());
    assert_eq!(run(512, WRITE), None);

    // Ballooning: memory goes back, and the tables that became empty with it.
    let kept = run(1, READ);
    guest.remove(PageRange::new(Vpn(2), 1000));
    assert_eq!(run(511, READ), None);
    assert_eq!(run(1, READ), kept);
    let mut bytes = [0; 8];
    board.bytes(kept.ok_or("kept")?).read(8, &mut bytes);
    assert_eq!(u64::from_le_bytes(bytes), 1);

    // The guest ends: the large page, which is a block, and then the rest.
    {
        let pin = memory.pin();
        let tables = guest.tables(&pin);
        let mut gather = guest.gather(&pin);
        let table = tables.lock(Vpn(1024)).ok_or("the large page")?;
        let old = table.clear(Ept::index(Vpn(1024), 2), Users::Hardware);
        table.count_cleared(1);
        gather.stale(Vpn(1024));
        tables.unlink_if_empty(table, &mut gather);
        gather.flush();
        drop(gather);
        // SAFETY: the one reference that the block was handed out with; no CPU knows it.
        unsafe { memory.put_raw(&pin, Ept::frame(old, 2), 9) }
    }
    for start in [0, 1 << 20, (1 << 36) - 1] {
        guest.remove(PageRange::new(Vpn(start), 2.min((1 << 36) - start)));
    }
    // SAFETY: it was made with these, leads to no table, and no CPU has it loaded.
    unsafe {
        Tables::<Board, Ept>::retire_root(&memory, &Fresh, &memory.pin(), guest.root);
    }
    assert_eq!(memory.stats().used(), before);
    memory.audit_frames().map_err(|error| error.to_string())?;
    println!("tables alone: {} flushes", board.flushes.get());
    Ok(())
}

/// The same format under a whole manager: memory on demand, and guests that are copied.
fn guests_as_spaces() -> Result<(), Box<dyn Error>> {
    let vm: Vm<Board, Ept, Family> = Vm::new(Board::new(8192), Design::default())?;
    let guest = vm.create_space()?;
    // A guest's memory begins at 0, where programs have nothing.
    let lowest = Vpn(0);
    guest.set_layout(&Layout {
        lowest,
        ..Layout::fixed::<Ept>()
    })?;
    let ram = MapRequest::anonymous(4096, RIGHTS);
    guest.map(&ram.at(Placement::Fixed(Vpn(0))))?;
    let root = guest.load()?.root;
    for page in 0..100u64 {
        guest.fault(page << 12, Access::Write)?;
        let frame = walk(vm.platform(), root, page, WRITE).ok_or("not there")?;
        vm.platform().bytes(frame).write(0, &page.to_le_bytes());
    }
    // A snapshot: both go on, and pages are copied as one of them stores.
    let copy = guest.fork()?;
    assert_eq!(walk(vm.platform(), root, 7, WRITE), None);
    guest.fault(7 << 12, Access::Write)?;
    let frame = walk(vm.platform(), root, 7, WRITE).ok_or("not there")?;
    vm.platform().bytes(frame).write(0, &[0xff; 8]);
    let copied = copy.load()?.root;
    let old = walk(vm.platform(), copied, 7, READ).ok_or("not in the copy")?;
    let mut bytes = [0; 8];
    vm.platform().bytes(old).read(0, &mut bytes);
    assert_eq!(u64::from_le_bytes(bytes), 7);
    println!("guests as spaces: {} bytes a page", PAGE);
    copy.exit()?;
    guest.exit()?;
    let audit = vm.audit()?;
    assert_eq!((audit.spaces, audit.entries), (0, 0));
    Ok(())
}

/// Both.
pub fn main() -> Result<(), Box<dyn Error>> {
    tables_alone()?;
    guests_as_spaces()
}
