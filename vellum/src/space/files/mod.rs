//! Objects by bytes: what `read(2)`, `write(2)`, `ftruncate(2)`, `fallocate(2)` and
//! `lseek(2)` of an embedder call.
//!
//! **Writes** hold the range of the object's pages that they touch, and from the old end
//! on if they make the object longer; truncations and holes likewise. So writes to
//! different parts of an object run together, and what a page holds is one writer's.
//! A page that is not cached yet is filled before it enters the cache: nobody sees it
//! half made, it needs no lock, and what a write covers is not zeroed first.
//!
//! **Reads** hold nothing. They find pages under the protection of the epoch, copy, and
//! then look whether pages or parts of them were cut off meanwhile (`Object::cuts`). If
//! so they read again, now with the range held. So a byte that is read was in the
//! object at some time during the call, and a read does not return a zero or an older
//! byte for what was cut off and written anew. Each aligned word of 8 bytes is old
//! or new; a read beside a write of several words may see some of either.
//!
//! **Errors.** A call that has moved some bytes returns how many; one that has moved none
//! returns the error and has changed nothing.

pub(super) mod ahead;
pub(super) mod allocate;
pub(super) mod buffers;
pub(super) mod create;
pub(super) mod hold;
pub(super) mod open;
#[cfg(feature = "published")]
pub(super) mod pages;
pub(super) mod parts;
pub(super) mod pin;
pub(super) mod read;
pub(super) mod resize;
pub(super) mod seal;
pub(super) mod seek;
pub(super) mod shift;
pub(super) mod throttle;
pub(super) mod tmpfs;
pub(super) mod truncate;
pub(super) mod whole;
pub(super) mod write;
pub(super) mod writeback;
