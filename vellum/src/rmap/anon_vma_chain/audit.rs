//! The audit of `anon_vma_chain`: trees, and sums over all of them.

use super::{AnonVma, AnonVmaChain};
use crate::frame::{AuditError, AuditPlace};
use crate::slab::Handle;

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
        handle: Handle<AnonVma>,
        anon_vma: &AnonVma,
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
}
