//! A whole memory manager: one CPU, 2 MiB of RAM, a disk with a file and a swap area, and two
//! processes that use more memory than there is.
//!
//! `cargo run -p vellum --example whole_manager`

use std::{alloc, cell::RefCell, collections::HashMap, error::Error, ptr::NonNull};

use vellum::addr::{Access, Pfn, Prot, Vpn};
use vellum::platform::*;
use vellum::rmap::Family;
use vellum::space::{FaultError, FileRequest, MapRequest};
use vellum::sync::bytes::FrameBytes;
use vellum::{Design, SpaceId, Vm, swap::SwapArea, table::X86_64};

type Manager = Vm<Board, X86_64, Family>;

struct Board {
    ram: NonNull<u8>,
    map: [MemoryRange; 1],
    disk: RefCell<HashMap<(u64, u64), [u8; 4096]>>,
}
// SAFETY: one thread uses the board.
unsafe impl Sync for Board {}

// SAFETY: one CPU and one thread; the RAM is nobody else's, and no TLB knows it.
unsafe impl Machine for Board {
    fn cpus(&self) -> usize {
        1
    }
    fn memory_map(&self) -> &[MemoryRange] {
        &self.map
    }
    fn pin(&self) -> CpuId {
        CpuId(0) // a kernel disables preemption here
    }
    fn unpin(&self, _: CpuId) {}
    fn frame(&self, frame: Pfn) -> NonNull<u8> {
        // SAFETY: the core asks for frames of the memory map only.
        unsafe { self.ram.add(frame.index() * 4096) }
    }
    fn flush(&self, _: CpuId, _: CpuSet<'_>, _: &Flush) {} // `invlpg`, and interrupts to other CPUs
}
impl Sleep for Board {
    fn current_task(&self) -> TaskToken {
        TaskToken(0)
    }
    fn park(&self) {}
    fn unpark(&self, _: TaskToken) {}
}
impl Store for Board {
    unsafe fn read_page(&self, store: u64, index: u64, frame: Pfn) -> Result<(), IoError> {
        let disk = self.disk.borrow();
        self.bytes(frame)
            .write(0, disk.get(&(store, index)).unwrap_or(&[0; 4096]));
        Ok(())
    }
    fn write_page(&self, store: u64, index: u64, frame: Pfn) -> Result<(), IoError> {
        let mut page = [0; 4096];
        self.bytes(frame).read(0, &mut page);
        self.disk.borrow_mut().insert((store, index), page);
        Ok(())
    }
}
impl Policy for Board {}

impl Board {
    fn bytes(&self, frame: Pfn) -> FrameBytes<'_> {
        // SAFETY: a frame of the RAM, which only the core and this thread touch.
        unsafe { FrameBytes::new(self.frame(frame), 4096) }
    }
}

/// What a processor does to store a byte: it looks for the page, and traps until it is there.
fn store(vm: &Manager, process: SpaceId, page: Vpn, byte: u8) -> Result<(), FaultError> {
    let process = vm.space(process);
    loop {
        match process.translate(page) {
            Ok((frame, rights)) if rights.allows(Access::Write) => {
                vm.platform().bytes(frame).write(0, &[byte]);
                return Ok(());
            }
            _ => process.fault(page.address::<X86_64>(), Access::Write)?,
        };
    }
}

/// The example.
pub fn main() -> Result<(), Box<dyn Error>> {
    let layout = alloc::Layout::from_size_align(2 << 20, 4096)?;
    // SAFETY: the layout has a size.
    let ram = NonNull::new(unsafe { alloc::alloc_zeroed(layout) }).ok_or("no RAM")?;
    let (map, disk) = ([MemoryRange::new(Pfn(0), 512)], RefCell::default());
    let vm = Manager::new(Board { ram, map, disk }, Design::default().reclaim(true))?;
    vm.swap_on(SwapArea::new(1, 2048))?;

    let parent = vm.create_space()?;
    let memory = parent.map(&MapRequest::anonymous(600, Prot::READ_WRITE))?;
    let file = vm.create_file(FileRequest::stored(2, 4 << 12))?;
    let view = parent.map(&MapRequest::object(file.id(), 0, 4, Prot::READ_WRITE).shared())?;
    let child = parent.fork()?;
    for page in 0..600 {
        store(&vm, child.id(), Vpn(memory.0 + page), 7)?;
    }
    store(&vm, child.id(), view, 42)?;
    println!("{} pages were swapped out", vm.swap_stats().outs);
    println!("{} page of the file was written", file.sync()?);
    child.exit()?;
    parent.exit()?;
    Ok(())
}
