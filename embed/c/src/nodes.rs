//! On which nodes pages come to lie.

use vellum::addr::{PageRange, Vpn};
use vellum::frame::{self, NodeSet};
use vellum::platform::NodeId;

use crate::Paging;
use crate::manager::{Manager, Out, named, page_at, pages_of};
use crate::objects::Object;
use crate::spaces::Space;
use crate::status::Status;

/// No policy: another one counts, or none.
pub const VELLUM_NODES_DEFAULT: u32 = 0;
/// The node of the CPU that faults, then others, nearest first (MPOL_LOCAL).
pub const VELLUM_NODES_LOCAL: u32 = 1;
/// These nodes only, nearest first; VELLUM_STATUS_OUT_OF_MEMORY rather than others (MPOL_BIND).
pub const VELLUM_NODES_BIND: u32 = 2;
/// These nodes, nearest first, then others (MPOL_PREFERRED_MANY).
pub const VELLUM_NODES_PREFER: u32 = 3;
/// These in turn, by the number of the page (MPOL_INTERLEAVE).
pub const VELLUM_NODES_INTERLEAVE: u32 = 4;
/// The same, by the weights of vellum_set_node_weight() (MPOL_WEIGHTED_INTERLEAVE).
pub const VELLUM_NODES_WEIGHTED: u32 = 5;
/// No node from which others of VELLUM_NODES_BIND and VELLUM_NODES_PREFER are near or far: that is
/// the one of the CPU that faults.
pub const VELLUM_NO_HOME: u32 = u32::MAX;

/// No node: each page moves to where the policy that counts wants it.
pub const VELLUM_BY_POLICY: u32 = u32::MAX;

/// On which nodes pages come to lie. Those that are there already stay where they are.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct NodePolicy {
    /// One of VELLUM_NODES_*.
    pub kind: u32,
    /// A node or VELLUM_NO_HOME.
    pub home: u32,
    /// A bit for each node from 0 to 47.
    pub nodes: u64,
}

impl NodePolicy {
    /// # Safety
    /// The pointer is null or that of a policy.
    unsafe fn read(policy: *const NodePolicy) -> Result<Option<frame::NodePolicy>, Status> {
        // SAFETY: the caller's promise.
        let Some(policy) = (unsafe { policy.as_ref() }) else {
            return Ok(None);
        };
        let nodes = NodeSet(policy.nodes);
        let home = match policy.home {
            VELLUM_NO_HOME => None,
            home => Some(NodeId(u16::try_from(home).unwrap_or(u16::MAX))),
        };
        Ok(Some(match policy.kind {
            VELLUM_NODES_DEFAULT => return Ok(None),
            VELLUM_NODES_LOCAL => frame::NodePolicy::Local,
            VELLUM_NODES_BIND => frame::NodePolicy::Bind { nodes, home },
            VELLUM_NODES_PREFER => frame::NodePolicy::Prefer { nodes, home },
            VELLUM_NODES_INTERLEAVE => frame::NodePolicy::Interleave(nodes),
            VELLUM_NODES_WEIGHTED => frame::NodePolicy::WeightedInterleave(nodes),
            _ => return Err(Status::Argument),
        }))
    }

    fn of(policy: Option<frame::NodePolicy>) -> NodePolicy {
        let (kind, nodes, home) = match policy {
            None => (VELLUM_NODES_DEFAULT, NodeSet(0), None),
            Some(frame::NodePolicy::Local) => (VELLUM_NODES_LOCAL, NodeSet(0), None),
            Some(frame::NodePolicy::Bind { nodes, home }) => (VELLUM_NODES_BIND, nodes, home),
            Some(frame::NodePolicy::Prefer { nodes, home }) => (VELLUM_NODES_PREFER, nodes, home),
            Some(frame::NodePolicy::Interleave(nodes)) => (VELLUM_NODES_INTERLEAVE, nodes, None),
            Some(frame::NodePolicy::WeightedInterleave(nodes)) => {
                (VELLUM_NODES_WEIGHTED, nodes, None)
            }
        };
        NodePolicy {
            kind,
            home: home.map_or(VELLUM_NO_HOME, |home| u32::from(home.0)),
            nodes: nodes.0,
        }
    }
}

fn range_of(address: u64, bytes: u64) -> Result<PageRange, Status> {
    let start = page_at(address)?;
    let end = start.0.checked_add(pages_of(bytes)?);
    let end = Vpn(end.ok_or(Status::BadRange)?);
    Ok(PageRange { start, end })
}

/// Says on which nodes pages of a range come to lie (mbind), or, with `bytes` 0, those of the space
/// that no other policy is about (set_mempolicy). No `policy` takes it away.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vellum_set_node_policy(
    vm: *mut Manager,
    space: Space,
    address: u64,
    bytes: u64,
    policy: *const NodePolicy,
) -> Status {
    let set = || {
        // SAFETY: the head of the header.
        let (manager, policy) = unsafe { (named(vm)?, NodePolicy::read(policy)?) };
        let range = match bytes {
            0 => None,
            _ => Some(range_of(address, bytes)?),
        };
        Ok(manager
            .vm
            .space(space.id())
            .set_node_policy(range, policy)?)
    };
    Status::of(set())
}

/// The same of an object, in whichever space its pages are first touched, where the region has no
/// policy of its own.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vellum_object_set_node_policy(
    vm: *mut Manager,
    object: Object,
    policy: *const NodePolicy,
) -> Status {
    let set = || {
        // SAFETY: the head of the header.
        let (manager, policy) = unsafe { (named(vm)?, NodePolicy::read(policy)?) };
        Ok(manager.vm.file(object.id()).set_node_policy(policy)?)
    };
    Status::of(set())
}

/// How many pages in a row a node gets of VELLUM_NODES_WEIGHTED, 1 to 255; 1 at first.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vellum_set_node_weight(
    vm: *mut Manager,
    node: u32,
    weight: u32,
) -> Status {
    let set = || {
        // SAFETY: the head of the header.
        let memory = unsafe { named(vm)? }.vm.memory();
        let node = NodeId(u16::try_from(node).map_err(|_| Status::BadNodes)?);
        let weight = u8::try_from(weight).map_err(|_| Status::Argument)?;
        match memory.set_node_weight(node, weight) {
            true => Ok(()),
            false => Err(Status::BadNodes),
        }
    };
    Status::of(set())
}

/// What became of the pages of a range that were to lie elsewhere, of those that are in memory.
#[repr(C)]
pub struct PagesMoved {
    /// Pages that have moved.
    pub moved: u64,
    /// Pages that lay right.
    pub in_place: u64,
    /// Private pages that other spaces map, too.
    pub shared: u64,
    /// Pages that are pinned, in the swap cache, or written or referred to at this moment; and of
    /// objects, those in a locked range, and those that a fault hook watches.
    pub busy: u64,
    /// Pages for which there was no frame where they were to be.
    pub no_memory: u64,
}

/// Moves the pages of a range that are in memory to a node, or with VELLUM_BY_POLICY to where their
/// policies want them (move_pages, mbind with MPOL_MF_MOVE). Pages of objects move for all spaces,
/// private ones only if no other space maps them. `moved`, which may be null, gets what became of
/// them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vellum_move_pages(
    vm: *mut Manager,
    space: Space,
    address: u64,
    bytes: u64,
    node: u32,
    moved: *mut PagesMoved,
) -> Status {
    let go = || {
        // SAFETY: the head of the header.
        let (manager, out) = unsafe { (named(vm)?, Out::new(moved)) };
        let to = match node {
            VELLUM_BY_POLICY => None,
            node => Some(NodeId(u16::try_from(node).map_err(|_| Status::BadNodes)?)),
        };
        let range = range_of(address, bytes)?;
        let done = manager.vm.space(space.id()).move_pages(range, to)?;
        if let Ok(out) = out {
            out.set(PagesMoved {
                moved: done.moved,
                in_place: done.in_place,
                shared: done.shared,
                busy: done.busy,
                no_memory: done.no_memory,
            });
        }
        Ok(())
    };
    Status::of(go())
}

/// The policy of the region that holds an address, or that of its space if it has none of its own
/// (get_mempolicy). `node`, which may be null, gets the node of the page that is there, or
/// VELLUM_NO_HOME.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vellum_node_policy_at(
    vm: *mut Manager,
    space: Space,
    address: u64,
    policy: *mut NodePolicy,
    node: *mut u32,
) -> Status {
    let find = || {
        // SAFETY: the head of the header.
        let (manager, out, node) = unsafe { (named(vm)?, Out::new(policy)?, Out::new(node)) };
        let (space, page) = (manager.vm.space(space.id()), Vpn::of::<Paging>(address));
        let of_space = space.stats()?.node_policy;
        let region = space.region_at(page).map_err(|_| Status::NoRegion)?;
        out.set(NodePolicy::of(region.node_policy.or(of_space)));
        if let Ok(node) = node {
            let memory = manager.vm.memory();
            let found = space.translate(page).ok();
            let found = found.filter(|&(frame, _)| memory.contains(frame));
            node.set(found.map_or(VELLUM_NO_HOME, |(frame, _)| {
                let zone = memory.zone_of(frame);
                u32::from(memory.zone_stats(zone, &manager.vm.pin()).node.0)
            }));
        }
        Ok(())
    };
    Status::of(find())
}
