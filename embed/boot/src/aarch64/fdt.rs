//! What QEMU says: a flattened device tree (Devicetree Specification, chapter 5).

use alloc::string::String;
use core::ffi::CStr;

use super::{direct, read};

/// What the kernel was started with.
pub struct Boot {
    tree: u64,
}

const MAGIC: u32 = 0xd00d_feed;
const BEGIN_NODE: u32 = 1;
const END_NODE: u32 = 2;
const PROPERTY: u32 = 3;
const END: u32 = 9;

/// A string in the tree.
fn string(at: u64) -> &'static str {
    // SAFETY: names in the tree end with a zero byte, and the tree stays (`Boot::busy`).
    unsafe { CStr::from_ptr(direct(at).cast()) }
        .to_str()
        .unwrap_or("")
}

fn word(at: u64) -> u32 {
    // SAFETY: within the tree, which QEMU put there.
    u32::from_be(unsafe { read(at) })
}

/// A number of one or two cells.
fn cells(at: u64, bytes: u32) -> u64 {
    let low = u64::from(word(at + u64::from(bytes) - 4));
    if bytes == 8 {
        u64::from(word(at)) << 32 | low
    } else {
        low
    }
}

impl Boot {
    /// Reads what lies at `physical`.
    pub fn at(physical: u64) -> Boot {
        assert!(word(physical) == MAGIC, "not started with a device tree");
        Boot { tree: physical }
    }

    /// The value of a property of the first node whose name begins so: where, and its bytes.
    fn property(&self, node: &str, property: &str) -> Option<(u64, u32)> {
        let strings = self.tree + u64::from(word(self.tree + 12));
        let mut at = self.tree + u64::from(word(self.tree + 8));
        let mut inside = false;
        loop {
            let token = word(at);
            at += 4;
            match token {
                BEGIN_NODE => {
                    let name = string(at);
                    inside = name.starts_with(node);
                    at += (name.len() as u64 + 1).next_multiple_of(4);
                }
                END_NODE => inside = false,
                PROPERTY => {
                    let (bytes, name) = (word(at), string(strings + u64::from(word(at + 4))));
                    if inside && name == property {
                        return Some((at + 8, bytes));
                    }
                    at += 8 + u64::from(bytes).next_multiple_of(4);
                }
                END => return None,
                _ => {}
            }
        }
    }

    /// The command line.
    pub fn command_line(&self) -> &'static str {
        let line = self.property("chosen", "bootargs");
        line.map_or("", |(at, _)| String::from(string(at)).leak())
    }

    /// Where the RAM disk lies, and its bytes.
    pub fn disk(&self) -> Option<(u64, u64)> {
        let (start, bytes) = self.property("chosen", "linux,initrd-start")?;
        let (end, end_bytes) = self.property("chosen", "linux,initrd-end")?;
        let start = cells(start, bytes);
        Some((start, cells(end, end_bytes) - start))
    }

    /// What QEMU left that must stay, first bytes and ends: the RAM disk and the tree, which
    /// it puts side by side.
    pub fn busy(&self) -> [(u64, u64); 2] {
        let tree_end = self.tree + u64::from(word(self.tree + 4));
        let (start, bytes) = self.disk().unwrap_or((self.tree, 0));
        [(start.min(self.tree), tree_end.max(start + bytes)), (0, 0)]
    }

    /// Usable memory: first byte and bytes.
    pub fn memory(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let range = self.property("memory", "reg");
        range
            .map(|(at, _)| (cells(at, 8), cells(at + 8, 8)))
            .into_iter()
    }
}
