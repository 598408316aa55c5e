//! The memory manager for kernels written in C: a static library, and the header
//! `include/vellum.h`, which `cargo xtask c --write` makes of these files.
//!
//! Nothing here decides anything: each function checks what C could pass that Rust could
//! not, calls the manager, and says in a number how that went. `docs/c.md` is the manual.
//!
//! # What is promised at the border
//! * No panic leaves the library: the manager does not panic on what a caller can cause,
//!   and memory for its own tables is counted before it is made ([`heap`]). What remains, a
//!   platform that breaks a promise in a way that is noticed, ends in `vellum_panic`, which
//!   the kernel defines and which does not return.
//! * Numbers from C are numbers here until they have been looked at: no argument is a Rust
//!   `enum`, a reference, or a slice.
#![no_std]

extern crate alloc;

mod access;
mod dirty;
mod frames;
mod groups;
mod heap;
mod hooks;
mod layout;
mod manager;
mod nodes;
mod objects;
mod open;
mod platform;
mod regions;
mod report;
mod rules;
mod spaces;
mod status;
mod superpages;
mod swap;

use core::fmt::{self, Write};
use core::panic::PanicInfo;

#[cfg(not(any(feature = "aarch64", feature = "sv39")))]
type Paging = vellum::table::X86_64;
#[cfg(feature = "aarch64")]
type Paging = vellum::table::Aarch64_4K;
#[cfg(feature = "sv39")]
type Paging = vellum::table::Sv39;

#[cfg(not(any(feature = "chains", feature = "anon_vma_chain")))]
type Rmap = vellum::rmap::Family;
#[cfg(feature = "chains")]
type Rmap = vellum::rmap::Chains;
#[cfg(feature = "anon_vma_chain")]
type Rmap = vellum::rmap::AnonVmaChain;

unsafe extern "C" {
    /// The kernel's: prints `length` bytes, which no zero byte ends, and does not return.
    fn vellum_panic(text: *const u8, length: usize) -> !;
}

#[panic_handler]
fn panic(info: &PanicInfo<'_>) -> ! {
    let mut text = Text::<512>::new();
    // What does not fit is left out.
    let _ = write!(text, "{info}");
    // SAFETY: the bytes are there, and the kernel does not return.
    unsafe { vellum_panic(text.bytes.as_ptr(), text.length) }
}

/// Nothing unwinds. Rust's own library was compiled for programs in which something might,
/// and names this.
#[cfg(not(target_os = "none"))]
#[unsafe(no_mangle)]
extern "C" fn rust_eh_personality() {}

/// Text of up to `N` bytes; the rest is dropped.
struct Text<const N: usize> {
    bytes: [u8; N],
    length: usize,
}

impl<const N: usize> Text<N> {
    const fn new() -> Self {
        Text {
            bytes: [0; N],
            length: 0,
        }
    }
}

impl<const N: usize> Write for Text<N> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let fits = text.len().min(N - self.length);
        self.bytes[self.length..self.length + fits].copy_from_slice(&text.as_bytes()[..fits]);
        self.length += fits;
        Ok(())
    }
}
