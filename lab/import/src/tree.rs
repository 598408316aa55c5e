//! An ordered map whose copies share what they have in common.
//!
//! A fork copies its parent's address space and descriptors, and most children
//! change little of them: a copy costs nothing here, and a change of either
//! copy costs as many nodes as the tree is high. Whole ranges are cut out at
//! that price, too. (Height-balanced, made of `join` and `split`.)

use std::rc::Rc;

type Link<V> = Option<Rc<Node<V>>>;

#[derive(Clone)]
struct Node<V> {
    key: u64,
    value: V,
    height: u8,
    left: Link<V>,
    right: Link<V>,
}

/// The map.
#[derive(Clone)]
pub struct Tree<V> {
    root: Link<V>,
}

impl<V> Default for Tree<V> {
    fn default() -> Self {
        Tree { root: None }
    }
}

impl<V: Clone> Tree<V> {
    /// What is at `key`.
    pub fn get(&self, key: u64) -> Option<&V> {
        let (at, value) = self.floor(key)?;
        (at == key).then_some(value)
    }

    /// What is at the last key that is not above `key`.
    pub fn floor(&self, key: u64) -> Option<(u64, &V)> {
        let (mut link, mut best) = (&self.root, None);
        while let Some(node) = link {
            link = if node.key <= key {
                best = Some((node.key, &node.value));
                &node.right
            } else {
                &node.left
            };
        }
        best
    }

    /// Puts a value in place of whatever is there.
    pub fn insert(&mut self, key: u64, value: V) {
        let (left, _, right) = split(self.root.take(), key);
        self.root = join(left, (key, value), right);
    }

    /// Takes away what is at `key`.
    pub fn remove(&mut self, key: u64) {
        let (left, _, right) = split(self.root.take(), key);
        self.root = concatenate(left, right);
    }

    /// Takes away everything from `first` on that is below `end`.
    pub fn cut(&mut self, first: u64, end: u64) -> Tree<V> {
        let (left, at_first, rest) = split(self.root.take(), first);
        let (mut taken, at_end, mut right) = split(rest, end);
        if let Some(value) = at_end {
            right = join(None, (end, value), right);
        }
        if let Some(value) = at_first {
            taken = join(None, (first, value), taken);
        }
        self.root = concatenate(left, right);
        Tree { root: taken }
    }

    /// Everything, in ascending order.
    pub fn into_vec(self) -> Vec<(u64, V)> {
        let mut all = Vec::new();
        collect(self.root, &mut all);
        all
    }
}

fn collect<V: Clone>(link: Link<V>, all: &mut Vec<(u64, V)>) {
    if let Some(node) = link {
        let node = Rc::unwrap_or_clone(node);
        collect(node.left, all);
        all.push((node.key, node.value));
        collect(node.right, all);
    }
}

fn height<V>(link: &Link<V>) -> u8 {
    link.as_ref().map_or(0, |node| node.height)
}

fn node<V>(left: Link<V>, (key, value): (u64, V), right: Link<V>) -> Link<V> {
    #[cfg(test)]
    tests::MADE.with(|made| made.set(made.get() + 1));
    Some(Rc::new(Node {
        key,
        value,
        height: 1 + height(&left).max(height(&right)),
        left,
        right,
    }))
}

/// One tree of two with an entry between them.
fn join<V: Clone>(left: Link<V>, entry: (u64, V), right: Link<V>) -> Link<V> {
    let (low, high) = (height(&left), height(&right));
    match (left, right) {
        (Some(top), right) if low > high + 1 => {
            let top = Rc::unwrap_or_clone(top);
            let inner = join(top.right, entry, right);
            balance(top.left, (top.key, top.value), inner)
        }
        (left, Some(top)) if high > low + 1 => {
            let top = Rc::unwrap_or_clone(top);
            let inner = join(left, entry, top.left);
            balance(inner, (top.key, top.value), top.right)
        }
        (left, right) => node(left, entry, right),
    }
}

/// As [`node`], of trees whose heights differ by at most two.
fn balance<V: Clone>(left: Link<V>, entry: (u64, V), right: Link<V>) -> Link<V> {
    let (low, high) = (height(&left), height(&right));
    match (left, right) {
        (left, Some(top)) if high > low + 1 => {
            let top = Rc::unwrap_or_clone(top);
            let own = (top.key, top.value);
            match top.left {
                Some(inner) if inner.height > height(&top.right) => {
                    let inner = Rc::unwrap_or_clone(inner);
                    let left = node(left, entry, inner.left);
                    let right = node(inner.right, own, top.right);
                    node(left, (inner.key, inner.value), right)
                }
                inner => node(node(left, entry, inner), own, top.right),
            }
        }
        (Some(top), right) if low > high + 1 => {
            let top = Rc::unwrap_or_clone(top);
            let own = (top.key, top.value);
            match top.right {
                Some(inner) if inner.height > height(&top.left) => {
                    let inner = Rc::unwrap_or_clone(inner);
                    let right = node(inner.right, entry, right);
                    let left = node(top.left, own, inner.left);
                    node(left, (inner.key, inner.value), right)
                }
                inner => node(top.left, own, node(inner, entry, right)),
            }
        }
        (left, right) => node(left, entry, right),
    }
}

/// What is below `key`, at it and above it.
fn split<V: Clone>(link: Link<V>, key: u64) -> (Link<V>, Option<V>, Link<V>) {
    let Some(top) = link else {
        return (None, None, None);
    };
    let top = Rc::unwrap_or_clone(top);
    let own = (top.key, top.value);
    match key.cmp(&top.key) {
        std::cmp::Ordering::Equal => (top.left, Some(own.1), top.right),
        std::cmp::Ordering::Less => {
            let (left, at, right) = split(top.left, key);
            (left, at, join(right, own, top.right))
        }
        std::cmp::Ordering::Greater => {
            let (left, at, right) = split(top.right, key);
            (join(top.left, own, left), at, right)
        }
    }
}

/// One tree of two.
fn concatenate<V: Clone>(left: Link<V>, right: Link<V>) -> Link<V> {
    match right {
        None => left,
        Some(top) => {
            let (first, rest) = take_first(Rc::unwrap_or_clone(top));
            join(left, first, rest)
        }
    }
}

fn take_first<V: Clone>(top: Node<V>) -> ((u64, V), Link<V>) {
    let own = (top.key, top.value);
    match top.left {
        None => (own, top.right),
        Some(left) => {
            let (first, rest) = take_first(Rc::unwrap_or_clone(left));
            (first, join(rest, own, top.right))
        }
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use std::cell::Cell;
    use std::collections::BTreeMap;

    thread_local! {
        /// Nodes made by this thread: the work of all trees.
        pub static MADE: Cell<u64> = const { Cell::new(0) };
    }

    fn check(link: &Link<u64>) {
        if let Some(node) = link {
            check(&node.left);
            check(&node.right);
            let (left, right) = (height(&node.left), height(&node.right));
            assert!(left.abs_diff(right) <= 1, "heights {left} and {right}");
            assert_eq!(node.height, 1 + left.max(right));
        }
    }

    #[test]
    fn it_holds_what_an_ordered_map_holds_and_stays_balanced() {
        let (mut tree, mut map) = (Tree::default(), BTreeMap::new());
        let mut state = 0x9e37_79b9_7f4a_7c15u64;
        let mut random = |limit: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state % limit
        };
        for step in 0..4000 {
            let (key, other) = (random(500), random(60));
            match random(8) {
                0..=4 => {
                    tree.insert(key, step);
                    map.insert(key, step);
                }
                5 => {
                    tree.remove(key);
                    map.remove(&key);
                }
                6 => {
                    let cut = tree.cut(key, key + other);
                    check(&cut.root);
                    let mut rest = map.split_off(&key);
                    let mut above = rest.split_off(&(key + other));
                    map.append(&mut above);
                    assert_eq!(cut.into_vec(), rest.into_iter().collect::<Vec<_>>());
                }
                _ => {
                    let floor = map.range(..=key).next_back();
                    assert_eq!(tree.floor(key), floor.map(|(key, value)| (*key, value)));
                    assert_eq!(tree.get(key), map.get(&key));
                }
            }
            check(&tree.root);
        }
        assert_eq!(tree.into_vec(), map.into_iter().collect::<Vec<_>>());
    }

    #[test]
    fn a_copy_keeps_what_it_had_when_the_other_one_changes() {
        let mut tree = Tree::default();
        (0..100).for_each(|key| tree.insert(key, key));
        let copy = tree.clone();
        tree.cut(10, 90);
        tree.insert(5, 500);
        assert_eq!(copy.into_vec().len(), 100);
        assert_eq!(tree.get(5), Some(&500));
    }
}
