//! What keeps a space as it is while a CPU looks at it or changes it: the space's lock, its division
//! into tracts, lookups without a lock, and flushes that wait.

pub(super) mod closed;
pub(super) mod divide;
pub(super) mod flush;
pub(super) mod lock;
pub(super) mod lookup;
pub(super) mod stale;
