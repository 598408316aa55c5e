//! A compressed store of pages in memory, as a swap area or in front of one.
//!
//! A [`Store`] keeps pages by the number of their slot, in memory that it was given, and uses
//! no other: the memory is its limit, and its own tables lie in it, too.
//!
//! * A page that is one repeated word takes an entry of a table and nothing else.
//! * Other pages are compressed with LZ4 (`lz4_flex`, without its unsafe code).
//! * **Below** there may be another store with the same slots ([`Below`]): a device. Pages that do
//!   not compress go there at once, and when memory is full, the oldest pages are written back
//!   there until there is room. Without one, pages that do not compress are kept as they are,
//!   and a full store says so ([`PutError::Full`]).
//! * A slot that is freed gives back its bytes ([`Store::free`]).
//!
//! It is what zswap is to Linux, or, without a store below, zram.
//!
//! # What the embedder brings
//! Memory, a lock ([`Exclusive`]) under which nothing but short copying is done, and a
//! [`Scratch`] for each CPU or thread that transfers pages. Nothing is allocated but by
//! [`Scratch::new`]. Calls for different slots may run at the same time. Those that transfer
//! pages ([`Store::put`], [`Store::get`]) of one slot may not, which a manager's swap cache sees
//! to; [`Store::free`] may be called while anything else runs but these, and never waits for a
//! device.
//!
//! ```
//! use std::sync::Mutex;
//! use vellum_compressed::{Exclusive, Loaded, Nowhere, Pool, Scratch, Store};
//!
//! struct Lock(Mutex<Pool<Vec<u8>>>);
//!
//! impl Exclusive<Pool<Vec<u8>>> for Lock {
//!     fn new(pool: Pool<Vec<u8>>) -> Self {
//!         Lock(Mutex::new(pool))
//!     }
//!     fn with<R>(&self, work: impl FnOnce(&mut Pool<Vec<u8>>) -> R) -> R {
//!         work(&mut self.0.lock().unwrap())
//!     }
//! }
//!
//! let store: Store<Lock, Vec<u8>, Nowhere> = Store::new(vec![0; 64 << 10], 4096, 1000, None)?;
//! let mut scratch = Scratch::new(4096);
//! let page: Vec<u8> = (0..4096).map(|at| (at / 100) as u8).collect();
//! store.put(17, &page, &mut scratch).unwrap();
//! assert_eq!(store.get(17, &mut scratch), Ok(Loaded::Page(&page)));
//! assert!(store.stats().page_bytes < 1024);
//! # Ok::<(), vellum_compressed::SizeError>(())
//! ```
#![no_std]
#![forbid(unsafe_code)]
#![deny(missing_docs)]

extern crate alloc;

mod blocks;
mod pool;
mod scratch;
mod store;

pub use pool::{Pool, Stats};
pub use scratch::Scratch;
pub use store::{Below, Exclusive, GetError, Loaded, Nowhere, PutError, Refused, SizeError, Store};
