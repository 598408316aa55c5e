//! What programs ask for ([`protocol::call`]).

use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering};

use vellum::addr::{Prot, Vpn};
use vellum::space::{
    Advice, FileRequest, MapRequest, Placement, ReadRequest, RemapPlacement, Source, Traits,
    WriteRequest,
};
use vellum::{ObjectId, SpaceId};

use crate::arch::Paging;
use crate::arch::cpu::{Cpu, cycles};
use crate::arch::trap::TrapFrame;
use crate::check::{self, report};
use crate::lock::Once;
use crate::machine::Machine;
use crate::protocol::{
    self, FLAG_GROWS_DOWN, FLAG_SHARED, REFUSED, STACK_PAGES, STACKS, advice, call,
};
use crate::{PAGE, Rmap, disk, task, vm};

/// The space that a call is about.
type Space = vellum::space::Space<'static, Machine, Paging, Rmap>;

/// The files that are open, by number: their objects as bits, or 0.
static FILES: Once<Vec<AtomicU64>> = Once::new();
/// The file of the programs, and that of the slice.
static IMAGES: Once<[ObjectId; 2]> = Once::new();

/// Prepares for so many files and tasks of a slice.
///
/// # Safety
/// No other CPU runs, and no program has.
pub unsafe fn init(files: u64, tasks: u64) {
    let zeroes = |count| (0..count).map(|_| AtomicU64::new(0)).collect();
    let image = |number| {
        let pages = disk::file(number).1.div_ceil(1 << protocol::PAGE_SHIFT);
        let request = FileRequest::stored(number, pages << protocol::PAGE_SHIFT);
        vm().create_file(request).expect("memory for a file").id()
    };
    // SAFETY: the caller's promise.
    unsafe {
        FILES.set(zeroes(files));
        check::calls::init(tasks);
        IMAGES.set([image(protocol::DISK_PROGRAMS), image(protocol::DISK_SLICE)]);
    }
}

/// Closes every file, after writing back what is dirty. Returns the pages written.
pub fn close_files() -> u64 {
    let mut written = 0;
    let open = FILES
        .get()
        .iter()
        .map(|file| file.swap(0, Ordering::AcqRel));
    for bits in open.filter(|bits| *bits != 0) {
        let file = ObjectId::from_bits(bits);
        match vm().file(file).sync() {
            Ok(pages) => written += pages,
            Err(error) => report::fail(format_args!("a file is not written back: {error}")),
        }
        if let Err(error) = vm().file(file).release() {
            report::fail(format_args!("a file does not close: {error}"));
        }
    }
    for image in IMAGES.get() {
        let _ = vm().file(*image).release();
    }
    written
}

/// A space with what every program has: its image, the slice, and the stack of this number.
pub fn program_space(stack: u64) -> Option<SpaceId> {
    let space = vm().create_space().ok()?.id();
    let [programs, slice] = *IMAGES.get();
    let pages = |object| (vm().file(object).size()).map_or(1, |size| size.div_ceil(PAGE).max(1));
    let page = |address: u64| Placement::Fixed(Vpn(address >> protocol::PAGE_SHIFT));
    let image = MapRequest::object(programs, 0, pages(programs), Prot::READ_EXECUTE);
    let words = MapRequest::object(slice, 0, pages(slice), Prot::READ).shared();
    let stack_page = page(STACKS + stack * (STACK_PAGES << (protocol::PAGE_SHIFT + 1)));
    let requests = [
        image.at(page(protocol::AREA)),
        words.at(page(protocol::SLICE)),
        MapRequest::anonymous(STACK_PAGES, Prot::READ_WRITE).at(stack_page),
    ];
    let mapped = requests
        .iter()
        .all(|request| vm().space(space).map(request).is_ok());
    if !mapped {
        let _ = vm().space(space).exit();
    }
    mapped.then_some(space)
}

/// How a program begins: its number and argument in rdi and rsi, on the stack of this number.
pub fn program_frame(program: u64, argument: u64, stack: u64) -> TrapFrame {
    // The image is an ELF file: its entry is the fourth word.
    let entry = disk::file_word(protocol::DISK_PROGRAMS, 3);
    let bytes = STACK_PAGES << protocol::PAGE_SHIFT;
    let end = STACKS + stack * 2 * bytes + bytes;
    TrapFrame::begin(entry, end, [program, argument], true)
}

/// Starts a program in a space of its own; the task's number.
pub fn spawn(program: u64, argument: u64, stack: u64) -> Option<u64> {
    let space = program_space(stack)?;
    task::create(program_frame(program, argument, stack), Some(space))
}

/// The rights that a program asks for.
pub fn prot(bits: u64) -> Prot {
    Prot::from_bits(bits as u8 & 7)
}

/// The object of file `number`.
fn file(number: u64) -> Option<ObjectId> {
    match FILES.get().get(number as usize)?.load(Ordering::Acquire) {
        0 => None,
        bits => Some(ObjectId::from_bits(bits)),
    }
}

fn open(number: u64, pages: u64) -> Option<u64> {
    let slot = FILES.get().get(number as usize)?;
    if slot.load(Ordering::Acquire) == 0 {
        let request = FileRequest::stored(protocol::STORES + number, pages << protocol::PAGE_SHIFT);
        let file = vm().create_file(request).ok()?.id();
        let taken = slot.compare_exchange(0, file.to_bits(), Ordering::AcqRel, Ordering::Relaxed);
        if taken.is_err() {
            let _ = vm().file(file).release();
        }
    }
    Some(0)
}

fn map(space: Space, [page, pages, flags, file_plus_1, file_page, _]: [u64; 6]) -> Option<u64> {
    let mut traits = Traits::NONE;
    if flags & FLAG_SHARED != 0 {
        traits = traits.union(Traits::SHARED);
    }
    if flags & FLAG_GROWS_DOWN != 0 {
        traits = traits.union(Traits::GROWS_DOWN);
    }
    let source = match file_plus_1 {
        0 => Source::Anonymous,
        number => Source::Object {
            id: file(number - 1)?,
            page: file_page,
        },
    };
    let request = MapRequest {
        pages,
        prot: prot(flags),
        traits,
        source,
        placement: Placement::Fixed(Vpn(page)),
        tag: 0,
    };
    Some(space.map(&request).ok()?.0)
}

fn remap(space: Space, [page, pages, to, new_pages, ..]: [u64; 6]) -> Option<u64> {
    let placement = match to == page {
        true => RemapPlacement::InPlace,
        false => RemapPlacement::Fixed(Vpn(to)),
    };
    space.remap(Vpn(page), pages, new_pages, placement).ok()?;
    Some(0)
}

fn advise(space: Space, page: Vpn, pages: u64, advice: u64) -> Option<u64> {
    let advice = match advice {
        advice::DONT_NEED => Advice::DontNeed,
        advice::FREE => Advice::Free,
        advice::COLD => Advice::Cold,
        advice::PAGE_OUT => Advice::PageOut,
        _ => return None,
    };
    space.advise(page, pages, advice).ok().map(|()| 0)
}

fn set_heap(space: Space, start: u64, end: u64) -> Option<u64> {
    if space.heap().ok()?.start != Vpn(start) {
        space.set_heap_start(Vpn(start)).ok()?;
    }
    space.set_heap_end(Vpn(end)).ok()?;
    Some(0)
}

fn write_file(number: u64, page: u64, pages: u64) -> Option<u64> {
    let file = file(number)?;
    let mut done = 0;
    while done < pages {
        let fill = |index, bytes: &vellum::space::PageBytes<'_, _>| {
            bytes.fill(protocol::written(number, index))
        };
        done += vm()
            .file(file)
            .write(WriteRequest::pages(page + done, pages - done, fill))
            .ok()?;
    }
    Some(0)
}

fn fork(space: Space, frame: &TrapFrame) -> Option<u64> {
    let start = cycles();
    let child = space.fork().ok()?;
    Cpu::this().counts.fork.add(cycles() - start);
    let mut begin = *frame;
    begin.answer(0);
    let made = task::create(begin, Some(child.id()));
    if made.is_none() {
        let _ = child.exit();
    }
    made
}

fn thread(space: Space, [entry, stack, argument, ..]: [u64; 6]) -> Option<u64> {
    space.share().ok()?;
    let made = task::create(
        TrapFrame::begin(entry, stack, [argument, 0], true),
        Some(space.id()),
    );
    if made.is_none() {
        let _ = space.exit();
    }
    made
}

/// A thread leaves its stack, which begins at `page`, to nobody; 0 if the space ends as well.
fn leave_stack(space: Space, page: u64) {
    if page != 0 {
        let _ = space.unmap(Vpn(page), STACK_PAGES);
    }
}

/// The task goes on with a program in a new space.
fn exec(frame: &mut TrapFrame, space: Space, arguments: [u64; 6]) -> Option<()> {
    let [program, argument, stack, old_stack, ..] = arguments;
    let new = program_space(stack)?;
    leave_stack(space, old_stack);
    task::leave_space();
    task::set_space(Some(new));
    *frame = program_frame(program, argument, stack);
    Some(())
}

/// A call of a program.
pub fn call(frame: &mut TrapFrame) {
    let (number, arguments) = frame.asked();
    let [first, second, third, fourth, ..] = arguments;
    let Some(space) = task::current().space().map(|space| vm().space(space)) else {
        panic!("a program without a space")
    };
    let page = Vpn(first);
    let done = match number {
        call::EXIT => {
            leave_stack(space, second);
            if third != 0 {
                task::leave_space();
                check::calls::ended(third >> 32, third & 0xffff_ffff);
            }
            task::exit(first, third != 0)
        }
        call::FAIL => report::give_up(format_args!(
            "program: code {first}, {second:#x} {third:#x} {:#x}",
            fourth
        )),
        call::MAP => map(space, arguments),
        call::UNMAP => space.unmap(page, second).ok().map(|()| 0),
        call::PROTECT => space.protect(page, second, prot(third)).ok().map(|()| 0),
        call::REMAP => remap(space, arguments),
        call::BRK => set_heap(space, first, second),
        call::ADVISE => advise(space, page, second, third),
        call::FORK => fork(space, frame),
        call::THREAD => thread(space, arguments),
        call::EXEC => match exec(frame, space, arguments) {
            // The program begins with its arguments, not with an answer.
            Some(()) => return,
            None => None,
        },
        call::WAIT => task::wait_for(first),
        call::YIELD => {
            task::give_way();
            Some(0)
        }
        call::FILE_OPEN => open(first, second),
        call::FILE_READ => file(first).and_then(|file| {
            let request = ReadRequest::pages(second, third, |_, _| {});
            vm().file(file).read(request).ok()
        }),
        call::FILE_WRITE => write_file(first, second, third),
        call::TRUNCATE => file(first)
            .zip(second.checked_mul(PAGE))
            .and_then(|(file, bytes)| vm().file(file).set_size(bytes).ok())
            .map(|()| 0),
        call::RECOVER => {
            task::current().set_recover(first);
            Some(0)
        }
        _ => check::calls::call(space.id(), number, arguments),
    };
    frame.answer(done.unwrap_or(REFUSED));
}
