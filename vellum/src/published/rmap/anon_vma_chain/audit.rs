//! The audit of `anon_vma_chain`: trees, and sums over all of them.

use super::{AnonVmaChain, AnonVmaLink, AnonVmaNode, Region, range};
use crate::addr::Pfn;
use crate::frame::{AuditError, AuditPlace};
use crate::platform::Platform;
use crate::rmap::file_pages::is_of_object;
use crate::rmap::{Audited, Env, RmapStats};
use crate::slab::Handle;
use crate::sync::atomic::Ordering;

/// What an audit counted.
#[derive(Default)]
struct Census {
    used: u64,
    links: u64,
    children: u64,
    with_parent: u64,
}

impl AnonVmaChain {
    /// Checks both arenas; returns their frames.
    pub(super) fn audit_arenas(&self) -> Result<u64, AuditError> {
        let (anon_vmas, links) = (self.anon_vmas.audit()?, self.links.audit()?);
        let mut census = Census::default();
        let mut wrong = None;
        self.anon_vmas.each(|handle, anon_vma| {
            if let Err(what) = self.audit_anon_vma(handle, anon_vma, &mut census) {
                wrong = Some((AuditPlace::Slot(handle.raw()), what));
            }
        });
        let adds_up = [
            (
                census.used == anon_vmas.live,
                "not every anon_vma in use has links",
            ),
            (
                census.links == links.live,
                "not every link in use is in the tree of an anon_vma",
            ),
            (
                census.children == census.with_parent,
                "anon_vmas count other children than they have",
            ),
        ];
        for (holds, what) in adds_up {
            if !holds {
                wrong.get_or_insert((AuditPlace::Arena, what));
            }
        }
        match wrong {
            Some((place, what)) => Err(AuditError { place, what }),
            None => Ok(anon_vmas.chunks + anon_vmas.directory + links.chunks + links.directory),
        }
    }

    fn audit_anon_vma(
        &self,
        handle: Handle<AnonVmaNode>,
        anon_vma: &AnonVmaNode,
        census: &mut Census,
    ) -> Result<(), &'static str> {
        if anon_vma.is_locked() {
            return Err("an anon_vma is locked");
        }
        if anon_vma.is_unused() {
            return Ok(());
        }
        let links = anon_vma.tree(&self.links).check(|link| {
            if link.anon_vma() == handle.raw() && link.region() != 0 {
                Ok(())
            } else {
                Err("a link is in the tree of another anon_vma than its own")
            }
        })?;
        if u64::from(anon_vma.owners()) > links {
            return Err("an anon_vma has more owners than links");
        }
        census.used += 1;
        census.links += links;
        census.children += u64::from(anon_vma.children());
        census.with_parent += u64::from(anon_vma.parent() != 0);
        Ok(())
    }

    /// Checks the anon_vma that a mapped private frame names.
    pub(super) fn audit_owner(&self, owner: u32) -> Result<(), &'static str> {
        match self.anon_vmas.try_get(Handle::from_raw(owner)) {
            Some(anon_vma) if !anon_vma.is_unused() => Ok(()),
            _ => Err("a private page names an anon_vma that no region has"),
        }
    }

    /// Checks the links of a region.
    pub(super) fn audit_links(
        &self,
        region: &Region<'_>,
        has_private: bool,
    ) -> Result<(), &'static str> {
        let own = region.state.own();
        if own == 0 {
            return match region.state.first_link().is_none() {
                false => Err("a region has links and no anon_vma of its own"),
                true if has_private => Err("a region with private pages has no anon_vma"),
                true => Ok(()),
            };
        }
        if region.state.heir.load(Ordering::Relaxed) != 0 {
            return Err("a region was left half merged");
        }
        let mut owns = false;
        for (_, link) in self.links_of(region.state) {
            if link.region() != region.handle || !link.has_range(range(region)) {
                return Err("a link of a region is another's, or of other pages");
            }
            let anon_vma = self.anon_vmas.try_get(Handle::from_raw(link.anon_vma()));
            if anon_vma.is_none_or(AnonVmaNode::is_unused) {
                return Err("a region is linked to an anon_vma that has ended");
            }
            owns |= link.anon_vma() == own;
        }
        if owns {
            Ok(())
        } else {
            Err("a region is not linked to its own anon_vma")
        }
    }
}

impl Audited for AnonVmaChain {
    fn kept_bytes(regions: u64, _pages: u64) -> u64 {
        regions * (size_of::<AnonVmaNode>() + size_of::<AnonVmaLink>()) as u64
    }

    fn stats(&self) -> RmapStats {
        let (anon_vmas, links) = (self.anon_vmas.stats(), self.links.stats());
        let bytes = |anon_vmas: u64, links: u64| {
            anon_vmas * size_of::<AnonVmaNode>() as u64 + links * size_of::<AnonVmaLink>() as u64
        };
        let mut stats = self.pages.stats();
        stats.bytes = bytes(anon_vmas.live, links.live);
        stats.peak_bytes = bytes(anon_vmas.peak, links.peak);
        self.files.add_to(&mut stats);
        stats
    }

    fn check_frame<P: Platform>(
        &self,
        env: &Env<'_, P>,
        frame: Pfn,
        maps: u32,
    ) -> Result<(), &'static str> {
        if maps == 0 || is_of_object(env, frame) {
            return Ok(());
        }
        self.audit_owner(env.memory.frame(frame).owner())
    }

    fn live_nodes(&self) -> u64 {
        0
    }

    fn live_groups(&self) -> u64 {
        self.anon_vmas.stats().live + self.links.stats().live
    }

    fn audit_nodes(&self) -> Result<u64, AuditError> {
        self.audit_arenas()
    }
}
