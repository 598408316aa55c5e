//! Frames by a policy of nodes ([`NodePolicy`]). Nothing here is reached without one.

use super::memory::PhysicalMemory;
use super::policy::{NodePolicy, NodeSet, Payer, PolicyWord};
use super::request::{OutOfMemory, Request};
use super::site::Site;
use crate::addr::Pfn;
use crate::platform::{Machine, NodeId};
use crate::sync::Pin;
use crate::sync::atomic::Ordering;

impl<P: Machine> PhysicalMemory<P> {
    /// [`MemoryView::set_node_weight`](super::MemoryView::set_node_weight).
    pub(super) fn set_node_weight(&self, node: NodeId, weight: u8) -> bool {
        let place = self.weights.get(usize::from(node.0));
        let place = place.filter(|_| weight > 0);
        place
            .inspect(|place| place.store(weight, Ordering::Relaxed))
            .is_some()
    }

    /// The word of a policy; `None` if it cannot be had on this machine.
    pub(crate) fn policy_word(&self, policy: Option<NodePolicy>) -> Option<PolicyWord> {
        PolicyWord::of(policy, self.platform.nodes())
    }

    /// Whether a policy names nodes of this machine, as the audit asks.
    pub(crate) fn may_have(&self, word: PolicyWord) -> bool {
        !P::PARTS.nodes || self.policy_word(word.policy()) == Some(word)
    }

    /// [`PhysicalMemory::alloc`] by a policy, of the page with this number.
    pub(super) fn alloc_placed(
        &self,
        pin: &Pin<'_>,
        request: Request,
        policy: PolicyWord,
        index: u64,
    ) -> Result<Pfn, OutOfMemory> {
        let (nodes, home) = match policy.policy() {
            None | Some(NodePolicy::Local) => return self.alloc(pin, request),
            Some(NodePolicy::Bind { nodes, home }) => {
                let found = self.alloc_among(pin, &request, nodes, home)?;
                return found.ok_or_else(|| self.note_lacking(pin, nodes));
            }
            Some(NodePolicy::Prefer { nodes, home }) => (nodes, home),
            Some(NodePolicy::Interleave(nodes)) => {
                let node = self.in_turn(nodes, |_| 1, index >> request.order);
                (NodeSet::only(node), Some(node))
            }
            Some(NodePolicy::WeightedInterleave(nodes)) => {
                let node = self.in_turn(nodes, |node| self.weight(node), index >> request.order);
                (NodeSet::only(node), Some(node))
            }
        };
        match self.try_among(pin, &request, nodes, home)? {
            Some(frame) => Ok(frame),
            None => self.alloc(
                pin,
                request.on_node(home.unwrap_or(self.cpus.get(pin).node)),
            ),
        }
    }

    /// [`PhysicalMemory::alloc_placed`] of a block that the caller can do without.
    pub(super) fn alloc_placed_to_spare(
        &self,
        pin: &Pin<'_>,
        request: Request,
        policy: PolicyWord,
    ) -> Option<Pfn> {
        let (nodes, home) = match policy.policy() {
            None | Some(NodePolicy::Local) => return self.alloc_to_spare(pin, request),
            Some(NodePolicy::Bind { nodes, home } | NodePolicy::Prefer { nodes, home }) => {
                (nodes, home)
            }
            // A block would be pages of several nodes.
            Some(_) => return None,
        };
        self.try_among(pin, &request, nodes, home).ok()?
    }

    /// The nodes of which a policy wants the page, or superpage, with this number on one; `None` if
    /// it may lie anywhere.
    pub(crate) fn wanted_nodes(&self, policy: PolicyWord, index: u64) -> Option<NodeSet> {
        Some(match policy.policy()? {
            NodePolicy::Local => return None,
            NodePolicy::Bind { nodes, .. } | NodePolicy::Prefer { nodes, .. } => nodes,
            NodePolicy::Interleave(nodes) => NodeSet::only(self.in_turn(nodes, |_| 1, index)),
            NodePolicy::WeightedInterleave(nodes) => {
                NodeSet::only(self.in_turn(nodes, |node| self.weight(node), index))
            }
        })
    }

    /// Frames for a page, or for `1 << order`, that moves to where a policy wants it. Nothing leaves
    /// for it.
    pub(crate) fn alloc_to_move(
        &self,
        pin: &Pin<'_>,
        payer: Payer,
        (policy, index): (PolicyWord, u64),
        order: u32,
    ) -> Option<Pfn> {
        let request = Request::page(Site::MovedPage).order(order);
        let frame = self.alloc_for_payer(pin, request, payer.placed(policy), index);
        // No call of the caller's is to make room for it.
        self.take_lacking(pin);
        let frame = frame.ok()?;
        // `Prefer` and those that take turns fall back to other nodes.
        let wanted = self.wanted_nodes(policy, index >> order);
        if wanted.is_some_and(|nodes| !nodes.has(self.node_of(frame))) {
            self.put_order(pin, frame, order);
            return None;
        }
        Some(frame)
    }

    fn weight(&self, node: NodeId) -> u64 {
        let weight = self.weights.get(usize::from(node.0));
        weight.map_or(1, |weight| u64::from(weight.load(Ordering::Relaxed)))
    }

    /// The node of the page with this number, of nodes that take turns.
    fn in_turn(&self, nodes: NodeSet, weight: impl Fn(NodeId) -> u64, index: u64) -> NodeId {
        let all: u64 = nodes.iter().map(&weight).sum();
        let mut left = index.checked_rem(all).unwrap_or(0);
        for node in nodes.iter() {
            match left.checked_sub(weight(node)) {
                Some(less) => left = less,
                None => return node,
            }
        }
        // A weight has changed meanwhile.
        nodes.iter().next().unwrap_or(NodeId(0))
    }

    /// A block of some nodes, nearest first; `Ok(None)` if they have none, whatever is given back or
    /// broken for it.
    ///
    /// # Errors
    /// The failure was planned.
    fn alloc_among(
        &self,
        pin: &Pin<'_>,
        request: &Request,
        nodes: NodeSet,
        home: Option<NodeId>,
    ) -> Result<Option<Pfn>, OutOfMemory> {
        let found = self.try_among(pin, request, nodes, home)?;
        let found = found.or_else(|| {
            self.drain(pin);
            self.take_among(pin, request, nodes, home)
        });
        Ok(found.or_else(|| {
            let mut each = nodes.iter();
            each.find_map(|node| {
                let request = request.on_node(node).exact();
                let pfn = self.break_and_try(pin, &request)?;
                Some(self.hand_out_counted(pin, pfn, &request))
            })
        }))
    }

    /// The same of what there is without that.
    fn try_among(
        &self,
        pin: &Pin<'_>,
        request: &Request,
        nodes: NodeSet,
        home: Option<NodeId>,
    ) -> Result<Option<Pfn>, OutOfMemory> {
        if self.fail_now(request.site) || request.order > super::MAX_ORDER {
            return Err(OutOfMemory);
        }
        self.heed_shortage(pin);
        Ok(self.take_among(pin, request, nodes, home))
    }

    fn take_among(
        &self,
        pin: &Pin<'_>,
        request: &Request,
        nodes: NodeSet,
        home: Option<NodeId>,
    ) -> Option<Pfn> {
        let home = home.unwrap_or(self.cpus.get(pin).node);
        let mut before = None;
        for &number in self.zones.fallback(home) {
            let node = self.zones.get(number).info.node;
            if before == Some(node) || !nodes.has(node) {
                continue;
            }
            before = Some(node);
            if let Some(pfn) = self.take_on(pin, request.on_node(node), node) {
                self.wake_node(node);
                return Some(pfn);
            }
        }
        None
    }

    /// A block of one node, from the CPU's own list if that has one.
    fn take_on(&self, pin: &Pin<'_>, request: Request, node: NodeId) -> Option<Pfn> {
        let cpu = self.cpus.get(pin);
        if request.order == 0 && node == cpu.node && self.other_lists().is_none() {
            let lists = cpu.lists_for(request.zone);
            if let Some(pfn) = lists.frames.pop() {
                if self.node_of(pfn) == node {
                    return Some(self.hand_out_counted(pin, pfn, &request));
                }
                lists.frames.push_run(pfn, 1);
            } else if lists.exist()
                && self.zones.get(lists.zone).info.node == node
                && let Some(pfn) = self.refill(pin, lists.zone, &request)
            {
                return Some(self.hand_out_counted(pin, pfn, &request));
            }
        }
        let request = request.exact();
        let pfn = self.try_zones(pin, &request)?;
        Some(self.hand_out_counted(pin, pfn, &request))
    }

    fn hand_out_counted(&self, pin: &Pin<'_>, pfn: Pfn, request: &Request) -> Pfn {
        self.cpus.get(pin).counters.allocs.bump();
        self.hand_out(pin, pfn, request)
    }

    /// Nodes that a call may use, and no others, have no frame for it: their reclaim is woken, and
    /// the call will have pages of theirs leave.
    fn note_lacking(&self, pin: &Pin<'_>, nodes: NodeSet) -> OutOfMemory {
        let cpu = self.cpus.get(pin);
        cpu.lacks.store(nodes.0, Ordering::Relaxed);
        cpu.counters.failed.bump();
        self.shortage.fetch_add(1, Ordering::Relaxed);
        nodes.iter().for_each(|node| self.wake_node(node));
        OutOfMemory
    }

    /// The nodes of which a call on this CPU was refused a frame, if nobody has asked since.
    pub(crate) fn take_lacking(&self, pin: &Pin<'_>) -> Option<NodeSet> {
        let nodes = NodeSet(self.cpus.get(pin).lacks.swap(0, Ordering::Relaxed));
        (nodes.0 != 0).then_some(nodes)
    }
}
