//! The bundles of a machine, and the search of one for a page's entries.

use super::bundle::{self, Bundle, Gone, Member, Members};
use crate::addr::{Pfn, Vpn};
use crate::frame::{AuditError, AuditPlace, Frame, OutOfMemory, Site};
use crate::platform::Platform;
use crate::rmap::{Env, Run, Slot, Topology, Verdict, VisitReport};
use crate::slab::{Arena, ArenaMaker, Handle, Item};
use crate::sync::atomic::{AtomicU32, Ordering};
use crate::sync::{Counter, PerCpu, Pin};
use crate::table::Format;

/// What a space keeps: the handle of its member.
#[derive(Debug, Default)]
pub struct SpaceMember(AtomicU32);

impl SpaceMember {
    #[inline]
    fn handle(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Item for Member {
    const SITE: Site = Site::Anonmm;
    const SHARE: usize = 16;

    fn vacant() -> Self {
        Member::default()
    }

    fn link(&self) -> &AtomicU32 {
        &self.link
    }
}

impl Members for Arena<Member> {
    #[inline]
    fn member(&self, handle: u32) -> &Member {
        self.get(Handle::from_raw(handle))
    }
}

/// What became of an attempt to find all entries of a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Outcome {
    /// All were found, or the visitor has seen enough.
    Done,
    /// A table was locked, or the page changed hands: let go and try again.
    Again,
}

/// Where a visit stands between attempts: the page's member, the member to
/// look at next and the one to stop at, and entries still to be found.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Progress {
    own: u32,
    next: u32,
    end: u32,
    wanted: u32,
}

#[derive(Default)]
struct BundleCounts {
    locks: Counter,
}

/// Every bundle, in an arena whose items can be followed while pinned.
pub(super) struct Bundles {
    members: Arena<Member>,
    cpus: PerCpu<BundleCounts>,
}

/// The parts of one visit.
pub(super) struct BundleVisit<'v, P: Platform, F: Format, S> {
    pub env: &'v Env<'v, P>,
    pub topology: &'v dyn Topology<S>,
    pub page: Pfn,
    pub visitor: &'v mut dyn FnMut(&Slot<'_, F>) -> Verdict,
    pub report: VisitReport,
    pub progress: Progress,
    /// Whether the page leaves a member without space for one that maps it.
    pub migrates: bool,
    /// Entries that the visitor cleared in this attempt.
    pub unmapped: u32,
    /// Whether one of them was the page's last.
    pub orphaned: bool,
}

enum Look {
    Nothing,
    Found,
    Enough,
    Contended,
}

impl Bundles {
    pub fn new(cpus: usize, arenas: &ArenaMaker) -> Self {
        Bundles {
            members: arenas.make(),
            cpus: PerCpu::new(cpus, |_| BundleCounts::default()),
        }
    }

    fn make<P: Platform>(&self, env: &Env<'_, P>) -> Result<u32, OutOfMemory> {
        Ok(self.members.alloc(env.pin, env.memory)?.raw())
    }

    /// A space begins a bundle.
    pub fn execute<P: Platform>(
        &self,
        env: &Env<'_, P>,
        state: &SpaceMember,
        space: u32,
    ) -> Result<(), OutOfMemory> {
        let member = self.make(env)?;
        bundle::found(&self.members, member, space);
        state.0.store(member, Ordering::Relaxed);
        Ok(())
    }

    /// A space joins the bundle of its parent.
    pub fn fork<P: Platform>(
        &self,
        env: &Env<'_, P>,
        parent: &SpaceMember,
        child: &SpaceMember,
        space: u32,
    ) -> Result<(), OutOfMemory> {
        let member = self.make(env)?;
        self.cpus.get(env.pin).locks.bump();
        bundle::join(&self.members, env.pin, parent.handle(), member, space);
        child.0.store(member, Ordering::Relaxed);
        Ok(())
    }

    /// A space ends, or was never completed.
    pub fn exit<P: Platform>(&self, env: &Env<'_, P>, state: &SpaceMember) {
        let member = state.handle();
        if member == 0 {
            return;
        }
        state.0.store(0, Ordering::Relaxed);
        self.cpus.get(env.pin).locks.bump();
        let gone = bundle::leave(&self.members, env.pin, member);
        self.give_back(env.pin, gone);
    }

    fn give_back(&self, pin: &Pin<'_>, gone: Gone) {
        for handle in [gone.member, gone.head].into_iter().flatten() {
            self.members.retire(pin, Handle::from_raw(handle));
        }
    }

    /// Makes a page that nobody else knows, and whose record names the page it is seen at,
    /// one of a space.
    #[inline]
    pub fn own(&self, state: &SpaceMember, frame: &Frame) {
        frame.set_owner(state.handle());
    }

    /// `pages` frames were given to the space with [`Bundles::own`].
    #[inline]
    pub fn hold(&self, state: &SpaceMember, pages: u32) {
        self.members.member(state.handle()).hold(pages);
    }

    /// Whether the page names the member of the space.
    #[inline]
    pub fn is_owned_by(&self, state: &SpaceMember, frame: &Frame) -> bool {
        frame.owner() == state.handle()
    }

    /// A page that nothing maps any more names no member. The page is the
    /// caller's: no visit finds an entry by which it could rename it.
    #[inline]
    pub fn disown<P: Platform>(&self, env: &Env<'_, P>, frame: &Frame) {
        let member = frame.owner_after_last_mapping();
        if member == 0 {
            return;
        }
        frame.set_owner(0);
        self.drop_page(env, member);
    }

    /// A page that is mapped by the space alone becomes one of it. The table
    /// of its entry is locked.
    pub fn adopt<P: Platform>(
        &self,
        env: &Env<'_, P>,
        state: &SpaceMember,
        frame: &Frame,
        page: Vpn,
    ) {
        let before = frame.owner();
        self.hold(state, 1);
        frame.set_owner(state.handle());
        frame.set_place(page.0);
        if before != 0 {
            self.drop_page(env, before);
        }
    }

    /// The frames of a run that had one record have one each, which name the member that
    /// the first names.
    pub fn divide<P: Platform>(&self, env: &Env<'_, P>, run: &Run) {
        let owner = env.memory.frame(run.frame).owner();
        self.members.member(owner).hold((1 << run.order) - 1);
    }

    /// The frames of a run that only the space maps get one record, which names the
    /// space's member.
    pub fn unite<P: Platform>(&self, env: &Env<'_, P>, run: &Run, state: &SpaceMember) {
        self.adopt(env, state, env.memory.frame(run.frame), run.page);
        for part in run.parts().skip(1) {
            self.disown(env, env.memory.frame(part.frame));
        }
    }

    #[inline]
    fn drop_page<P: Platform>(&self, env: &Env<'_, P>, member: u32) {
        let gone = bundle::drop_page(&self.members, env.pin, member);
        if gone != Gone::default() {
            self.cpus.get(env.pin).locks.bump();
            self.give_back(env.pin, gone);
        }
    }

    /// Looks for the entries of a page in the spaces of its bundle: its own
    /// first, then those that follow in the list. `addresses` gives the pages
    /// at which a space may show it, by number. Holds the head's lock and
    /// tries those of tables.
    pub fn search<P: Platform, F: Format, S>(
        &self,
        visit: &mut BundleVisit<'_, P, F, S>,
        addresses: impl Fn(usize) -> Option<Vpn>,
    ) -> Outcome {
        let frame = visit.env.memory.frame(visit.page);
        let own = frame.owner();
        if own == 0 {
            return Outcome::Done;
        }
        let Some(member) = self.members.try_get(Handle::from_raw(own)) else {
            return Outcome::Done;
        };
        let head = member.head();
        if head == 0 {
            return Outcome::Done;
        }
        self.cpus.get(visit.env.pin).locks.bump();
        let mut bundle = Bundle::lock(&self.members, visit.env.pin, head);
        if !bundle.lists(own) {
            // A member that a page names is in the list.
            let changed = frame.owner() != own;
            return if changed {
                Outcome::Again
            } else {
                Outcome::Done
            };
        }
        let progress = &mut visit.progress;
        let goes_on =
            progress.own == own && bundle.lists(progress.next) && bundle.lists(progress.end);
        if !goes_on {
            *progress = Progress {
                own,
                next: own,
                end: own,
                wanted: frame.counts().maps(),
            };
        }
        let mut gone = Gone::default();
        let outcome = self.walk(&mut bundle, visit, addresses, &mut gone);
        drop(bundle);
        self.give_back(visit.env.pin, gone);
        outcome
    }

    fn walk<P: Platform, F: Format, S>(
        &self,
        bundle: &mut Bundle<'_, Arena<Member>>,
        visit: &mut BundleVisit<'_, P, F, S>,
        addresses: impl Fn(usize) -> Option<Vpn>,
        gone: &mut Gone,
    ) -> Outcome {
        while visit.progress.wanted > 0 {
            let at = visit.progress.next;
            if bundle.space(at) != 0 {
                match self.look(bundle, visit, at, &addresses, gone) {
                    Look::Contended => return Outcome::Again,
                    Look::Enough => return Outcome::Done,
                    Look::Found | Look::Nothing => {}
                }
            }
            let next = bundle.next(at);
            if next == visit.progress.end {
                break;
            }
            visit.progress.next = next;
        }
        Outcome::Done
    }

    /// Looks into one space, which maps the page once at most.
    fn look<P: Platform, F: Format, S>(
        &self,
        bundle: &mut Bundle<'_, Arena<Member>>,
        visit: &mut BundleVisit<'_, P, F, S>,
        at: u32,
        addresses: &impl Fn(usize) -> Option<Vpn>,
        gone: &mut Gone,
    ) -> Look {
        let env = visit.env;
        let frame = env.memory.frame(visit.page);
        for page in (0..).map_while(addresses) {
            let Some(pte) = visit.topology.leaf(env.pin, bundle.space(at), page) else {
                visit.report.false_probes += 1;
                continue;
            };
            match Slot::open(env, (pte, None), visit.page) {
                Err(_) => {
                    visit.report.lock_failures += 1;
                    return Look::Contended;
                }
                Ok(None) => visit.report.false_probes += 1,
                Ok(Some(slot)) => {
                    visit.report.hits += 1;
                    visit.progress.wanted -= 1;
                    // A run whose frames have one record may be divided meanwhile, and
                    // then every frame has to name what the first does.
                    let migrates = visit.migrates && frame.order() == 0;
                    if migrates && bundle.space(visit.progress.own) == 0 {
                        migrate(bundle, &mut visit.progress, frame, at, gone);
                    }
                    match (visit.visitor)(&slot) {
                        Verdict::Keep => {}
                        Verdict::Stop => return Look::Enough,
                        Verdict::Unmapped => {
                            visit.report.unmapped += 1;
                            visit.unmapped += 1;
                            visit.orphaned |= frame.remove_mapping().maps() == 1;
                        }
                    }
                    return Look::Found;
                }
            }
        }
        Look::Nothing
    }

    /// Members in use, and locks of heads taken.
    pub fn stats(&self) -> (crate::slab::ArenaStats, u64) {
        let locks = self.cpus.sum(|cpu| &cpu.locks);
        (self.members.stats(), locks)
    }

    /// Bytes of so many members.
    pub fn bytes_of(&self, members: u64) -> u64 {
        members * size_of::<Member>() as u64
    }

    /// Whether the page, which has `maps` mappings, names a member as it should.
    pub fn check(&self, frame: &Frame, maps: u32) -> Result<(), &'static str> {
        let owner = frame.owner();
        if maps == 0 {
            return match owner {
                0 => Ok(()),
                _ => Err("a page that nothing maps names an anonmm"),
            };
        }
        let member = self.members.try_get(Handle::from_raw(owner));
        if owner != 0 && member.is_some_and(Member::is_used) {
            Ok(())
        } else {
            Err("a private page names an anonmm that is not in use")
        }
    }

    /// Members that no live space needs: those whose spaces have ended, but
    /// not a head whose bundle goes on.
    pub fn left_over(&self) -> u64 {
        let mut count = 0;
        self.members.each(|handle, member| {
            if !member.is_used() || member.space() != 0 {
                return;
            }
            let is_head = member.head() == handle.raw();
            count += u64::from(!(is_head && self.has_live_member(handle.raw())));
        });
        count
    }

    fn ring(&self, head: u32) -> impl Iterator<Item = u32> {
        let most = self.members.stats().live as usize;
        let next = move |&handle: &u32| {
            let next = self.members.member(handle).neighbours().0;
            (next != head && next != 0).then_some(next)
        };
        core::iter::successors(Some(head), next).take(most + 1)
    }

    fn has_live_member(&self, head: u32) -> bool {
        self.ring(head)
            .any(|handle| self.members.member(handle).space() != 0)
    }

    /// Checks lists, counts and the arena while nothing else runs; returns the
    /// frames of the arena.
    pub fn audit(&self) -> Result<u64, AuditError> {
        let census = self.members.audit()?;
        let mut used = 0;
        let mut result = Ok(());
        self.members.each(|handle, member| {
            used += u64::from(member.is_used());
            if result.is_ok() && member.is_used() {
                result = self.audit_member(handle.raw()).map_err(|what| AuditError {
                    place: AuditPlace::Slot(handle.raw()),
                    what,
                });
            }
        });
        result?;
        if used != census.live {
            return Err(AuditError {
                place: AuditPlace::Arena,
                what: "anonmms in use and slots handed out are not as many",
            });
        }
        Ok(census.chunks + census.directory)
    }

    fn audit_member(&self, handle: u32) -> Result<(), &'static str> {
        let member = self.members.member(handle);
        let (next, previous) = member.neighbours();
        let linked = next != 0
            && previous != 0
            && self.members.member(next).neighbours().1 == handle
            && self.members.member(previous).neighbours().0 == handle
            && self.members.member(next).head() == member.head();
        if !linked {
            return Err("the list of a bundle is broken at this anonmm");
        }
        let mut least = u32::from(member.space() != 0);
        if member.head() == handle {
            least += self.ring(handle).count() as u32;
            if member.count() == 1 {
                return Err("a bundle of nothing but its head was not freed");
            }
        } else if !self.ring(member.head()).any(|other| other == handle) {
            return Err("an anonmm is not in the list of its bundle");
        }
        if member.count() < least {
            return Err("an anonmm is counted less often than it is needed");
        }
        Ok(())
    }
}

/// The page, whose entry in the space of `at` is locked, leaves a member
/// without space for `at`, where the next visit finds it first.
fn migrate<N: Members>(
    bundle: &mut Bundle<'_, N>,
    progress: &mut Progress,
    frame: &Frame,
    at: u32,
    gone: &mut Gone,
) {
    let left = progress.own;
    let behind = bundle.next(left);
    frame.set_owner(at);
    progress.own = at;
    if let Some(member) = bundle.rename(left, at) {
        gone.member = Some(member);
        if progress.end == left {
            progress.end = behind;
        }
    }
}
