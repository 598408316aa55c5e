//! What only a laboratory asks: how memory came to be what it is, how its pages are shared, and
//! the layers that a manager stands on. Behind the feature `probe`, which is off by default.

use crate::Vm;
use crate::addr::{Access, Vpn};
use crate::frame::{Kind, PhysicalMemory};
use crate::platform::Platform;
use crate::rmap::ReverseMap;
use crate::space::Space;
use crate::table::Format;

/// What a manager stands on.
#[derive(Clone, Copy)]
pub struct Layers<'a, P: Platform, R> {
    /// Physical memory.
    pub memory: &'a PhysicalMemory<P>,
    /// The reverse-mapping design.
    pub rmap: &'a R,
}

/// The layers that the manager stands on, for tests and benchmarks that play its
/// part.
///
/// # Safety
/// The caller keeps the manager's invariants (`ARCHITECTURE.md`): it changes no
/// frame, table or node that it does not own, but as the manager itself would at
/// that moment.
#[inline]
pub unsafe fn layers<P: Platform, F: Format, R: ReverseMap>(vm: &Vm<P, F, R>) -> Layers<'_, P, R> {
    Layers {
        memory: &vm.memory,
        rmap: &vm.rmap,
    }
}

/// Whether an access to `page` needs no fault: the page is mapped, with the right to it. Takes no
/// lock, so that it may be asked while CPUs stand still at any place.
pub fn is_mapped_for<P: Platform, F: Format, R: ReverseMap>(
    space: Space<'_, P, F, R>,
    page: Vpn,
    access: Access,
) -> bool {
    space.vm.is_mapped_for(space.id, page, access)
}

/// Whether `page` shows memory that was mapped by a superpage, which may have been split
/// since; of an object's pages, whether it is mapped so now. Private pages whose frames were
/// taken one by one say no, even if one larger leaf maps them now
/// ([`Superpages::Reserve`](crate::design::Superpages::Reserve), [`Space::collapse`]).
pub fn came_in_superpage<P: Platform, F: Format, R: ReverseMap>(
    space: Space<'_, P, F, R>,
    page: Vpn,
) -> bool {
    space.vm.came_in_superpage(space.id, page)
}

/// Whether `page` shows private memory that was mapped because another page of its folio
/// was stored to; in a superpage that was made of single pages and forked since, whether any of
/// it was.
pub fn came_in_folio<P: Platform, F: Format, R: ReverseMap>(
    space: Space<'_, P, F, R>,
    page: Vpn,
) -> bool {
    space.vm.came_in_folio(space.id, page)
}

/// How many entries map each mapped frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Sharing {
    /// `anonymous[n]`: private frames with `n + 1` entries; the last counts
    /// all with more.
    pub anonymous: [u64; 32],
    /// The same for pages of objects.
    pub objects: [u64; 32],
}

/// How frames are shared now. Looks at every frame: for reports.
pub fn sharing<P: Platform, F: Format, R: ReverseMap>(vm: &Vm<P, F, R>) -> Sharing {
    let mut sharing = Sharing::default();
    vm.for_each_frame(|pfn| {
        let frame = vm.memory.frame(pfn);
        let maps = frame.counts().maps() as usize;
        let histogram = match frame.kind() {
            Kind::Anonymous => &mut sharing.anonymous,
            Kind::Object => &mut sharing.objects,
            _ => return,
        };
        if maps > 0 {
            // The first frame of a superpage may stand for all of them.
            histogram[(maps - 1).min(histogram.len() - 1)] += 1 << frame.order();
        }
    });
    sharing
}

/// Names what lies in the manager itself, which has come to the place where it stays, for those
/// who look at accesses to it. All else has been named when it was made.
#[cfg(vellum_instrumented)]
pub fn name_parts<P: Platform, F: Format, R: ReverseMap>(vm: &Vm<P, F, R>) {
    vm.memory.name_parts();
    vm.spaces
        .name_parts(["arena of spaces: depot", "arena of spaces: chunks"]);
    vm.regions
        .name_parts(["arena of regions: depot", "arena of regions: chunks"]);
    let nodes = &vm.region_nodes;
    nodes.name_parts([
        "arena of region nodes: depot",
        "arena of region nodes: chunks",
    ]);
    let tracts = &vm.tracts.items;
    tracts.name_parts(["arena of tracts: depot", "arena of tracts: chunks"]);
    vm.objects.name_parts();
    crate::sync::report::name("reverse mapping", &[], &raw const vm.rmap, 1);
}
