//! What is known of a cache line, and how an access to it is asked for and answered.

use crate::topology::Level;

/// No core, no CPU.
pub(crate) const NOBODY: u16 = u16::MAX;

/// A line of the directory: its page and its number there.
pub(crate) type LineId = u32;

/// What is known of one line.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Line {
    /// When it can be transferred again.
    pub(crate) free_at: u64,
    /// Of a line with an owner: when that used it last. Of another: the set of cores that share
    /// it; 0 if none does.
    pub(crate) held: u64,
    /// How often it was written.
    pub(crate) version: u32,
    /// Since when the same CPU owns it, or cores share it.
    pub(crate) since: Coarse,
    /// The core that owns it.
    pub(crate) owner: u16,
    /// The CPU of the owner that used it last.
    pub(crate) near: u16,
    /// First of the CPUs that spin on it.
    pub(crate) waiters: u16,
    /// Words that were written since it has its owner, a bit each.
    pub(crate) words: u8,
}

/// Of which nothing is known.
pub(crate) const NEW: Line = Line {
    free_at: 0,
    held: 0,
    version: 0,
    since: Coarse(0),
    owner: NOBODY,
    near: NOBODY,
    waiters: NOBODY,
    words: 0,
};

// Two to a line of the host.
const _: () = assert!(size_of::<Line>() == 32);

impl Line {
    /// The set of cores that share it; 0 if it has an owner, or nobody has it.
    #[inline]
    pub(crate) fn sharers(&self) -> u32 {
        match self.owner {
            NOBODY => self.held as u32,
            _ => 0,
        }
    }

    /// Whether a CPU of the core that owns it is the last that used it, or nobody has.
    #[inline]
    pub(crate) fn is_near(&self, by: By) -> bool {
        u32::from(self.owner) == by.core && (self.near == by.cpu || self.near == NOBODY)
    }

    /// When it can be used. Its owner may have run ahead of who uses it next, and who then sees
    /// what the owner did there: so that comes after.
    #[inline]
    pub(crate) fn after_owner(&self, by: By) -> u64 {
        match self.owner {
            NOBODY => by.now,
            _ if self.near == by.cpu => by.now,
            _ => by.now.max(self.held),
        }
    }

    /// It is the core's of who uses it at `now`.
    #[inline]
    pub(crate) fn own(&mut self, by: By, now: u64) {
        if u32::from(self.owner) != by.core || self.near != by.cpu {
            self.since = Coarse::of(now);
            self.owner = by.core as u16;
            self.near = by.cpu;
        }
        self.held = now;
    }

    /// It is shared by a set of cores from `now` on.
    pub(crate) fn share(&mut self, set: u32, now: u64) {
        self.owner = NOBODY;
        self.held = u64::from(set);
        self.since = Coarse::of(now);
    }
}

/// A time in microseconds, about, without the hours.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Coarse(u32);

/// For how long nothing has to have happened to a line that its CPUs use without regard to the
/// others' clocks.
const SETTLED: u32 = 20;

impl Coarse {
    #[inline]
    fn of(time: u64) -> Coarse {
        Coarse((time >> 20) as u32)
    }

    /// Whether it is some time ago.
    #[inline]
    pub(crate) fn is_settled(self, now: u64) -> bool {
        Coarse::of(now).0.wrapping_sub(self.0) > SETTLED
    }
}

/// Who makes an access, when, and to which words of the line.
#[derive(Clone, Copy, Debug)]
pub(crate) struct By {
    pub(crate) cpu: u16,
    pub(crate) core: u32,
    pub(crate) now: u64,
    pub(crate) words: u8,
}

/// How far a CPU's clock is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Pace {
    /// It is its turn.
    Turn,
    /// It may use nothing but settled lines.
    Ahead,
}

/// How an access went.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Served {
    /// When it is done.
    pub(crate) at: u64,
    /// From how far the line came; `None` if the core had it.
    pub(crate) from: Option<Level>,
}

/// How a line is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Write {
    Store,
    Update,
}
