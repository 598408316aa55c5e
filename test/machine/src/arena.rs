//! Host memory that serves as a machine's RAM, handed from machine to machine.
//!
//! An arena is claimed by one machine at a time; its bytes stay as the last
//! machine left them. Host page faults and host TLB misses are not what a
//! machine is there to measure, so an arena can be filled in beforehand and
//! asks the host for large pages unless told otherwise.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

/// Alignment of an arena's first byte: the host's large page, so that large
/// pages of the host can back it from its start.
const ALIGNMENT: usize = 2 << 20;

/// How the host is asked to back an arena.
#[derive(Clone, Copy, Debug)]
pub struct ArenaOptions {
    /// Ask for large pages of the host. Ignored where the host has none.
    pub huge_pages: bool,
    /// Have the host supply all memory at once instead of on first use.
    pub prefault: bool,
}

impl Default for ArenaOptions {
    fn default() -> Self {
        ArenaOptions {
            huge_pages: true,
            prefault: false,
        }
    }
}

/// A mapping of the host, all zero at first.
#[derive(Debug)]
pub struct Arena {
    /// The memory as a file, if it is shared memory.
    file: Option<OwnedFd>,
    mapping: NonNull<u8>,
    mapping_bytes: usize,
    start: NonNull<u8>,
    bytes: usize,
    claimed: AtomicBool,
}

// SAFETY: the arena hands out its address and never looks at its bytes except
// through `&self` system calls, so it may be sent and shared; who uses the
// bytes is settled by the claim.
unsafe impl Send for Arena {}
// SAFETY: as above.
unsafe impl Sync for Arena {}

impl Arena {
    /// An arena of `bytes` bytes with the default options.
    ///
    /// # Errors
    /// The host refused the mapping.
    pub fn new(bytes: usize) -> io::Result<Arc<Arena>> {
        Arena::with_options(bytes, ArenaOptions::default())
    }

    /// An arena of `bytes` bytes.
    ///
    /// # Errors
    /// The host refused the mapping, or to fill it in.
    pub fn with_options(bytes: usize, options: ArenaOptions) -> io::Result<Arc<Arena>> {
        let mapping_bytes = bytes
            .checked_next_multiple_of(ALIGNMENT)
            .and_then(|rounded| rounded.checked_add(ALIGNMENT))
            .filter(|_| bytes > 0)
            .ok_or_else(|| {
                let text = format!("an arena of {bytes} bytes cannot be made");
                io::Error::new(io::ErrorKind::InvalidInput, text)
            })?;
        // SAFETY: a new private anonymous mapping at an address of the host's choice.
        let address = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                mapping_bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let mapping = NonNull::new(address.cast::<u8>())
            .ok_or_else(|| io::Error::other("the host mapped the arena at address 0"))?;
        let skip = mapping.as_ptr().align_offset(ALIGNMENT);
        // SAFETY: `skip` is less than ALIGNMENT, and the mapping is longer than that.
        let start = unsafe { mapping.add(skip) };
        let arena = Arena {
            file: None,
            mapping,
            mapping_bytes,
            start,
            bytes,
            claimed: AtomicBool::new(false),
        };
        let advice = if options.huge_pages {
            libc::MADV_HUGEPAGE
        } else {
            libc::MADV_NOHUGEPAGE
        };
        // Only a hint: a host without large pages refuses it, which changes nothing.
        let _ = arena.advise(advice);
        if options.prefault {
            arena.prefault()?;
        }
        Ok(Arc::new(arena))
    }

    /// An arena of `bytes` bytes of shared memory, which can be mapped at other
    /// addresses too: for windows that bite ([`MachineConfig::biting_windows`]).
    ///
    /// [`MachineConfig::biting_windows`]: crate::MachineConfig::biting_windows
    ///
    /// # Errors
    /// The host refused the memory or the mapping.
    pub fn shared(bytes: usize) -> io::Result<Arc<Arena>> {
        let options = ArenaOptions {
            huge_pages: false,
            prefault: false,
        };
        let mut arena = Arena::with_options(bytes, options)?;
        // SAFETY: the name is a string with a zero at its end.
        let file = unsafe { libc::memfd_create(c"vellum-arena".as_ptr(), libc::MFD_CLOEXEC) };
        if file < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor was made in the line before and is nobody else's.
        let file = unsafe { OwnedFd::from_raw_fd(file) };
        // SAFETY: `ftruncate` on a descriptor that is ours.
        if unsafe { libc::ftruncate(file.as_raw_fd(), bytes as libc::off_t) } != 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: replaces a part of the arena's own mapping, in which nobody has
        // anything yet.
        let mapped = unsafe {
            libc::mmap(
                arena.start.as_ptr().cast(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_FIXED | libc::MAP_NORESERVE,
                file.as_raw_fd(),
                0,
            )
        };
        if mapped == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // Nobody else has the arena yet.
        if let Some(arena) = Arc::get_mut(&mut arena) {
            arena.file = Some(file);
        }
        Ok(arena)
    }

    /// The memory as a file that begins with the arena's first byte, if it is shared
    /// memory.
    pub(crate) fn file(&self) -> Option<&OwnedFd> {
        self.file.as_ref()
    }

    /// Bytes of the arena.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Address of the first byte. Who uses the memory is settled by the machine that has it.
    pub fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Has the host supply all memory of the arena. What it holds stays.
    ///
    /// # Errors
    /// The host has not enough memory.
    pub fn prefault(&self) -> io::Result<()> {
        match self.advise(libc::MADV_POPULATE_WRITE) {
            // The host does not know the request (Linux before 5.14).
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
                self.touch_all();
                Ok(())
            }
            result => result,
        }
    }

    /// Writes to every page without changing it.
    fn touch_all(&self) {
        for offset in (0..self.bytes).step_by(4096) {
            // SAFETY: the byte is in the mapping, and an atomic "or" with zero
            // disturbs nobody who uses it at the same time.
            let byte = unsafe { &*self.start.as_ptr().add(offset).cast::<AtomicU8>() };
            byte.fetch_or(0, Ordering::Relaxed);
        }
    }

    /// Gives the memory back to the host: the arena reads as zeroes afterwards.
    ///
    /// # Errors
    /// The arena is in use, or the host refused.
    pub fn discard(self: &Arc<Self>) -> io::Result<()> {
        let Some(_claim) = ArenaClaim::new(Arc::clone(self)) else {
            return Err(io::Error::new(
                io::ErrorKind::ResourceBusy,
                "the arena is in use by a machine",
            ));
        };
        self.advise(match self.file {
            Some(_) => libc::MADV_REMOVE,
            None => libc::MADV_DONTNEED,
        })
    }

    fn advise(&self, advice: libc::c_int) -> io::Result<()> {
        // SAFETY: the range is this arena's mapping. The only advice that
        // changes bytes is MADV_DONTNEED or MADV_REMOVE, given while the arena is claimed by
        // `discard` and so by no machine.
        let result = unsafe { libc::madvise(self.start.as_ptr().cast(), self.bytes, advice) };
        if result == 0 {
            Ok(())
        } else {
            Err(io::Error::last_os_error())
        }
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: the mapping was made in `with_options` and nobody holds the
        // arena any more. A failure leaves it mapped, which harms nobody.
        unsafe { libc::munmap(self.mapping.as_ptr().cast(), self.mapping_bytes) };
    }
}

/// The right to use an arena's bytes; one exists at a time.
#[derive(Debug)]
pub(crate) struct ArenaClaim(Arc<Arena>);

impl ArenaClaim {
    /// Claims the arena; `None` if somebody else has it.
    pub(crate) fn new(arena: Arc<Arena>) -> Option<ArenaClaim> {
        let free = !arena.claimed.swap(true, Ordering::Acquire);
        free.then(|| ArenaClaim(arena))
    }

    /// Address of the first byte.
    pub(crate) fn start(&self) -> NonNull<u8> {
        self.0.start
    }
}

impl Drop for ArenaClaim {
    fn drop(&mut self) {
        self.0.claimed.store(false, Ordering::Release);
    }
}
