//! Groups of functions: what they are for, whatever they are called.
//!
//! A function that was renamed, split or inlined shows in a list of functions as
//! one that vanished and one that appeared. The sum over the group they belong to
//! shows what became of the time. The kernel names in the built-in groups are
//! those of Linux from 2.5 on; with them, the sums over the `rmap` lines of the
//! profiles posted to linux-kernel on 22 March 2003 are +122 ticks (kernbench)
//! and -1937 (SDET).

use std::sync::Arc;

use regex::Regex;

use crate::Profile;

/// Name of the group of everything that no group holds.
pub const OTHER: &str = "(other)";

/// Groups that are tried before no others: name and pattern. The first that
/// matches a name holds it.
///
/// Paths (`vellum::…`) are functions of the core as [`super::sample`] names them.
const BUILT_IN: &[(&str, &str)] = &[
    (
        "rmap",
        r"(?x) ^vellum::(published::)?rmap:: | _rmap\b | rmap_walk | ^rmap_ | try_to_unmap | try_to_migrate | pte_chain
          | anon_?vma | anonmm | anobjrmap | page_referenced | folio_referenced
          | page_convert_anon | ^page_mkclean | ^folio_mkclean | ^page_vma_mapped",
    ),
    (
        "zeroing and copying",
        r"(?x) ^vellum::frame::content:: | ^vellum_machine::ram:: | memset | memcpy | memmove | ^clear_.*page | ^copy_.*page$
          | ^copy_page_(to|from)_iter | copy_(to|from)_user | clear_user | ^rep_(movs|stos) | copy_mc | compiler_builtins::mem",
    ),
    (
        "page tables",
        r"(?x) ^vellum::(published::)?table:: | ^_*(pte|pmd|pud|p4d|pgd)_(alloc|free|ctor|dtor|populate|offset|clear) | pgd_ctor
          | free_pgtables | free_pgd_range | tlb_|_tlb\b|flush_tlb | ^x86_64_start_context | set_pte",
    ),
    (
        "frames",
        r"(?x) ^vellum::frame::(memory|buddy|cpu|zones|reserve|request) | ^vellum::published::frame:: | rmqueue | alloc_pages | free_(hot_cold|unref|the|one|pages|pcppages|compound)
          | ^_*free_page | get_page_from_freelist | ^release_pages | ^_*put_page | ^_*folio_put | lru_|_lru | pagevec | prep_new_page",
    ),
    (
        "fork",
        r"(?x) ^vellum::space::(life::)?fork:: | ^copy_(page_range|process|mm|pte_range|present|nonpresent|p4d|pud|pmd) | ^dup_(mm|task)
          | ^_*do_fork | ^kernel_clone | ^sys_fork",
    ),
    (
        "exit and unmap",
        r"(?x) ^vellum::space::((life::)?exit|((regions|leaves)::)?(zap|unmap)|(files::)?truncate):: | exit_mm | zap_ | unmap_(vmas|region|page_range|single_vma|hugepage)
          | do_munmap | mmput | mm_release",
    ),
    (
        "fault",
        r"(?x) ^vellum::space::((path|steps)::|fault::|cow::|file::|(state::)?page::) | do_(anonymous_page|no_page|wp_page|page_fault|user_addr_fault|fault|swap_page|cow_fault|read_fault|shared_fault)
          | handle_(mm|pte)_fault | page_fault | filemap_(nopage|fault|map_pages) | ^wp_page | ^install_page",
    ),
    (
        "regions",
        r"(?x) ^vellum::(tree|space):: | find_vma | vma_(merge|adjust|link|prepare|complete) | split_vma | ^_*vm_area | mmap | mprotect
          | mremap | ^do_brk | ^mas_ | ^mt_ | mtree | vma_interval | ^anon_vma_interval",
    ),
    (
        "page cache",
        r"(?x) ^vellum::(published::)?object:: | find_(get|lock)_(page|entry|pages) | radix_tree | ^xas_ | ^xa_ | filemap_ | add_to_page_cache
          | set_page_dirty | folio_mark_dirty | mark_page_accessed | page_cache",
    ),
    (
        "slab",
        r"^kmem_cache|^kmalloc|^kfree|slab|^cache_(alloc|grow|flush)",
    ),
    (
        "locks",
        r"(?x) \.text\.lock\. | spin_lock | spin_unlock | _lock_failed | rwsem | ^_*(down|up)(_read|_write)?$ | mutex_ | lock_slowpath | dec_and_lock",
    ),
    (
        "simulated machine",
        r"^vellum_(machine|engine|profile|terminal|lab)::|^vellum::platform::",
    ),
    (
        "idle",
        r"(?x) default_idle | poll_idle | cpu_idle | cpuidle | safe_halt | mwait | ^intel_idle | ^do_idle | acpi_idle",
    ),
];

/// An ordered list of groups.
#[derive(Clone, Debug)]
pub struct Groups {
    groups: Vec<(Arc<str>, Regex)>,
}

/// A group was not given as `NAME=REGEX`.
#[derive(Debug, thiserror::Error)]
pub enum GroupError {
    /// There is no `=`, or nothing before it.
    #[error("{0:?} is no group: write NAME=REGEX, such as rmap='_rmap$|try_to_unmap'")]
    NoName(String),
    /// The expression does not parse.
    #[error("group {name}: {source}")]
    Pattern {
        /// The group.
        name: String,
        /// What is wrong with it.
        source: Box<regex::Error>,
    },
}

impl Groups {
    /// The groups that Vellum knows.
    pub fn built_in() -> Self {
        let group = |(name, pattern): &(&str, &str)| {
            let pattern = Regex::new(pattern).expect("a constant pattern");
            (Arc::from(*name), pattern)
        };
        Self {
            groups: BUILT_IN.iter().map(group).collect(),
        }
    }

    /// No groups.
    pub fn none() -> Self {
        Self { groups: Vec::new() }
    }

    /// Puts the groups given as `NAME=REGEX` in front, where they are tried first.
    ///
    /// # Errors
    /// One of them is malformed.
    pub fn preceded_by(mut self, given: &[String]) -> Result<Self, GroupError> {
        let parse = |text: &String| {
            let (name, pattern) = text
                .split_once('=')
                .filter(|(name, _)| !name.is_empty())
                .ok_or_else(|| GroupError::NoName(text.clone()))?;
            let pattern = Regex::new(pattern).map_err(|source| GroupError::Pattern {
                name: name.to_owned(),
                source: Box::new(source),
            })?;
            Ok((Arc::from(name), pattern))
        };
        let given: Result<Vec<_>, GroupError> = given.iter().map(parse).collect();
        self.groups.splice(0..0, given?);
        Ok(self)
    }

    /// Whether there are no groups.
    pub fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    /// The group of a call stack: that of its innermost function which is in any.
    /// So what no group names, such as the core's locks, arenas and frame records,
    /// counts for who uses it.
    pub fn of(&self, stack: &[Arc<str>]) -> Option<&Arc<str>> {
        stack.iter().rev().find_map(|name| self.of_name(name))
    }

    /// The first group that matches `name`.
    pub fn of_name(&self, name: &str) -> Option<&Arc<str>> {
        let found = self.groups.iter().find(|(_, regex)| regex.is_match(name));
        found.map(|(group, _)| group)
    }

    /// Ticks by group, and of what is in none under [`OTHER`].
    pub fn sums(&self, profile: &Profile) -> Profile {
        let other: Arc<str> = OTHER.into();
        let mut sums = Profile::new(profile.name.clone());
        for (stack, ticks) in profile.stacks() {
            let group = self.of(stack).unwrap_or(&other);
            sums.add(vec![Arc::clone(group)], ticks);
        }
        sums
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_groups_come_first() {
        let groups = Groups::built_in();
        assert_eq!(groups.of_name("page_add_rmap").map(|g| &**g), Some("rmap"));
        let given = ["mine=^page_".to_owned(), "rest=.".to_owned()];
        let groups = groups.preceded_by(&given).unwrap();
        assert_eq!(groups.of_name("page_add_rmap").map(|g| &**g), Some("mine"));
        assert_eq!(groups.of_name("dup_rmap").map(|g| &**g), Some("rest"));
    }

    #[test]
    fn the_innermost_function_with_a_group_decides() {
        let groups = Groups::none();
        let given = ["fault=fault".to_owned(), "rmap=rmap".to_owned()];
        let groups = groups.preceded_by(&given).unwrap();
        let stack = |names: &str| names.split(';').map(Arc::from).collect::<Vec<Arc<str>>>();
        let group = |names| groups.of(&stack(names)).map(|group| group.to_string());
        assert_eq!(group("run;fault;rmap::add;lock").as_deref(), Some("rmap"));
        assert_eq!(group("run;fault;lock").as_deref(), Some("fault"));
        assert_eq!(group("run;lock"), None);
    }

    #[test]
    fn malformed_groups_are_refused() {
        for (text, named) in [
            ("rmap", "NAME=REGEX"),
            ("=x", "NAME=REGEX"),
            ("a=(", "group a"),
        ] {
            let error = Groups::none().preceded_by(&[text.to_owned()]).unwrap_err();
            assert!(error.to_string().contains(named), "{error}");
        }
    }

    #[test]
    fn built_in_groups_hold_what_their_names_say() {
        let groups = Groups::built_in();
        for (name, group) in [
            ("try_to_unmap_one", "rmap"),
            ("__pte_chain_free", "rmap"),
            ("folio_add_new_anon_rmap", "rmap"),
            ("anon_vma_clone", "rmap"),
            ("vellum::published::rmap::chains::Chains::add", "rmap"),
            ("vellum::published::frame::blocks::get", "frames"),
            // Of a profile that was kept from before the room of published designs.
            ("vellum::rmap::chains::Chains::add", "rmap"),
            ("copy_page_range", "fork"),
            ("copy_page", "zeroing and copying"),
            ("clear_page_erms", "zeroing and copying"),
            ("pte_alloc_map", "page tables"),
            ("buffered_rmqueue", "frames"),
            ("free_hot_cold_page", "frames"),
            ("zap_pte_range", "exit and unmap"),
            ("do_anonymous_page", "fault"),
            ("vellum::space::path::fault::fault", "fault"),
            ("vellum::space::locks::lookup::find", "regions"),
            ("vellum::space::files::read::read", "regions"),
            // Of a profile that was kept from before the rooms.
            ("vellum::space::fault::fault", "fault"),
            ("set_page_dirty", "page cache"),
            ("__set_page_dirty_buffers", "page cache"),
            (".text.lock.namei", "locks"),
            ("default_idle", "idle"),
            ("link_path_walk", OTHER),
        ] {
            let found = groups.of_name(name).map_or(OTHER, |group| group);
            assert_eq!(found, group, "{name}");
        }
    }
}
