//! Faults of one kind after another, without traps. The kernel and `embed/boot/hosted` compile
//! this very file, and the instructions of the two are counted by the same emulator.

use vellum::addr::{Access, Prot, Vpn};
use vellum::platform::Platform;
use vellum::rmap::ReverseMap;
use vellum::space::{MapRequest, Placement};
use vellum::table::Format;
use vellum::{SpaceId, Vm};

/// The kinds, by number: names in the kernel's report.
#[allow(dead_code, reason = "the hosted program is given numbers")]
pub const KINDS: [&str; 3] = ["first_store", "copy_on_write", "load_of_nothing"];

/// Pages that are mapped, and faulted before anything is counted.
pub const PAGES: u64 = 4096;
pub const WARM: u64 = 1024;

const FIRST: u64 = 0x10_0000;

/// A space whose pages will fault by `kind`: the one to use, and another to end.
pub fn prepare<P: Platform, F: Format, R: ReverseMap>(
    vm: &Vm<P, F, R>,
    kind: usize,
) -> Option<(SpaceId, Option<SpaceId>)> {
    let space = vm.create_space().ok()?;
    let request = MapRequest::anonymous(PAGES, Prot::READ_WRITE);
    space.map(&request.at(Placement::Fixed(Vpn(FIRST)))).ok()?;
    if kind != 1 {
        return Some((space.id(), None));
    }
    space.populate(Vpn(FIRST), PAGES).ok()?;
    let child = space.fork().ok()?;
    Some((child.id(), Some(space.id())))
}

/// Faults on pages `from..to` of it; false if one is refused.
pub fn faults<P: Platform, F: Format, R: ReverseMap>(
    vm: &Vm<P, F, R>,
    space: SpaceId,
    kind: usize,
    from: u64,
    to: u64,
) -> bool {
    let access = if kind == 2 {
        Access::Read
    } else {
        Access::Write
    };
    let space = vm.space(space);
    (from..to).all(|page| {
        let address = Vpn(FIRST + page).address::<F>();
        space.fault(address, access).is_ok()
    })
}
