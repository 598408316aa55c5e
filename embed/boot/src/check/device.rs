//! Memory of devices, which a test maps.

use vellum::SpaceId;
use vellum::addr::{MemoryType, Pfn, Vpn};
use vellum::space::{MapRequest, Placement};

use crate::calls::prot;
use crate::protocol::{FLAG_SHARED, device};
use crate::vm;

/// First frame and pages of a device's memory, if it is there.
#[cfg(target_arch = "x86_64")]
fn memory_of(which: u64) -> Option<(u64, u64)> {
    super::display::memory_of(which)
}

/// First frame and pages of a device's memory, if it is there.
#[cfg(target_arch = "aarch64")]
fn memory_of(which: u64) -> Option<(u64, u64)> {
    let is_there = which == device::REGISTERS;
    is_there.then_some((crate::arch::io::SERIAL_LINE / crate::PAGE, 1))
}

/// Maps memory of a device, with the type that suits it; of no pages: how many it has.
pub fn map(space: SpaceId, [page, pages, flags, which, first, _]: [u64; 6]) -> Option<u64> {
    let (frames, count) = memory_of(which)?;
    if pages == 0 {
        return Some(count);
    }
    let memory = match which {
        device::FRAME_BUFFER => MemoryType::WriteCombining,
        _ => MemoryType::Uncached,
    };
    first.checked_add(pages).filter(|&end| end <= count)?;
    let first = Pfn((frames + first) as u32);
    let request = MapRequest::frames(first, pages, prot(flags).with_type(memory));
    let request = match flags & FLAG_SHARED {
        0 => request.on_fault(),
        _ => request,
    };
    let placed = request.at(Placement::Fixed(Vpn(page)));
    Some(vm().space(space).map(&placed).ok()?.0)
}
