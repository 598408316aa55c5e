//! Names of bits and numbers that strace prints, as the kernel has them.

use super::text::{number, without_comments};

const BITS: &[(&str, u64)] = &[
    ("PROT_NONE", 0),
    ("PROT_READ", 1),
    ("PROT_WRITE", 2),
    ("PROT_EXEC", 4),
    ("MAP_SHARED_VALIDATE", 3),
    ("MAP_SHARED", 1),
    ("MAP_PRIVATE", 2),
    ("MAP_FIXED", 0x10),
    ("MAP_ANONYMOUS", 0x20),
    ("MAP_ANON", 0x20),
    ("MAP_GROWSDOWN", 0x100),
    ("MAP_LOCKED", 0x2000),
    ("MAP_NORESERVE", 0x4000),
    ("MAP_POPULATE", 0x8000),
    ("MAP_STACK", 0x2_0000),
    ("MAP_HUGETLB", 0x4_0000),
    ("MAP_HUGE_2MB", 21 << MAP_HUGE_SHIFT),
    ("MAP_HUGE_1GB", 30 << MAP_HUGE_SHIFT),
    ("MREMAP_MAYMOVE", 1),
    ("MREMAP_FIXED", 2),
    ("MREMAP_DONTUNMAP", 4),
    ("CLONE_VM", 0x100),
    ("CLONE_FS", 0x200),
    ("CLONE_FILES", 0x400),
    ("CLONE_SIGHAND", 0x800),
    ("CLONE_PIDFD", 0x1000),
    ("CLONE_PTRACE", 0x2000),
    ("CLONE_VFORK", 0x4000),
    ("CLONE_PARENT_SETTID", 0x10_0000),
    ("CLONE_PARENT", 0x8000),
    ("CLONE_THREAD", 0x1_0000),
    ("CLONE_NEWNS", 0x2_0000),
    ("CLONE_SYSVSEM", 0x4_0000),
    ("CLONE_SETTLS", 0x8_0000),
    ("CLONE_CHILD_CLEARTID", 0x20_0000),
    ("CLONE_DETACHED", 0x40_0000),
    ("CLONE_UNTRACED", 0x80_0000),
    ("CLONE_CHILD_SETTID", 0x100_0000),
    ("CLONE_NEWCGROUP", 0x200_0000),
    ("CLONE_NEWUTS", 0x400_0000),
    ("CLONE_NEWIPC", 0x800_0000),
    ("CLONE_NEWUSER", 0x1000_0000),
    ("CLONE_NEWPID", 0x2000_0000),
    ("CLONE_NEWNET", 0x4000_0000),
    ("CLONE_IO", 0x8000_0000),
];

const ADVICE: &[(&str, u64)] = &[
    ("MADV_NORMAL", 0),
    ("MADV_RANDOM", 1),
    ("MADV_SEQUENTIAL", 2),
    ("MADV_WILLNEED", 3),
    ("MADV_DONTNEED", 4),
    ("MADV_FREE", 8),
    ("MADV_REMOVE", 9),
    ("MADV_DONTFORK", 10),
    ("MADV_DOFORK", 11),
    ("MADV_MERGEABLE", 12),
    ("MADV_UNMERGEABLE", 13),
    ("MADV_HUGEPAGE", 14),
    ("MADV_NOHUGEPAGE", 15),
    ("MADV_DONTDUMP", 16),
    ("MADV_DODUMP", 17),
    ("MADV_WIPEONFORK", 18),
    ("MADV_KEEPONFORK", 19),
    ("MADV_COLD", 20),
    ("MADV_PAGEOUT", 21),
    ("MADV_POPULATE_READ", 22),
    ("MADV_POPULATE_WRITE", 23),
    ("MADV_DONTNEED_LOCKED", 24),
    ("MADV_COLLAPSE", 25),
    ("MADV_GUARD_INSTALL", 102),
    ("MADV_GUARD_REMOVE", 103),
];

fn value(table: &[(&str, u64)], name: &str) -> Option<u64> {
    let found = table.iter().find(|(known, _)| *known == name);
    found.map(|(_, value)| *value)
}

/// Where `mmap` has the logarithm of the size of huge pages.
pub const MAP_HUGE_SHIFT: u32 = 26;
const MAP_HUGE: &str = "<<MAP_HUGE_SHIFT";

/// The bits of `A|B|0x10|21<<MAP_HUGE_SHIFT`. Names that are not known stand
/// for bits that do not matter here, signals among them; a text without any
/// known word is none.
pub fn bits(text: &str) -> Option<u64> {
    let text = without_comments(text);
    let words = text.split('|').map(str::trim);
    let values = words.map(|word| {
        let huge = word.strip_suffix(MAP_HUGE).map(number);
        match huge {
            Some(size) => size.map(|size| (size & 0x3f) << MAP_HUGE_SHIFT),
            None => value(BITS, word).or_else(|| number(word)),
        }
    });
    values.fold(None, |sum, value| match value {
        Some(value) => Some(sum.unwrap_or(0) | value),
        None => sum,
    })
}

/// The number of an advice.
pub fn advice(text: &str) -> Option<u64> {
    value(ADVICE, text).or_else(|| number(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_become_bits() {
        assert_eq!(bits("PROT_READ|PROT_WRITE"), Some(3));
        assert_eq!(bits("MAP_PRIVATE|MAP_ANONYMOUS|0x100000"), Some(0x10_0022));
        assert_eq!(bits("CLONE_VM|CLONE_VFORK|SIGCHLD"), Some(0x4100));
        assert_eq!(bits("SIGCHLD"), None);
        assert_eq!(bits("0x3 /* PROT_READ|PROT_WRITE */"), Some(3));
        assert_eq!(
            bits("0x1200000 /* CLONE_CHILD_CLEARTID */|17 /* SIGCHLD */"),
            Some(0x120_0011)
        );
        assert_eq!(
            bits("MAP_PRIVATE|MAP_HUGETLB|21<<MAP_HUGE_SHIFT"),
            Some(2 | 0x4_0000 | 21 << 26)
        );
        assert_eq!(bits("MAP_HUGETLB|MAP_HUGE_1GB"), Some(0x4_0000 | 30 << 26));
        assert_eq!(advice("MADV_DONTNEED"), Some(4));
        assert_eq!(advice("0x4d /* MADV_??? */"), Some(0x4d));
        assert_eq!(advice("MADV_UNHEARD_OF"), None);
    }
}
