//! In which order chunks are taken back (`pvlru=`).
//!
//! `domain`: each node has a list of the chunks that lie there, by age, whose lock is
//! taken for every chunk that is made or ends. Whoever takes chunks back puts two markers
//! into the list, at its ends, and lets go of the lock while it works on the chunk before
//! the first marker.
//!
//! `global`: the same with one list for all nodes.
//!
//! `pmap`: there is a list of spaces instead, whose lock is taken when a space begins or
//! ends and not for chunks. The space at its front has its turn and goes to the back, and
//! so does each of its chunks.

use alloc::boxed::Box;

use super::entry::Chunk;
use super::spaces::{PvSpace, Turns};
use crate::addr::Pfn;
use crate::design::PvLru;
use crate::frame::PhysicalMemory;
use crate::platform::Platform;
use crate::slab::Arena;
use crate::sync::list::{Link, Links, List, NONE};
use crate::sync::report::name;
use crate::sync::{CachePadded, Pin, SpinLock};

/// Takers of one list at a time.
const TAKERS: usize = 4;
/// Names of markers: above those of all frames.
const FIRST_MARKER: u32 = NONE - 2 * TAKERS as u32;

/// The chunks of a node.
#[derive(Default)]
struct Aged {
    list: List,
    /// Bit for each taker at work.
    takers: u32,
}

pub(super) struct Domain {
    aged: SpinLock<Aged>,
    markers: [Link; 2 * TAKERS],
}

/// The list of each node, or that of all of them, or the list of all spaces.
pub(super) enum Order {
    Domain(Box<[CachePadded<Domain>]>),
    Pmap(CachePadded<SpinLock<List>>),
}

/// The links of chunks and markers in the list of a node.
struct OfNode<'a, P: Platform>(&'a PhysicalMemory<P>, &'a [Link; 2 * TAKERS]);

impl<P: Platform> Links for OfNode<'_, P> {
    #[inline]
    fn link(&self, name: u32) -> &Link {
        match name.checked_sub(FIRST_MARKER) {
            Some(marker) => &self.1[marker as usize],
            None => Chunk::at(self.0, Pfn(name)).of_node(),
        }
    }
}

impl Order {
    pub fn new(kind: PvLru, nodes: usize) -> Order {
        match kind {
            PvLru::Domain | PvLru::Global => {
                let nodes = match kind {
                    PvLru::Domain => nodes,
                    _ => 1,
                };
                let domain = |_| {
                    CachePadded(Domain {
                        aged: SpinLock::default(),
                        markers: core::array::from_fn(|_| Link::new()),
                    })
                };
                let domains: Box<[_]> = (0..nodes).map(domain).collect();
                name("pv chunk lists", &[], domains.as_ptr(), nodes);
                Order::Domain(domains)
            }
            PvLru::Pmap => Order::Pmap(CachePadded::default()),
        }
    }

    /// A space began.
    pub fn begin(&self, spaces: &Arena<PvSpace>, space: u32, pin: &Pin<'_>) {
        if let Order::Pmap(list) = self {
            list.lock(pin).push_back(&Turns(spaces), space);
        }
    }

    /// A space has ended.
    pub fn end(&self, spaces: &Arena<PvSpace>, space: u32, pin: &Pin<'_>) {
        if let Order::Pmap(list) = self {
            list.lock(pin).remove(&Turns(spaces), space);
        }
    }

    /// A chunk was made, of which the caller has an entry.
    #[inline]
    pub fn add<P: Platform>(&self, memory: &PhysicalMemory<P>, chunk: Pfn, pin: &Pin<'_>) {
        if let Order::Domain(domains) = self {
            let domain = domain_of(domains, memory, chunk);
            let links = &OfNode(memory, &domain.markers);
            domain.aged.lock(pin).list.push_back(links, chunk.0);
        }
    }

    /// Chunks that have left their spaces go, those of one node under one hold of its
    /// lock. `next` leads from one to the next.
    pub fn remove<P: Platform>(
        &self,
        memory: &PhysicalMemory<P>,
        chunks: impl Iterator<Item = Pfn>,
        pin: &Pin<'_>,
    ) {
        let Order::Domain(domains) = self else {
            return;
        };
        let mut held: Option<(&Domain, _)> = None;
        for chunk in chunks {
            let domain = domain_of(domains, memory, chunk);
            let mut aged = match held.take() {
                Some((same, aged)) if core::ptr::eq(same, domain) => aged,
                other => {
                    drop(other);
                    domain.aged.lock(pin)
                }
            };
            let links = &OfNode(memory, &domain.markers);
            aged.list.remove(links, chunk.0);
            held = Some((domain, aged));
        }
    }

    /// The list of the node with that number, for a taker.
    pub fn taker<'a, P: Platform>(
        &'a self,
        memory: &'a PhysicalMemory<P>,
        node: usize,
        pin: &'a Pin<'_>,
    ) -> Option<Taker<'a, P>> {
        let Order::Domain(domains) = self else {
            return None;
        };
        let domain = &**domains.get(node)?;
        let mut aged = domain.aged.lock(pin);
        let number = aged.takers.trailing_ones();
        if number as usize >= TAKERS {
            return None;
        }
        aged.takers |= 1 << number;
        let [here, end] = [0, 1].map(|which| FIRST_MARKER + 2 * number + which);
        let links = &OfNode(memory, &domain.markers);
        aged.list.push_front(links, here);
        aged.list.push_back(links, end);
        drop(aged);
        Some(Taker {
            memory,
            pin,
            domain,
            number,
            here,
            end,
        })
    }

    /// The space whose turn it is, and whose turn comes last next time.
    pub fn next_space(&self, spaces: &Arena<PvSpace>, pin: &Pin<'_>) -> Option<u32> {
        let Order::Pmap(list) = self else {
            return None;
        };
        let mut list = list.lock(pin);
        let first = list.first();
        if first == NONE {
            return None;
        }
        list.move_back(&Turns(spaces), first);
        Some(first)
    }

    /// Number of lists of chunks.
    pub fn nodes(&self) -> usize {
        match self {
            Order::Domain(domains) => domains.len(),
            Order::Pmap(_) => 0,
        }
    }
}

fn domain_of<'a, P: Platform>(
    domains: &'a [CachePadded<Domain>],
    memory: &PhysicalMemory<P>,
    chunk: Pfn,
) -> &'a Domain {
    let node = usize::from(memory.node_of(chunk).0);
    &domains[node.min(domains.len() - 1)].0
}

/// Somebody who goes over the chunks of a node, between two markers.
pub(super) struct Taker<'a, P: Platform> {
    memory: &'a PhysicalMemory<P>,
    pin: &'a Pin<'a>,
    domain: &'a Domain,
    number: u32,
    /// The chunk that is worked on is the one before this marker.
    here: u32,
    end: u32,
}

impl<P: Platform> Taker<'_, P> {
    fn links(&self) -> OfNode<'_, P> {
        OfNode(self.memory, &self.domain.markers)
    }

    /// Puts the marker behind the next chunk; returns it with its owner. Chunks that
    /// leave their spaces are passed over.
    pub fn next(&mut self) -> Option<(Pfn, u32)> {
        let links = self.links();
        let mut aged = self.domain.aged.lock(self.pin);
        loop {
            let next = links.link(self.here).next();
            if next == self.end || next == NONE {
                return None;
            }
            aged.list.remove(&links, self.here);
            aged.list.insert_after(&links, next, self.here);
            if next < FIRST_MARKER {
                let owner = Chunk::at(self.memory, Pfn(next)).owner();
                if owner != 0 {
                    return Some((Pfn(next), owner));
                }
            }
        }
    }

    /// Whether the chunk that [`Taker::next`] returned is still there, with that owner,
    /// whose lock the caller holds by now: then it stays while that is held.
    pub fn is_still(&self, chunk: Pfn, owner: u32) -> bool {
        let links = self.links();
        let _aged = self.domain.aged.lock(self.pin);
        links.link(self.here).previous() == chunk.0
            && Chunk::at(self.memory, chunk).owner() == owner
    }
}

impl<P: Platform> Drop for Taker<'_, P> {
    /// Takes the markers out. A taker that was alone puts the chunks that it has been
    /// at behind the others.
    fn drop(&mut self) {
        let links = self.links();
        let mut aged = self.domain.aged.lock(self.pin);
        if aged.takers == 1 << self.number {
            aged.list.rotate_to(&links, self.here);
        }
        aged.list.remove(&links, self.here);
        aged.list.remove(&links, self.end);
        aged.takers &= !(1 << self.number);
    }
}
