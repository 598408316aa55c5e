//! What each CPU did with its time.

use super::CpuShare;

/// What a stretch of time was for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Use {
    User,
    System,
    Idle,
}

/// The time of one CPU in picoseconds, accounted for up to a moment.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Account {
    user: u64,
    system: u64,
    idle: u64,
    from: u64,
    until: u64,
}

impl Account {
    /// Forgets everything before `now`. What was accounted for ahead of that is idle time.
    pub(crate) fn begin(&mut self, now: u64) {
        *self = Account {
            idle: self.until.saturating_sub(now),
            from: now,
            until: self.until.max(now),
            ..Account::default()
        };
    }

    /// Accounts for what has passed until `now`, which is at most `end`, if that is known.
    pub(crate) fn charge(&mut self, now: u64, end: Option<u64>, what: Use) {
        let now = end.map_or(now, |end| now.min(end));
        let passed = now.saturating_sub(self.until);
        self.until = self.until.max(now);
        *match what {
            Use::User => &mut self.user,
            Use::System => &mut self.system,
            Use::Idle => &mut self.idle,
        } += passed;
    }

    /// The same, but `apart` of it was for something else.
    pub(crate) fn charge_parts(
        &mut self,
        now: u64,
        end: Option<u64>,
        what: Use,
        (apart, other): (u64, Use),
    ) {
        let until = self.until;
        self.charge(until + apart.min(now.saturating_sub(until)), end, other);
        self.charge(now, end, what);
    }

    /// What it was for, in whole nanoseconds, when all time until `end` is accounted for.
    pub(crate) fn share(mut self, end: u64) -> CpuShare {
        self.charge(end, None, Use::Idle);
        let all = end - self.from;
        debug_assert_eq!(self.user + self.system + self.idle, all);
        let (user_ns, system_ns) = (self.user / 1000, self.system / 1000);
        CpuShare {
            user_ns,
            system_ns,
            idle_ns: all / 1000 - user_ns - system_ns,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_time_until_the_end_is_accounted_for_and_none_after_it() {
        let mut account = Account::default();
        account.charge(1_500, None, Use::Idle);
        account.charge_parts(10_000, None, Use::User, (2_000, Use::System));
        account.charge(12_000, None, Use::System);
        account.charge_parts(30_000, Some(20_000), Use::System, (500, Use::Idle));
        account.charge_parts(40_000, Some(20_000), Use::User, (500, Use::System));
        let share = account.share(20_000);
        let expected = CpuShare {
            user_ns: 6,
            system_ns: 11,
            idle_ns: 3,
        };
        assert_eq!(share, expected);
    }

    #[test]
    fn what_was_before_the_beginning_is_forgotten() {
        let mut account = Account::default();
        account.charge(9_000, None, Use::System);
        account.begin(8_000);
        account.charge(11_000, None, Use::User);
        let share = account.share(15_000);
        assert_eq!((share.user_ns, share.system_ns, share.idle_ns), (2, 0, 5));
    }

    #[test]
    fn what_nobody_charged_for_was_idle() {
        let share = Account::default().share(5_999);
        assert_eq!((share.user_ns, share.system_ns, share.idle_ns), (0, 0, 5));
    }
}
