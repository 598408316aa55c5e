//! A page's further addresses: the rmap_chain of anonmm2003.
//!
//! Fork maps a page at the same address in the child, so one address does for
//! the whole bundle, and it stands in the frame's record. Only mremap of a page
//! that several spaces map makes another, which goes into a chain: nodes of
//! seven slots, of which the first node's first holds the mapping count that
//! would stand in the frame's word otherwise. Which space shows the page at
//! which address is not known, so an address stays until the page is mapped
//! once at most.
//!
//! The chain is the holder's of the page's lock. Each CPU keeps a spare node,
//! and every fault makes sure that it has one.

use crate::addr::Vpn;
use crate::frame::AuditError;
use crate::frame::{OutOfMemory, Relief, Site};
use crate::platform::Platform;
use crate::rmap::Env;
use crate::slab::{Arena, ArenaCensus, ArenaMaker, ArenaStats, AtHand, Handle, Item, WhilePinned};
use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use crate::sync::{Counter, PerCpu};

/// Slots in a node: what a 64-byte line holds beside the link.
pub(super) const SLOTS: usize = 7;

/// A node of a chain: one cache line.
#[derive(Debug)]
#[repr(C, align(64))]
pub(super) struct AddressNode {
    /// The first node's first: the count. Others: page + 1, or 0 for none.
    slots: [AtomicU64; SLOTS],
    /// Handle of the next node, or 0.
    next: AtomicU32,
    link: AtomicU32,
}

impl Item for AddressNode {
    const SITE: Site = Site::AddressChain;
    const SHARE: usize = 8;
    const RELIEF: Relief = Relief::Memory;

    fn vacant() -> Self {
        AddressNode {
            slots: [const { AtomicU64::new(0) }; SLOTS],
            next: AtomicU32::new(0),
            link: AtomicU32::new(0),
        }
    }

    fn link(&self) -> &AtomicU32 {
        &self.link
    }
}

impl AddressNode {
    fn slot(&self, index: usize) -> u64 {
        self.slots[index].load(Ordering::Relaxed)
    }

    fn set_slot(&self, index: usize, value: u64) {
        self.slots[index].store(value, Ordering::Relaxed);
    }

    fn next(&self) -> Handle<AddressNode> {
        Handle::from_raw(self.next.load(Ordering::Relaxed))
    }
}

#[derive(Default)]
struct AddressesCpu {
    /// A node for the next page that needs one, or none.
    spare: AtomicU32,
    allocs: Counter,
    frees: Counter,
    searched: Counter,
}

/// All chains of addresses.
pub(super) struct Addresses {
    nodes: Arena<AddressNode, WhilePinned>,
    cpus: PerCpu<AddressesCpu>,
}

/// A page's chain, by its first node.
pub(super) type AddressChain = Handle<AddressNode>;

impl Addresses {
    pub fn new(cpus: usize, arenas: &ArenaMaker) -> Self {
        Addresses {
            nodes: arenas.make(),
            cpus: PerCpu::new(cpus, |_| AddressesCpu::default()),
        }
    }

    /// Makes sure that the CPU has a spare node.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    #[inline]
    pub fn prepare<P: Platform>(&self, env: &Env<'_, P>) -> Result<(), OutOfMemory> {
        let spare = &self.cpus.get(env.pin).spare;
        if spare.load(Ordering::Relaxed) == 0 {
            let node = self.nodes.alloc(env.pin, env.memory)?;
            spare.store(node.raw(), Ordering::Relaxed);
        }
        Ok(())
    }

    /// Makes sure that `count` pages can get another address under this pin.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    pub fn reserve<P: Platform>(&self, env: &Env<'_, P>, count: usize) -> Result<(), OutOfMemory> {
        self.nodes.reserve(env.pin, env.memory, count)
    }

    /// A node that was reserved, or the spare; all its slots are empty.
    fn take<P: Platform>(&self, env: &Env<'_, P>) -> AddressChain {
        let cpu = self.cpus.get(env.pin);
        cpu.allocs.bump();
        let handle = match cpu.spare.load(Ordering::Relaxed) {
            0 => self.nodes.take_reserved(env.pin),
            spare => {
                cpu.spare.store(0, Ordering::Relaxed);
                Handle::from_raw(spare)
            }
        };
        let node = self.nodes.under(env.pin).get(handle);
        for index in 0..SLOTS {
            node.set_slot(index, 0);
        }
        node.next.store(0, Ordering::Relaxed);
        handle
    }

    fn give<P: Platform>(&self, env: &Env<'_, P>, node: AddressChain) {
        let cpu = self.cpus.get(env.pin);
        cpu.frees.bump();
        if cpu.spare.load(Ordering::Relaxed) == 0 {
            cpu.spare.store(node.raw(), Ordering::Relaxed);
        } else {
            self.nodes.free(env.pin, node);
        }
    }

    /// A chain of one address for a page with `count` mappings.
    pub fn begin<P: Platform>(&self, env: &Env<'_, P>, count: u32, page: Vpn) -> AddressChain {
        let chain = self.take(env);
        let node = self.nodes.under(env.pin).get(chain);
        node.set_slot(0, u64::from(count));
        node.set_slot(1, page.0 + 1);
        chain
    }

    /// Mappings of the page.
    pub fn count<P: Platform>(&self, env: &Env<'_, P>, chain: AddressChain) -> u32 {
        self.nodes.under(env.pin).get(chain).slot(0) as u32
    }

    /// Sets the mappings of the page.
    pub fn set_count<P: Platform>(&self, env: &Env<'_, P>, chain: AddressChain, count: u32) {
        self.nodes
            .under(env.pin)
            .get(chain)
            .set_slot(0, u64::from(count));
    }

    /// Adds an address unless it is there.
    pub fn insert<P: Platform>(&self, env: &Env<'_, P>, chain: AddressChain, page: Vpn) {
        let searched = &self.cpus.get(env.pin).searched;
        let mut empty = None;
        let (mut handle, mut first) = (chain, 1);
        while !handle.is_none() {
            searched.bump();
            let node = self.nodes.under(env.pin).get(handle);
            for index in first..SLOTS {
                match node.slot(index) {
                    0 => empty = empty.or(Some((node, index))),
                    found if found == page.0 + 1 => return,
                    _ => {}
                }
            }
            (handle, first) = (node.next(), 0);
        }
        if let Some((node, index)) = empty {
            node.set_slot(index, page.0 + 1);
            return;
        }
        let added = self.take(env);
        let (node, head) = (
            self.nodes.under(env.pin).get(added),
            self.nodes.under(env.pin).get(chain),
        );
        node.set_slot(0, page.0 + 1);
        node.next.store(head.next().raw(), Ordering::Relaxed);
        head.next.store(added.raw(), Ordering::Relaxed);
    }

    /// The address with number `number`, from 0.
    pub fn get<P: Platform>(
        &self,
        env: &Env<'_, P>,
        chain: AddressChain,
        number: usize,
    ) -> Option<Vpn> {
        let mut place = number + 1;
        let mut handle = chain;
        while place >= SLOTS {
            handle = self.nodes.under(env.pin).get(handle).next();
            if handle.is_none() {
                return None;
            }
            place -= SLOTS;
        }
        self.nodes
            .under(env.pin)
            .get(handle)
            .slot(place)
            .checked_sub(1)
            .map(Vpn)
    }

    /// Ends a chain; returns the count it held.
    pub fn end<P: Platform>(&self, env: &Env<'_, P>, chain: AddressChain) -> u32 {
        let count = self.count(env, chain);
        let mut handle = chain;
        while !handle.is_none() {
            let next = self.nodes.under(env.pin).get(handle).next();
            self.give(env, handle);
            handle = next;
        }
        count
    }

    /// Has the arena give back frames that hold no node any more; returns how many went.
    pub fn give_back<P: Platform>(&self, env: &Env<'_, P>, at_hand: AtHand) -> u64 {
        self.nodes.give_back(env.pin, env.memory, at_hand)
    }

    /// Nodes taken and given back for chains, and nodes read in searches.
    pub fn counts(&self) -> (u64, u64, u64) {
        (
            self.cpus.sum(|cpu| &cpu.allocs),
            self.cpus.sum(|cpu| &cpu.frees),
            self.cpus.sum(|cpu| &cpu.searched),
        )
    }

    /// Counts of the arena.
    pub fn stats(&self) -> ArenaStats {
        self.nodes.stats()
    }

    /// Checks the arena while nothing else runs.
    ///
    /// # Errors
    /// What is wrong.
    pub fn audit(&self) -> Result<ArenaCensus, AuditError> {
        self.nodes.audit()
    }
}
