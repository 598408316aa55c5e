//! A kernel in one file: what an embedder writes around the core.
//!
//! It has one CPU and 32 MiB of RAM, two "processes", a file on a "disk", and a
//! page-fault handler. The processor is played by [`Kernel::load`] and
//! [`Kernel::store`], which translate as an MMU would and trap when they
//! cannot.
//!
//! `cargo run -p vellum --example tiny_kernel`

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::cell::RefCell;
use std::collections::HashMap;
use std::error::Error;
use std::ptr::NonNull;

use vellum::addr::{Access, Geometry, Pfn, Prot, Vpn};
use vellum::platform::{
    CpuId, CpuSet, Flush, IoError, Machine, MemoryRange, Policy, Sleep, Store, TaskToken,
};
use vellum::rmap::Family;
use vellum::space::{FaultError, FileRequest, MapRequest, Placement, Space};
use vellum::sync::bytes::FrameBytes;
use vellum::table::X86_64;
use vellum::{Design, ObjectId, Vm};

const RAM: usize = 32 << 20;
const PAGE: usize = X86_64::FRAME_SIZE;

/// The machine under the kernel.
struct Board {
    ram: NonNull<u8>,
    map: [MemoryRange; 1],
    /// Pages on disk by file and index. A page that is not there is zero.
    disk: RefCell<HashMap<(u64, u64), Vec<u8>>>,
}

// SAFETY: the example has one thread; `Machine` asks for `Sync` because
// kernels have more.
unsafe impl Sync for Board {}

impl Board {
    fn new() -> Result<Board, Box<dyn Error>> {
        let layout = Layout::from_size_align(RAM, PAGE)?;
        // SAFETY: the layout has a size.
        let ram = NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or("no memory for the RAM")?;
        let map = MemoryRange::new(Pfn(0), (RAM / PAGE) as u32);
        Ok(Board {
            ram,
            map: [map],
            disk: RefCell::default(),
        })
    }

    /// The bytes of a frame, for the disk and the processor.
    fn bytes(&self, frame: Pfn) -> FrameBytes<'_> {
        // SAFETY: the frame lies in the RAM, which lives as long as the board, and
        // is touched by the core and here only.
        unsafe { FrameBytes::new(self.frame(frame), PAGE) }
    }
}

impl Drop for Board {
    fn drop(&mut self) {
        if let Ok(layout) = Layout::from_size_align(RAM, PAGE) {
            // SAFETY: allocated in `new` with this layout.
            unsafe { dealloc(self.ram.as_ptr(), layout) }
        }
    }
}

// SAFETY: by the conditions of the trait, 1. the RAM was allocated for the
// board alone; 2. `frame` gives aligned, distinct addresses inside of it;
// 3. there is one CPU and one thread; 4. there is no TLB, the processor below
// walks the tables for every access; 5. bytes are reached through `bytes`.
unsafe impl Machine for Board {
    fn cpus(&self) -> usize {
        1
    }
    fn frame_shift(&self) -> u32 {
        X86_64::FRAME_SHIFT
    }
    fn memory_map(&self) -> &[MemoryRange] {
        &self.map
    }
    fn pin(&self) -> CpuId {
        CpuId(0) // a kernel disables preemption here
    }
    fn unpin(&self, _: CpuId) {}
    fn frame(&self, frame: Pfn) -> NonNull<u8> {
        // SAFETY: the core passes frames of the memory map only.
        unsafe { self.ram.add(frame.index() * PAGE) }
    }
    fn flush(&self, _: CpuId, _: CpuSet<'_>, request: &Flush) {
        // A kernel executes `invlpg`, or sends an interrupt to the other CPUs.
        println!("    flush {:?} of space {}", request.range, request.space.0);
    }
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
        match self.disk.borrow().get(&(store, index)) {
            Some(page) => _ = self.bytes(frame).write(0, page),
            None => self.bytes(frame).zero(),
        }
        Ok(())
    }
    fn write_page(&self, store: u64, index: u64, frame: Pfn) -> Result<(), IoError> {
        let mut page = vec![0; PAGE];
        self.bytes(frame).read(0, &mut page);
        self.disk.borrow_mut().insert((store, index), page);
        Ok(())
    }
}

impl Policy for Board {}

/// A process is a space here: handles of it can be copied.
type Process<'k> = Space<'k, Board, X86_64, Family>;

/// The kernel: the core, and a processor to run programs on.
struct Kernel {
    vm: Vm<Board, X86_64, Family>,
}

impl Kernel {
    fn boot() -> Result<Kernel, Box<dyn Error>> {
        Ok(Kernel {
            vm: Vm::new(Board::new()?, Design::default())?,
        })
    }

    /// Translates as the MMU would; traps into the fault handler if it must.
    fn translate(
        &self,
        process: Process<'_>,
        address: u64,
        access: Access,
    ) -> Result<Pfn, FaultError> {
        loop {
            let page = Vpn::of::<X86_64>(address);
            match process.translate(page) {
                Ok((frame, prot)) if prot.allows(access) => return Ok(frame),
                _ => self.page_fault(process, address, access)?,
            }
        }
    }

    /// What the trap handler does. An error becomes a signal to the process.
    fn page_fault(
        &self,
        process: Process<'_>,
        address: u64,
        access: Access,
    ) -> Result<(), FaultError> {
        let resolved = process.fault(address, access)?;
        println!("    fault at {address:#x} ({access:?}): {resolved:?}");
        Ok(())
    }

    fn load(&self, process: Process<'_>, address: u64) -> Result<u8, FaultError> {
        let frame = self.translate(process, address, Access::Read)?;
        let mut byte = [0];
        let page = self.vm.platform().bytes(frame);
        page.read(address as usize % PAGE, &mut byte);
        Ok(byte[0])
    }

    fn store(&self, process: Process<'_>, address: u64, value: u8) -> Result<(), FaultError> {
        let frame = self.translate(process, address, Access::Write)?;
        let page = self.vm.platform().bytes(frame);
        page.write(address as usize % PAGE, &[value]);
        Ok(())
    }

    /// exec: text from a file, a heap, a stack.
    fn start(&self, program: ObjectId) -> Result<Process<'_>, Box<dyn Error>> {
        let process = self.vm.create_space()?;
        let text = MapRequest::object(program, 0, 4, Prot::READ_EXECUTE);
        process.map(&text.at(Placement::Fixed(Vpn(0x400))))?;
        let stack = MapRequest::anonymous(8, Prot::READ_WRITE).growing_down();
        process.map(&stack.at(Placement::Fixed(Vpn(0x7fff0))))?;
        process.set_heap_start(Vpn(0x600))?;
        process.set_heap_end(Vpn(0x700))?;
        Ok(process)
    }

    fn print_maps(&self, process: Process<'_>) -> Result<(), Box<dyn Error>> {
        process.for_each_region(|region| {
            let backing = match region.object {
                Some((_, kind, page)) => format!("{kind:?} from page {page}"),
                None => "private".to_string(),
            };
            println!("    {:?} {:?} {backing}", region.range, region.prot);
        })?;
        let stats = process.stats()?;
        println!("    {:?}, {} bytes of tables", stats.rss, stats.table_bytes);
        Ok(())
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let kernel = Kernel::boot()?;
    let vm = &kernel.vm;
    vm.platform()
        .disk
        .borrow_mut()
        .insert((1, 0), vec![0x90; PAGE]);
    let program = vm.create_file(FileRequest::stored(1, 4 << 12))?;

    println!("a process starts and touches text, heap and stack");
    let parent = kernel.start(program.id())?;
    assert_eq!(kernel.load(parent, 0x40_0000)?, 0x90);
    kernel.store(parent, 0x60_0000, 1)?;
    kernel.store(parent, 0x7fff_0000 - 1, 2)?; // below the stack: it grows
    kernel.print_maps(parent)?;

    println!("it forks; the child writes to the heap");
    let child = parent.fork()?;
    kernel.store(child, 0x60_0000, 3)?;
    assert_eq!(kernel.load(parent, 0x60_0000)?, 1);
    assert_eq!(kernel.load(child, 0x60_0000)?, 3);

    println!("it shares a file with the child, which changes it");
    let data = vm.create_file(FileRequest::stored(2, 16 << 12))?;
    let view = MapRequest::object(data.id(), 0, 16, Prot::READ_WRITE).shared();
    for process in [parent, child] {
        process.map(&view.at(Placement::Fixed(Vpn(0x1000))))?;
    }
    kernel.store(child, 0x100_0000, 42)?;
    assert_eq!(kernel.load(parent, 0x100_0000)?, 42);
    println!("    {} page written to the disk", data.sync()?);
    assert_eq!(vm.platform().disk.borrow()[&(2, 0)][0], 42);

    println!("text cannot be written");
    let refused = kernel.store(parent, 0x40_0000, 0);
    println!("    {}", refused.expect_err("text is read-only"));

    println!("all exit");
    child.exit()?;
    parent.exit()?;
    program.release()?;
    data.release()?;
    let audit = vm.audit()?;
    println!("    {} spaces, {} tables left", audit.spaces, audit.tables);
    Ok(())
}
