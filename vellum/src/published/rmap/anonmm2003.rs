//! One address in every space of a family, with a lock and a count of its own
//! in each page (`rmap=anonmm2003`).
//!
//! Hugh Dickins' anobjrmap of March 2003, as Linux 2.5.65-mm3 had it. Private
//! pages name a member of a bundle (`bundle`) and an address as in `anonmm`,
//! of which this is the forerunner, with three differences:
//!
//! * Every page, of objects too, has a count of its mappings under a bit lock
//!   (PG_rmaplock): whoever maps, forks or unmaps it takes the lock. The core
//!   keeps such a count itself; the design's is what it cost.
//! * A page that is moved (mremap) while several spaces map it is not copied
//!   but gets another address, in a chain (`addresses`). Every fault makes sure
//!   of a spare node for that, although next to none needs it.
//! * A write that finds its page mapped by nobody else makes it one of the
//!   writer's space (`turn`). Visits leave pages where they are, so the member
//!   of a space that has ended stays until its last page is gone.
//!
//! The frame's word in the record:
//!
//! | bits | |
//! |---|---|
//! | 63 | the lock |
//! | 62 | chained: the count is in the chain |
//! | 0..32 | count, or first node of the chain |

use super::addresses::{AddressChain, AddressNode, Addresses};
use super::bundles::{BundleVisit, Bundles, Outcome, Progress, SpaceMember};
use crate::addr::{Pfn, Vpn};
use crate::design::Design;
use crate::frame::{AuditError, Kind, OutOfMemory};
use crate::platform::Platform;
use crate::rmap::counts::{self, RmapCounts};
use crate::rmap::file_pages::{FilePages, is_of_object};
use crate::rmap::{
    Audited, DelaysFlushes, Env, Place, ReverseMap, RmapStats, Run, Slot, Topology, TracksEntries,
    TracksLeaves, TracksRegions, TracksSpaces, Verdict, VisitReport,
};
use crate::slab::{ArenaMaker, AtHand, Handle};
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{BitGuard, BitLock, PerCpu};
use crate::table::Format;

const LOCK_BIT: u32 = 63;
const CHAINED: u64 = 1 << 62;

fn chain_of(word: u64) -> Option<AddressChain> {
    (word & CHAINED != 0).then(|| Handle::from_raw(word as u32))
}

/// The `anonmm2003` design.
pub struct Anonmm2003 {
    bundles: Bundles,
    addresses: Addresses,
    files: FilePages,
    cpus: PerCpu<RmapCounts>,
}

impl Anonmm2003 {
    #[inline]
    fn lock<'a, P: Platform>(&self, env: &Env<'a, P>, frame: Pfn) -> BitGuard<'a, AtomicU64> {
        self.cpus.get(env.pin).locks.bump();
        env.memory.frame(frame).rmap().lock_bit(LOCK_BIT, env.pin)
    }

    /// Applies `change` to the word of each frame of a run, locked. `change`
    /// also gets the frame and its number in the run.
    #[inline]
    fn for_run<P: Platform>(
        &self,
        env: &Env<'_, P>,
        run: &Run,
        change: impl Fn(u64, Pfn, u32) -> u64,
    ) {
        for step in 0..run.count {
            let frame = run.frame.offset(step << run.order);
            let guard = self.lock(env, frame);
            let word = guard.value();
            guard.unlock_with(change(word, frame, step));
        }
    }

    fn count<P: Platform>(&self, env: &Env<'_, P>, word: u64) -> u32 {
        chain_of(word).map_or(word as u32, |chain| self.addresses.count(env, chain))
    }

    /// The word of a page that gained a mapping.
    #[inline]
    fn incremented<P: Platform>(&self, env: &Env<'_, P>, word: u64) -> u64 {
        if let Some(chain) = chain_of(word) {
            let count = self.addresses.count(env, chain);
            self.addresses.set_count(env, chain, count + 1);
            return word;
        }
        word + 1
    }

    /// The word of a page that lost `lost` mappings, and what it was kept for
    /// if it has no more.
    #[inline]
    fn decremented<P: Platform>(&self, env: &Env<'_, P>, word: u64, pfn: Pfn, lost: u32) -> u64 {
        let count = self.count(env, word);
        debug_assert!(count >= lost, "a page lost more mappings than it had");
        let left = count.saturating_sub(lost);
        if left > 0 {
            if let Some(chain) = chain_of(word) {
                self.addresses.set_count(env, chain, left);
                return word;
            }
            return u64::from(left);
        }
        if let Some(chain) = chain_of(word) {
            self.addresses.end(env, chain);
        }
        if !is_of_object(env, pfn) {
            self.bundles.disown(env, env.memory.frame(pfn));
        }
        0
    }

    /// The word without a chain.
    fn unchained<P: Platform>(&self, env: &Env<'_, P>, word: u64) -> u64 {
        chain_of(word).map_or(word, |chain| u64::from(self.addresses.end(env, chain)))
    }

    /// The word after an entry of the page was moved to `page`.
    fn moved<P: Platform>(&self, env: &Env<'_, P>, word: u64, pfn: Pfn, page: Vpn) -> u64 {
        let frame = env.memory.frame(pfn);
        if self.count(env, word) == 1 {
            frame.set_place(page.0);
            return self.unchained(env, word);
        }
        if frame.index() == page.0 {
            return word;
        }
        if let Some(chain) = chain_of(word) {
            self.addresses.insert(env, chain, page);
            return word;
        }
        CHAINED | u64::from(self.addresses.begin(env, word as u32, page).raw())
    }
}

// SAFETY: spaces that can map a private page are in the bundle of the member it names, and map
// it at an address of its record or its chain, which no address leaves while the page is shared.
// Pages of objects: `file_pages`.
unsafe impl ReverseMap for Anonmm2003 {
    const NAME: &'static str = "anonmm2003";

    fn new(_options: &Design, cpus: usize, arenas: &ArenaMaker) -> Self {
        Anonmm2003 {
            bundles: Bundles::new(cpus, arenas),
            addresses: Addresses::new(cpus, arenas),
            files: FilePages::new(cpus),
            cpus: PerCpu::new(cpus, |_| RmapCounts::default()),
        }
    }

    #[inline]
    fn add<P: Platform>(
        &self,
        env: &Env<'_, P>,
        (): &mut (),
        run: &Run,
        place: Place<'_, (), SpaceMember>,
        _fresh: bool,
    ) {
        if is_of_object(env, run.frame) {
            self.files.add(env, run);
            self.for_run(env, run, |word, _, _| self.incremented(env, word));
            return;
        }
        self.cpus.get(env.pin).adds.add(u64::from(run.count));
        self.for_run(env, run, |word, pfn, _| {
            if word == 0 {
                self.bundles.hold(place.space_state, 1);
                self.bundles.own(place.space_state, env.memory.frame(pfn));
            }
            self.incremented(env, word)
        });
    }

    #[inline]
    fn duplicate<P: Platform>(
        &self,
        env: &Env<'_, P>,
        (): &mut (),
        run: &Run,
        _place: Place<'_, (), SpaceMember>,
    ) {
        self.cpus.get(env.pin).duplicates.add(u64::from(run.count));
        self.for_run(env, run, |word, _, _| self.incremented(env, word));
    }

    #[inline]
    fn remove<P: Platform>(
        &self,
        env: &Env<'_, P>,
        (): &mut (),
        run: &Run,
        _place: Place<'_, (), SpaceMember>,
    ) {
        self.cpus.get(env.pin).removes.add(u64::from(run.count));
        self.for_run(env, run, |word, pfn, _| self.decremented(env, word, pfn, 1));
    }

    fn shift<P: Platform>(
        &self,
        env: &Env<'_, P>,
        (): &mut (),
        from: &Run,
        to: &Run,
        _place: Place<'_, (), SpaceMember>,
    ) {
        if is_of_object(env, from.frame) {
            self.files.shift(env, from);
            return;
        }
        self.cpus.get(env.pin).moves.add(u64::from(from.count));
        self.for_run(env, from, |word, pfn, step| {
            let page = to.page.offset(u64::from(step) << from.order);
            self.moved(env, word, pfn, page)
        });
    }

    #[inline]
    fn turn<P: Platform>(
        &self,
        env: &Env<'_, P>,
        (): &mut (),
        run: &Run,
        place: Place<'_, (), SpaceMember>,
    ) {
        let space = place.space_state;
        for step in 0..run.count {
            let pfn = run.frame.offset(step << run.order);
            let frame = env.memory.frame(pfn);
            if self.bundles.is_owned_by(space, frame) {
                continue;
            }
            self.cpus.get(env.pin).turns.bump();
            let guard = self.lock(env, pfn);
            let word = self.unchained(env, guard.value());
            let page = run.page.offset(u64::from(step) << run.order);
            self.bundles.adopt(env, space, frame, page);
            guard.unlock_with(word);
        }
    }

    fn visit<P: Platform, F: Format>(
        &self,
        env: &Env<'_, P>,
        topology: &dyn Topology<()>,
        page: Pfn,
        visitor: &mut dyn FnMut(&Slot<'_, F>) -> Verdict,
    ) -> VisitReport {
        if is_of_object(env, page) {
            return self.visit_run(env, topology, &[page], &mut |_, slot| visitor(slot));
        }
        let frame = env.memory.frame(page);
        let mut visit = BundleVisit {
            env,
            topology,
            page,
            visitor,
            report: VisitReport::default(),
            progress: Progress::default(),
            migrates: false,
            unmapped: 0,
            orphaned: false,
        };
        let mut spins = 0;
        loop {
            let guard = self.lock(env, page);
            let mut word = guard.value();
            let chain = chain_of(word);
            let outcome = self.bundles.search(&mut visit, |number| match number {
                0 => Some(Vpn(frame.index())),
                _ => self.addresses.get(env, chain?, number - 1),
            });
            if visit.unmapped > 0 {
                let removes = &self.cpus.get(env.pin).removes;
                removes.add(u64::from(visit.unmapped));
                word = self.decremented(env, word, page, visit.unmapped);
                visit.unmapped = 0;
            }
            guard.unlock_with(word);
            if outcome == Outcome::Done {
                return visit.report;
            }
            env.pin.relax(spins);
            spins += 1;
        }
    }

    fn visit_run<P: Platform, F: Format>(
        &self,
        env: &Env<'_, P>,
        topology: &dyn Topology<()>,
        frames: &[Pfn],
        visitor: &mut dyn FnMut(Pfn, &Slot<'_, F>) -> Verdict,
    ) -> VisitReport {
        self.files
            .visit(env, topology, frames, &mut |page, slot: &Slot<'_, F>| {
                let verdict = visitor(page, slot);
                if verdict == Verdict::Unmapped {
                    let guard = self.lock(env, page);
                    let word = guard.value();
                    guard.unlock_with(self.decremented(env, word, page, 1));
                }
                verdict
            })
    }
}

impl TracksSpaces for Anonmm2003 {
    type Space = SpaceMember;

    fn space_executed<P: Platform>(
        &self,
        env: &Env<'_, P>,
        space: &SpaceMember,
        handle: u32,
    ) -> Result<(), OutOfMemory> {
        self.bundles.execute(env, space, handle)
    }

    fn space_forked<P: Platform>(
        &self,
        env: &Env<'_, P>,
        parent: &SpaceMember,
        child: &SpaceMember,
        handle: u32,
    ) -> Result<(), OutOfMemory> {
        self.bundles.fork(env, parent, child, handle)
    }

    fn space_ended<P: Platform>(&self, env: &Env<'_, P>, space: &SpaceMember) {
        self.bundles.exit(env, space);
    }
}

impl TracksRegions for Anonmm2003 {
    type Region = ();
}

impl TracksEntries for Anonmm2003 {
    const PREPARES_TO_MOVE: bool = true;
    type Ctx = ();

    /// Makes sure of the CPU's spare node, whatever is coming.
    #[inline]
    fn prepare<P: Platform>(
        &self,
        env: &Env<'_, P>,
        (): &mut (),
        _place: Place<'_, Self::Region, Self::Space>,
        _count: usize,
    ) -> Result<(), OutOfMemory> {
        self.addresses.prepare(env)
    }

    fn prepare_move<P: Platform>(&self, env: &Env<'_, P>, count: usize) -> Result<(), OutOfMemory> {
        self.addresses.reserve(env, count)
    }

    fn give_back<P: Platform>(&self, env: &Env<'_, P>, at_hand: AtHand) -> u64 {
        self.addresses.give_back(env, at_hand)
    }
}

impl TracksLeaves for Anonmm2003 {
    /// Every other page is mapped as often as the first, at the address after it. A run
    /// that is mapped by large leaves has not been moved, so it has no chain.
    fn divide<P: Platform>(&self, env: &Env<'_, P>, run: &Run, _parts: Option<&Run>) {
        let guard = self.lock(env, run.frame);
        let word = guard.value();
        debug_assert!(
            chain_of(word).is_none(),
            "a superpage with several addresses"
        );
        for part in run.parts().skip(1) {
            let frame = env.memory.frame(part.frame);
            frame
                .rmap()
                .store(u64::from(word as u32), Ordering::Release);
        }
        self.bundles.divide(env, run);
        guard.unlock_with(word);
    }

    fn unite<P: Platform>(&self, env: &Env<'_, P>, run: &Run, place: Place<'_, (), SpaceMember>) {
        for part in run.parts() {
            let guard = self.lock(env, part.frame);
            let word = self.unchained(env, guard.value());
            guard.unlock_with(word);
        }
        self.bundles.unite(env, run, place.space_state);
    }
}

impl DelaysFlushes for Anonmm2003 {}

impl Audited for Anonmm2003 {
    fn stats(&self) -> RmapStats {
        let counted = counts::sum(&self.cpus, |cpu| cpu);
        let (members, head_locks) = self.bundles.stats();
        let (allocs, frees, searched) = self.addresses.counts();
        let node = size_of::<AddressNode>() as u64;
        let mut stats = RmapStats {
            node_allocs: members.allocs + allocs,
            node_frees: members.frees + frees,
            locks: counted.locks + head_locks,
            nodes_searched: searched,
            bytes: self.bundles.bytes_of(members.live) + allocs.wrapping_sub(frees) * node,
            peak_bytes: self.bundles.bytes_of(members.peak) + self.addresses.stats().peak * node,
            ..counted
        };
        self.files.add_to(&mut stats);
        stats
    }

    fn check_frame<P: Platform>(
        &self,
        env: &Env<'_, P>,
        frame: Pfn,
        maps: u32,
    ) -> Result<(), &'static str> {
        let frame = env.memory.frame(frame);
        let word = frame.rmap().load(Ordering::Acquire);
        if word & 1 << LOCK_BIT != 0 {
            return Err("the page's rmap lock is held");
        }
        if self.count(env, word) != maps {
            return Err("the design's count of mappings is not the frame's");
        }
        if frame.kind() == Kind::Object {
            return Ok(());
        }
        self.bundles.check(frame, maps)
    }

    fn live_nodes(&self) -> u64 {
        let (allocs, frees, _) = self.addresses.counts();
        self.bundles.left_over() + allocs.wrapping_sub(frees)
    }

    fn audit_nodes(&self) -> Result<u64, AuditError> {
        let chains = self.addresses.audit()?;
        Ok(self.bundles.audit()? + chains.chunks + chains.directory)
    }
}
