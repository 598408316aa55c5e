//! Locks that only published designs take.

mod byte;

pub(crate) use byte::{Bucket, ByteLock, RawLock, Waited};
