//! PTE chains: each frame lists the entries that map it (`rmap=chains`).
//!
//! The design of Linux 2.5.33 to 2.6.6: a frame mapped once points straight at
//! its entry (PageDirect, `direct=on`); one mapped more often at a chain of
//! nodes, each one cache line with seven entries. In a chain only the head has
//! free slots, and they come first. Removing moves the head's first entry into
//! the gap. A chain of one entry becomes direct again only when a visit
//! finds it so, because a process that forks again and again would otherwise
//! make and free a node each time.
//!
//! The frame's word in the record holds the lock (bit 63), the kind, and
//! either the entry or the head's handle with a generation that every change
//! advances:
//!
//! | bits | direct | chain |
//! |---|---|---|
//! | 63 | lock | lock |
//! | 62..60 | 01 | 10 |
//! | 0..48 | the entry | |
//! | 0..32 | | head node |
//! | 32..60 | | generation |
//!
//! Nodes come from the design's arena, through one spare a CPU: most
//! operations prepare a node and do not use it.

mod list;
mod node;

pub use node::{ChainNode, ENTRIES_PER_NODE};

use list::{chain_length, entries, normal, position};
use node::{LOCK_BIT, State, chain, decode, direct};

use crate::addr::Pfn;
use crate::design::Design;
use crate::frame::{AuditError, OutOfMemory};
use crate::platform::Platform;
use crate::rmap::counts::{self, RmapCounts};
use crate::rmap::{
    Audited, DelaysFlushes, Env, Place, ReverseMap, RmapStats, Run, Slot, Topology, TracksEntries,
    TracksLeaves, TracksRegions, TracksSpaces, Verdict, VisitReport,
};
use crate::slab::{Arena, ArenaMaker, AtHand, Handle, WhilePinned};
use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use crate::sync::{BitGuard, BitLock, PerCpu, bytes};
use crate::table::{Format, PteRef};

#[derive(Default)]
struct ChainsCpu {
    /// A prepared node, or none.
    spare: AtomicU32,
    counts: RmapCounts,
}

counts::count_in!(ChainsCpu);

/// How far a visit has come.
#[derive(Default)]
struct ChainVisit {
    /// Entries handed out and kept.
    kept: usize,
    report: VisitReport,
}

/// The `chains` design.
pub struct Chains {
    nodes: Arena<ChainNode, WhilePinned>,
    cpus: PerCpu<ChainsCpu>,
    direct: bool,
}

impl Chains {
    /// The design on a machine of `cpus` CPUs, with PageDirect or without.
    pub fn with_direct(direct: bool, cpus: usize, arenas: &ArenaMaker) -> Self {
        Chains {
            nodes: arenas.make(),
            cpus: PerCpu::new(cpus, |_| ChainsCpu::default()),
            direct,
        }
    }

    /// Takes the lock of a frame, in its word.
    pub(super) fn lock<'a, P: Platform>(
        &self,
        env: &Env<'a, P>,
        frame: Pfn,
    ) -> BitGuard<'a, AtomicU64> {
        self.cpus.get(env.pin).locks.bump();
        env.memory.frame(frame).rmap().lock_bit(LOCK_BIT, env.pin)
    }

    /// A node that `prepare` promised: the spare if there is one.
    fn take_node<P: Platform>(&self, env: &Env<'_, P>) -> Handle<ChainNode> {
        let cpu = self.cpus.get(env.pin);
        cpu.node_allocs.bump();
        match cpu.spare.load(Ordering::Relaxed) {
            0 => self.nodes.take_reserved(env.pin),
            spare => {
                cpu.spare.store(0, Ordering::Relaxed);
                Handle::from_raw(spare)
            }
        }
    }

    fn give_node<P: Platform>(&self, env: &Env<'_, P>, node: Handle<ChainNode>) {
        let cpu = self.cpus.get(env.pin);
        cpu.node_frees.bump();
        if cpu.spare.load(Ordering::Relaxed) == 0 {
            cpu.spare.store(node.raw(), Ordering::Relaxed);
        } else {
            self.nodes.free(env.pin, node);
        }
    }

    /// Applies `change` to the word of each frame of the run, locked.
    fn for_run<P: Platform>(
        &self,
        env: &Env<'_, P>,
        run: &Run,
        change: impl Fn(u64, PteRef) -> u64,
    ) {
        for step in 0..run.count {
            let guard = self.lock(env, run.frame.offset(step << run.order));
            let word = guard.value();
            guard.unlock_with(change(word, run.pte.offset(step)));
        }
    }

    /// Puts `to` in the place of `from` in the frame's list.
    fn renamed<P: Platform>(&self, env: &Env<'_, P>, word: u64, from: PteRef, to: PteRef) -> u64 {
        match decode(word) {
            State::Direct(_) => direct(to),
            State::Chain(head) => {
                let found = self.find(env, head, from);
                debug_assert!(found.is_some(), "entry moved that the chain does not list");
                if let Some((node, index)) = found {
                    self.nodes(env).get(node).set_entry(index, to);
                }
                chain(head, word)
            }
            State::Unmapped => word,
        }
    }

    /// Hands out the entries after those kept with the frame's lock held.
    /// Returns false if a table lock would have to be waited for.
    fn visit_locked<P: Platform, F: Format>(
        &self,
        env: &Env<'_, P>,
        frame: Pfn,
        word: &mut u64,
        visit: &mut ChainVisit,
        visitor: &mut dyn FnMut(&Slot<'_, F>) -> Verdict,
    ) -> bool {
        let ChainVisit { kept, report } = visit;
        let mut place = match decode(*word) {
            State::Unmapped => return true,
            State::Direct(_) => None,
            State::Chain(head) => position(self.nodes(env), head, *kept),
        };
        loop {
            let pte = match (decode(*word), place) {
                (State::Direct(pte), _) if *kept == 0 => pte,
                (State::Chain(_), Some((node, index))) => self.nodes(env).get(node).entry(index),
                _ => return true,
            };
            // Removing moves the head's first entry, which was handed out
            // before, into the gap; so the place after the gap is next.
            let after = place.and_then(|(node, index)| normal(self.nodes(env), node, index + 1));
            let verdict = match Slot::open(env, (pte, None), frame) {
                Err(_) => {
                    report.lock_failures += 1;
                    return false;
                }
                Ok(None) => {
                    report.false_probes += 1;
                    Verdict::Keep
                }
                Ok(Some(slot)) => {
                    report.hits += 1;
                    visitor(&slot)
                }
            };
            match verdict {
                Verdict::Keep => *kept += 1,
                Verdict::Stop => return true,
                Verdict::Unmapped => {
                    report.unmapped += 1;
                    *word = self.removed(env, *word, pte);
                    env.memory.frame(frame).remove_mapping();
                    self.cpus.get(env.pin).removes.bump();
                }
            }
            place = after;
        }
    }

    /// A chain that turned out to hold one entry becomes direct.
    fn collapsed<P: Platform>(&self, env: &Env<'_, P>, word: u64) -> u64 {
        let State::Chain(head) = decode(word) else {
            return word;
        };
        let node = self.nodes(env).get(head);
        if !self.direct || !node.next().is_none() || node.first() + 1 < ENTRIES_PER_NODE {
            return word;
        }
        let only = node.entry(node.first());
        self.give_node(env, head);
        direct(only)
    }
}

// SAFETY: each entry is in its frame's chain, or is the frame's direct one, from `add` to
// `remove`, both under the frame's lock; a visit goes through all of the chain.
unsafe impl ReverseMap for Chains {
    const NAME: &'static str = "chains";

    fn new(options: &Design, cpus: usize, arenas: &ArenaMaker) -> Self {
        Chains::with_direct(options.direct, cpus, arenas)
    }

    #[inline]
    fn add<P: Platform>(
        &self,
        env: &Env<'_, P>,
        (): &mut (),
        run: &Run,
        _place: Place<'_, (), ()>,
        _fresh: bool,
    ) {
        self.cpus.get(env.pin).adds.add(u64::from(run.count));
        // Nobody else knows fresh frames, and no lock would be needed. The
        // kernels that this stands for took it all the same.
        self.for_run(env, run, |word, pte| self.inserted(env, word, pte));
    }

    #[inline]
    fn duplicate<P: Platform>(
        &self,
        env: &Env<'_, P>,
        (): &mut (),
        run: &Run,
        _place: Place<'_, (), ()>,
    ) {
        self.cpus.get(env.pin).duplicates.add(u64::from(run.count));
        self.for_run(env, run, |word, pte| self.inserted(env, word, pte));
    }

    #[inline]
    fn remove<P: Platform>(
        &self,
        env: &Env<'_, P>,
        (): &mut (),
        run: &Run,
        _place: Place<'_, (), ()>,
    ) {
        self.cpus.get(env.pin).removes.add(u64::from(run.count));
        self.for_run(env, run, |word, pte| self.removed(env, word, pte));
    }

    fn shift<P: Platform>(
        &self,
        env: &Env<'_, P>,
        (): &mut (),
        from: &Run,
        to: &Run,
        _place: Place<'_, (), ()>,
    ) {
        self.cpus.get(env.pin).moves.add(u64::from(from.count));
        self.for_run(env, from, |word, pte| {
            let moved = to.pte.offset(u32::from(pte.index - from.pte.index));
            self.renamed(env, word, pte, moved)
        });
    }

    fn turn<P: Platform>(
        &self,
        env: &Env<'_, P>,
        (): &mut (),
        run: &Run,
        _place: Place<'_, (), ()>,
    ) {
        self.cpus.get(env.pin).turns.add(u64::from(run.count));
    }

    fn visit<P: Platform, F: Format>(
        &self,
        env: &Env<'_, P>,
        _topology: &dyn Topology<()>,
        frame: Pfn,
        visitor: &mut dyn FnMut(&Slot<'_, F>) -> Verdict,
    ) -> VisitReport {
        let mut visit = ChainVisit::default();
        let mut left_at = None;
        let mut spins = 0;
        loop {
            let guard = self.lock(env, frame);
            let mut word = guard.value();
            if left_at.is_some_and(|left| left != word) {
                visit.kept = 0;
            }
            let done = self.visit_locked(env, frame, &mut word, &mut visit, visitor);
            if done {
                word = self.collapsed(env, word);
            }
            guard.unlock_with(word);
            if done {
                return visit.report;
            }
            left_at = Some(word);
            env.pin.relax(spins);
            spins += 1;
        }
    }
}

impl TracksSpaces for Chains {
    type Space = ();
}

impl TracksRegions for Chains {
    type Region = ();
}

impl TracksEntries for Chains {
    type Ctx = ();

    /// Fills the CPU's cache of nodes, from which the pinned caller alone
    /// takes. The spare is a node more than promised.
    #[inline]
    fn prepare<P: Platform>(
        &self,
        env: &Env<'_, P>,
        (): &mut (),
        _place: Place<'_, (), ()>,
        count: usize,
    ) -> Result<(), OutOfMemory> {
        if count == 1 && self.cpus.get(env.pin).spare.load(Ordering::Relaxed) != 0 {
            return Ok(());
        }
        self.nodes.reserve(env.pin, env.memory, count)
    }

    fn finish<P: Platform>(&self, _env: &Env<'_, P>, (): ()) {}

    fn give_back<P: Platform>(&self, env: &Env<'_, P>, at_hand: AtHand) -> u64 {
        self.nodes.give_back(env.pin, env.memory, at_hand)
    }

    #[inline]
    fn prefetch<P: Platform>(&self, env: &Env<'_, P>, frame: Pfn) {
        let word = env.memory.frame(frame).rmap().load(Ordering::Relaxed);
        if let State::Chain(head) = decode(word)
            && let Some(node) = self.nodes(env).try_get(head)
        {
            bytes::prefetch(node);
        }
    }

    fn entry_moved<P: Platform>(&self, env: &Env<'_, P>, (): &mut (), run: &Run, to: PteRef) {
        self.for_run(env, run, |word, pte| self.renamed(env, word, pte, to));
    }
}

impl TracksLeaves for Chains {
    fn prepare_divide<P: Platform>(&self, env: &Env<'_, P>, run: &Run) -> Result<(), OutOfMemory> {
        let others = (1 << run.order) - 1;
        let word = self.lock(env, run.frame).value();
        match decode(word) {
            State::Chain(head) => {
                let nodes = entries(self.nodes(env), head)
                    .count()
                    .div_ceil(ENTRIES_PER_NODE);
                self.nodes.reserve(env.pin, env.memory, others * nodes)
            }
            State::Direct(_) | State::Unmapped => Ok(()),
        }
    }

    /// Every other frame lists what the first does.
    fn divide<P: Platform>(&self, env: &Env<'_, P>, run: &Run, _parts: Option<&Run>) {
        let guard = self.lock(env, run.frame);
        let word = guard.value();
        for part in run.parts().skip(1) {
            let other = match decode(word) {
                State::Chain(head) => self.copied(env, head),
                State::Direct(pte) => direct(pte),
                State::Unmapped => 0,
            };
            let frame = env.memory.frame(part.frame);
            frame.rmap().store(other, Ordering::Release);
        }
        guard.unlock_with(word);
    }

    /// The other frames' lists go; each lists the leaf alone.
    fn unite<P: Platform>(&self, env: &Env<'_, P>, run: &Run, _place: Place<'_, (), ()>) {
        for part in run.parts().skip(1) {
            let guard = self.lock(env, part.frame);
            let word = guard.value();
            guard.unlock_with(self.removed(env, word, run.pte));
        }
    }

    fn promote<P: Platform>(
        &self,
        env: &Env<'_, P>,
        (): &mut (),
        run: &Run,
        leaf: PteRef,
        _place: Place<'_, (), ()>,
    ) {
        // Every frame of the run goes on listing one entry: the large leaf.
        self.for_run(env, run, |word, pte| self.renamed(env, word, pte, leaf));
    }

    fn demote<P: Platform>(
        &self,
        env: &Env<'_, P>,
        (): &mut (),
        run: &Run,
        leaf: PteRef,
        _place: Place<'_, (), ()>,
    ) {
        self.for_run(env, run, |word, pte| self.renamed(env, word, leaf, pte));
    }
}

impl DelaysFlushes for Chains {}

impl Audited for Chains {
    fn kept_bytes(_regions: u64, pages: u64) -> u64 {
        pages * (size_of::<ChainNode>() / ENTRIES_PER_NODE) as u64
    }

    fn stats(&self) -> RmapStats {
        let arena = self.nodes.stats();
        RmapStats {
            bytes: self.live_nodes() * size_of::<ChainNode>() as u64,
            peak_bytes: arena.peak * size_of::<ChainNode>() as u64,
            ..counts::sum(&self.cpus, |cpu| cpu)
        }
    }

    fn check_frame<P: Platform>(
        &self,
        env: &Env<'_, P>,
        frame: Pfn,
        maps: u32,
    ) -> Result<(), &'static str> {
        let word = env.memory.frame(frame).rmap().load(Ordering::Acquire);
        if word & 1 << LOCK_BIT != 0 {
            return Err("the chain lock is held");
        }
        let listed = match decode(word) {
            State::Unmapped => 0,
            State::Direct(_) => 1,
            State::Chain(head) => chain_length(self.nodes(env), head)?,
        };
        if listed == maps {
            Ok(())
        } else {
            Err("the chain does not list as many entries as map the frame")
        }
    }

    fn audit_nodes(&self) -> Result<u64, AuditError> {
        let census = self.nodes.audit()?;
        Ok(census.chunks + census.directory)
    }

    fn live_nodes(&self) -> u64 {
        let allocs = self.cpus.sum(|cpu| &cpu.node_allocs);
        allocs.wrapping_sub(self.cpus.sum(|cpu| &cpu.node_frees))
    }
}
