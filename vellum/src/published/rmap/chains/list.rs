//! The words and chains of frames: what is done to them under the frame's lock.

use super::Chains;
use super::node::{ChainNode, ENTRIES_PER_NODE, State, chain, decode, direct};
use crate::platform::Platform;
use crate::rmap::Env;
use crate::slab::{Handle, Under};
use crate::table::PteRef;

impl Chains {
    /// The word after `pte` was added to a frame whose word is `word`.
    pub(super) fn inserted<P: Platform>(&self, env: &Env<'_, P>, word: u64, pte: PteRef) -> u64 {
        let (head, free) = match decode(word) {
            State::Unmapped if self.direct => return direct(pte),
            State::Unmapped => (Handle::NONE, 0),
            State::Direct(only) => {
                let node = self.new_head(env, Handle::NONE, only);
                (node, ENTRIES_PER_NODE - 1)
            }
            State::Chain(head) => (head, self.nodes(env).get(head).first()),
        };
        if free == 0 {
            return chain(self.new_head(env, head, pte), word);
        }
        let node = self.nodes(env).get(head);
        node.set_entry(free - 1, pte);
        node.set_first(free - 1);
        chain(head, word)
    }

    /// A node with one entry in front of `next`.
    fn new_head<P: Platform>(
        &self,
        env: &Env<'_, P>,
        next: Handle<ChainNode>,
        pte: PteRef,
    ) -> Handle<ChainNode> {
        let handle = self.take_node(env);
        let node = self.nodes(env).get(handle);
        node.set_next(next);
        node.set_first(ENTRIES_PER_NODE - 1);
        node.set_entry(ENTRIES_PER_NODE - 1, pte);
        handle
    }

    /// The word after `pte` was removed from a frame whose word is `word`.
    pub(super) fn removed<P: Platform>(&self, env: &Env<'_, P>, word: u64, pte: PteRef) -> u64 {
        match decode(word) {
            State::Direct(only) => {
                debug_assert!(only == pte, "entry removed that the frame does not list");
                0
            }
            State::Chain(head) => {
                let found = self.find(env, head, pte);
                debug_assert!(
                    found.is_some(),
                    "entry removed that the chain does not list"
                );
                found.map_or(word, |(node, index)| self.cut(env, word, head, node, index))
            }
            State::Unmapped => {
                debug_assert!(false, "entry removed from a frame that lists none");
                0
            }
        }
    }

    /// Where `pte` stands in the chain.
    pub(super) fn find<P: Platform>(
        &self,
        env: &Env<'_, P>,
        head: Handle<ChainNode>,
        pte: PteRef,
    ) -> Option<(Handle<ChainNode>, usize)> {
        let searched = &self.cpus.get(env.pin).nodes_searched;
        let mut handle = head;
        while !handle.is_none() {
            searched.bump();
            let node = self.nodes(env).get(handle);
            for index in node.first()..ENTRIES_PER_NODE {
                if node.entry(index) == pte {
                    return Some((handle, index));
                }
            }
            handle = node.next();
        }
        None
    }

    /// Fills the gap at `index` of `node` with the head's first entry.
    fn cut<P: Platform>(
        &self,
        env: &Env<'_, P>,
        word: u64,
        head: Handle<ChainNode>,
        node: Handle<ChainNode>,
        index: usize,
    ) -> u64 {
        let first_node = self.nodes(env).get(head);
        let first = first_node.first();
        let nodes = self.nodes(env);
        nodes.get(node).set_entry(index, first_node.entry(first));
        first_node.set_first(first + 1);
        if first + 1 < ENTRIES_PER_NODE {
            return chain(head, word);
        }
        let next = first_node.next();
        self.give_node(env, head);
        if next.is_none() { 0 } else { chain(next, word) }
    }

    /// The nodes, under the pin of an operation.
    #[inline]
    pub(super) fn nodes<'a, P: Platform>(&'a self, env: &Env<'a, P>) -> Nodes<'a> {
        self.nodes.under(env.pin)
    }

    /// The word of another frame that lists the same entries as the chain, for which
    /// nodes were prepared.
    pub(super) fn copied<P: Platform>(&self, env: &Env<'_, P>, head: Handle<ChainNode>) -> u64 {
        let mut word = 0;
        for pte in entries(self.nodes(env), head) {
            // Not `inserted`, which would begin with a direct entry and take a node more.
            word = match decode(word) {
                State::Chain(own) if self.nodes(env).get(own).first() > 0 => {
                    let node = self.nodes(env).get(own);
                    let free = node.first() - 1;
                    node.set_entry(free, pte);
                    node.set_first(free);
                    word
                }
                State::Chain(own) => chain(self.new_head(env, own, pte), word),
                _ => chain(self.new_head(env, Handle::NONE, pte), word),
            };
        }
        word
    }
}

/// The nodes under a pin.
type Nodes<'a> = Under<'a, ChainNode>;

/// The entries of a chain.
pub(super) fn entries(
    nodes: Nodes<'_>,
    head: Handle<ChainNode>,
) -> impl Iterator<Item = PteRef> + '_ {
    let first = normal(nodes, head, nodes.get(head).first());
    let places =
        core::iter::successors(first, move |&(node, index)| normal(nodes, node, index + 1));
    places.map(move |(node, index)| nodes.get(node).entry(index))
}

/// The place in the chain after `kept` entries.
pub(super) fn position(
    nodes: Nodes<'_>,
    head: Handle<ChainNode>,
    kept: usize,
) -> Option<(Handle<ChainNode>, usize)> {
    let mut place = normal(nodes, head, nodes.get(head).first());
    for _ in 0..kept {
        let (node, index) = place?;
        place = normal(nodes, node, index + 1);
    }
    place
}

/// The place itself, or the first of the next node if it is past the end.
pub(super) fn normal(
    nodes: Nodes<'_>,
    node: Handle<ChainNode>,
    index: usize,
) -> Option<(Handle<ChainNode>, usize)> {
    if index < ENTRIES_PER_NODE {
        return Some((node, index));
    }
    let next = nodes.get(node).next();
    (!next.is_none()).then(|| (next, nodes.get(next).first()))
}

/// Entries of a chain, whose form is checked.
pub(super) fn chain_length(nodes: Nodes<'_>, head: Handle<ChainNode>) -> Result<u32, &'static str> {
    let mut length = 0;
    let mut handle = head;
    while !handle.is_none() {
        let node = nodes.get(handle);
        let first = node.first();
        if first >= ENTRIES_PER_NODE {
            return Err("a chain node is empty");
        }
        if handle != head && first != 0 {
            return Err("a chain node behind the head has free entries");
        }
        length += (ENTRIES_PER_NODE - first) as u32;
        handle = node.next();
    }
    Ok(length)
}
