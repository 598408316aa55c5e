//! On which nodes pages lie: policies of memory, as on Linux (`mbind`, `set_mempolicy`).
//!
//! A policy is one word, so that regions, spaces and objects copy it, compare it and never have to
//! make or free one. That leaves room for [`NodeSet::MOST`] nodes by number.
//!
//! Who has no policy pays nothing for it: the word that says who is charged for a page also says
//! that there is a policy, and is tested anyway ([`Payer`]).

use crate::platform::{GroupId, NodeId};

/// Nodes, a bit for each: bit `n` is node `n`.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct NodeSet(pub u64);

impl NodeSet {
    /// Nodes from 0 on that a set can name. A machine may have more, which no policy names.
    pub const MOST: u16 = 48;

    /// That node alone; of one that no set can name, none.
    pub(crate) const fn only(node: NodeId) -> NodeSet {
        match node.0 < NodeSet::MOST {
            true => NodeSet(1 << node.0),
            false => NodeSet(0),
        }
    }

    /// Whether the node is one of them.
    pub(crate) const fn has(self, node: NodeId) -> bool {
        NodeSet::only(node).0 & self.0 != 0
    }

    /// The nodes, ascending.
    pub(crate) fn iter(self) -> impl Iterator<Item = NodeId> {
        crate::addr::set_bits(self.0).map(|node| NodeId(node as u16))
    }
}

impl FromIterator<NodeId> for NodeSet {
    fn from_iter<I: IntoIterator<Item = NodeId>>(nodes: I) -> NodeSet {
        let nodes = nodes.into_iter().map(NodeSet::only);
        nodes.fold(NodeSet::default(), |all, one| NodeSet(all.0 | one.0))
    }
}

/// On which nodes pages come to lie. Those that are there already stay where they are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NodePolicy {
    /// On that of the CPU that faults, then on others, nearest first (`MPOL_LOCAL`).
    Local,
    /// On these only, nearest first: pages of theirs leave, and at last the call is out of memory,
    /// rather than that another is used (`MPOL_BIND`).
    Bind {
        /// The nodes.
        nodes: NodeSet,
        /// From where it is near, if not from the CPU that faults
        /// (`set_mempolicy_home_node`).
        home: Option<NodeId>,
    },
    /// On these, nearest first, then on others (`MPOL_PREFERRED`, `MPOL_PREFERRED_MANY`).
    Prefer {
        /// The nodes.
        nodes: NodeSet,
        /// As of `Bind`.
        home: Option<NodeId>,
    },
    /// In turn by the page's number: in its object, or else where it was first mapped. On another
    /// if there is no frame (`MPOL_INTERLEAVE`).
    Interleave(NodeSet),
    /// The same, as many pages in a row as the node's weight
    /// ([`MemoryView::set_node_weight`](super::MemoryView::set_node_weight)) says
    /// (`MPOL_WEIGHTED_INTERLEAVE`).
    WeightedInterleave(NodeSet),
}

impl NodePolicy {
    fn parts(self) -> (u64, NodeSet, Option<NodeId>) {
        match self {
            NodePolicy::Local => (1, NodeSet::default(), None),
            NodePolicy::Bind { nodes, home } => (2, nodes, home),
            NodePolicy::Prefer { nodes, home } => (3, nodes, home),
            NodePolicy::Interleave(nodes) => (4, nodes, None),
            NodePolicy::WeightedInterleave(nodes) => (5, nodes, None),
        }
    }

    /// Whether a machine with so many nodes has those that it names, and it names one.
    fn fits(self, nodes: usize) -> bool {
        let exists = |node: NodeId| usize::from(node.0) < nodes && node.0 < NodeSet::MOST;
        let (_, named, home) = self.parts();
        let beyond = named.0 >> nodes.min(usize::from(NodeSet::MOST));
        let some = self == NodePolicy::Local || named.0 != 0;
        some && beyond == 0 && home.is_none_or(exists)
    }
}

/// A policy, or none, in one word: kind, home, nodes.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct PolicyWord(u64);

impl PolicyWord {
    pub(crate) const NONE: PolicyWord = PolicyWord(0);
    const KIND: u64 = 7;
    const HOME_SHIFT: u32 = 3;
    const HOME: u64 = 63;
    const NODES_SHIFT: u32 = 9;
    const BITS: u32 = PolicyWord::NODES_SHIFT + NodeSet::MOST as u32;

    /// `None` if a machine with so many nodes cannot have the policy.
    pub(crate) fn of(policy: Option<NodePolicy>, nodes: usize) -> Option<PolicyWord> {
        let Some(policy) = policy else {
            return Some(PolicyWord::NONE);
        };
        let (kind, named, home) = policy.parts();
        let home = home.map_or(0, |home| u64::from(home.0) + 1);
        let word = named.0 << PolicyWord::NODES_SHIFT | home << PolicyWord::HOME_SHIFT | kind;
        policy.fits(nodes).then_some(PolicyWord(word))
    }

    pub(crate) fn from_bits(bits: u64) -> PolicyWord {
        PolicyWord(bits)
    }

    pub(crate) fn bits(self) -> u64 {
        self.0
    }

    pub(crate) fn is_none(self) -> bool {
        self == PolicyWord::NONE
    }

    /// This one, or the other if it is none.
    pub(crate) fn or(self, other: PolicyWord) -> PolicyWord {
        if self.is_none() { other } else { self }
    }

    pub(crate) fn policy(self) -> Option<NodePolicy> {
        let nodes = NodeSet(self.0 >> PolicyWord::NODES_SHIFT);
        let home = (self.0 >> PolicyWord::HOME_SHIFT & PolicyWord::HOME).checked_sub(1);
        let home = home.map(|home| NodeId(home as u16));
        Some(match self.0 & PolicyWord::KIND {
            0 => return None,
            1 => NodePolicy::Local,
            2 => NodePolicy::Bind { nodes, home },
            3 => NodePolicy::Prefer { nodes, home },
            4 => NodePolicy::Interleave(nodes),
            _ => NodePolicy::WeightedInterleave(nodes),
        })
    }
}

/// Who is charged for a page, and by which policy it is placed; 0 for the root and none.
///
/// What a space has of it is its group and whether it has any policy. Which that is depends on the
/// page, and is looked up if an allocation asks for it ([`NoPage::Unplaced`](super::NoPage)).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Payer(u64);

impl Payer {
    /// The root, and no policy.
    pub(crate) const NONE: Payer = Payer(0);
    /// In a space's word: there are policies.
    pub(crate) const BY_POLICY: u32 = 1 << 31;
    const PLACED: u64 = 1 << 63;
    const PLACE: u64 = GroupId::MOST as u64 - 1;
    const POLICY_SHIFT: u32 = 6;

    /// From a space's word.
    #[inline]
    pub(crate) fn of_word(word: u32) -> Payer {
        Payer(u64::from(word))
    }

    /// The place of its group.
    #[inline]
    pub(crate) fn place(self) -> usize {
        (self.0 & Payer::PLACE) as usize
    }

    /// Its group, as charging knows it: by its place.
    pub(super) fn group(self) -> GroupId {
        GroupId::from_bits(self.place() as u32)
    }

    /// Whether there is a policy, and which has not been looked up.
    pub(crate) fn is_unplaced(self) -> bool {
        self.0 & (Payer::PLACED | u64::from(Payer::BY_POLICY)) == u64::from(Payer::BY_POLICY)
    }

    /// The same with the policy that was looked up.
    pub(crate) fn placed(self, policy: PolicyWord) -> Payer {
        let place = self.place() as u64;
        Payer(Payer::PLACED | policy.0 << Payer::POLICY_SHIFT | place)
    }

    /// The policy, if it has one that was looked up.
    pub(crate) fn policy(self) -> PolicyWord {
        match self.0 & Payer::PLACED {
            0 => PolicyWord::NONE,
            _ => PolicyWord((self.0 & !Payer::PLACED) >> Payer::POLICY_SHIFT),
        }
    }
}

impl From<GroupId> for Payer {
    #[inline]
    fn from(group: GroupId) -> Payer {
        Payer::of_word(group.to_bits() & !Payer::BY_POLICY)
    }
}

const _: () = assert!(PolicyWord::BITS + Payer::POLICY_SHIFT <= 63);
