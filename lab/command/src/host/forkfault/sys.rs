//! The system calls of the fork-and-fault program.

use std::io;
use std::mem;
use std::ptr::{self, NonNull};
use std::sync::atomic::AtomicU64;

const PR_SET_THP_DISABLE: libc::c_int = 41;

/// Monotonic time in nanoseconds.
pub fn now_ns() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the struct outlives the call, which cannot fail for this clock.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Bytes of a page.
pub fn page_bytes() -> usize {
    // SAFETY: takes an integer.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(bytes).unwrap_or(4096)
}

/// Bytes that one last-level page table maps: 2 MiB with pages of 4 KiB, 32 MiB
/// with 16 KiB.
pub fn table_span() -> usize {
    page_bytes() / 8 * page_bytes()
}

/// Switches transparent huge pages off for this process and its children.
///
/// # Errors
/// The kernel does not know the call.
pub fn huge_pages_off() -> io::Result<()> {
    // SAFETY: takes integers only.
    match unsafe { libc::prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// CPUs that this process may use, ascending.
///
/// # Errors
/// The operating system refused.
pub fn allowed_cpus() -> io::Result<Vec<usize>> {
    // SAFETY: an all-zero set is a valid, empty set.
    let mut set: libc::cpu_set_t = unsafe { mem::zeroed() };
    // SAFETY: the set outlives the call, and its size is stated.
    if unsafe { libc::sched_getaffinity(0, mem::size_of_val(&set), &mut set) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the numbers are below the size of the set.
    let allowed = |&cpu: &usize| unsafe { libc::CPU_ISSET(cpu, &set) };
    Ok((0..libc::CPU_SETSIZE as usize).filter(allowed).collect())
}

/// Binds this process to one CPU.
///
/// # Errors
/// It may not use that CPU.
pub fn pin(cpu: usize) -> io::Result<()> {
    // SAFETY: an all-zero set is a valid, empty set.
    let mut set: libc::cpu_set_t = unsafe { mem::zeroed() };
    // SAFETY: `allowed_cpus` gives numbers below the size of the set; the set
    // outlives the call, and its size is stated.
    let pinned = unsafe {
        libc::CPU_SET(cpu, &mut set);
        libc::sched_setaffinity(0, mem::size_of_val(&set), &set)
    };
    match pinned {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Anonymous memory, mapped for as long as this lives.
#[derive(Debug)]
pub struct Mapping {
    /// What the kernel gave.
    whole: NonNull<u8>,
    whole_bytes: usize,
    /// The part in use.
    start: NonNull<u8>,
    bytes: usize,
}

impl Mapping {
    /// Private memory of which nothing is touched, aligned to `align` bytes (a
    /// multiple of the page), readable, and writable on request, without huge
    /// pages.
    ///
    /// # Errors
    /// No address space, or the kernel refuses.
    pub fn private(bytes: usize, align: usize, write: bool) -> io::Result<Mapping> {
        let protection = match write {
            true => libc::PROT_READ | libc::PROT_WRITE,
            false => libc::PROT_READ,
        };
        let mapping = Self::new(bytes, align, protection, libc::MAP_PRIVATE)?;
        // A kernel without huge pages refuses the advice and needs none.
        // SAFETY: the range was mapped above and is mapped still.
        unsafe { libc::madvise(mapping.start.as_ptr().cast(), bytes, libc::MADV_NOHUGEPAGE) };
        Ok(mapping)
    }

    /// Memory that children share.
    ///
    /// # Errors
    /// As [`Mapping::private`].
    pub fn shared(bytes: usize) -> io::Result<Mapping> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        Self::new(bytes, page_bytes(), protection, libc::MAP_SHARED)
    }

    fn new(bytes: usize, align: usize, protection: i32, sharing: i32) -> io::Result<Mapping> {
        let whole_bytes = bytes + align;
        // SAFETY: a new mapping at an address that the kernel chooses.
        let whole = unsafe {
            libc::mmap(
                ptr::null_mut(),
                whole_bytes,
                protection,
                sharing | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if whole == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let whole = NonNull::new(whole.cast::<u8>());
        let whole = whole.ok_or_else(|| io::Error::other("a mapping at address 0"))?;
        let skip = whole.as_ptr().addr().next_multiple_of(align) - whole.as_ptr().addr();
        Ok(Mapping {
            whole,
            whole_bytes,
            // SAFETY: `skip` is below `align`, and that much was mapped more.
            start: unsafe { whole.add(skip) },
            bytes,
        })
    }

    /// Reads or writes the byte at `offset`.
    ///
    /// # Panics
    /// The offset is outside.
    #[inline]
    pub fn touch(&self, offset: usize, write: bool) {
        assert!(offset < self.bytes, "offset {offset} of {}", self.bytes);
        // SAFETY: inside the mapping, which allows the access; nobody else has
        // a reference into it.
        unsafe {
            let place = self.start.add(offset).as_ptr();
            match write {
                true => place.write_volatile(1),
                false => _ = place.read_volatile(),
            }
        }
    }

    /// Word `index` of memory that is shared and writable.
    ///
    /// # Panics
    /// The index is outside.
    pub fn word(&self, index: usize) -> &AtomicU64 {
        assert!((index + 1) * 8 <= self.bytes, "word {index}");
        // SAFETY: inside the mapping, aligned, zero from the beginning, and
        // accessed as an atomic only.
        unsafe { self.start.cast::<AtomicU64>().add(index).as_ref() }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: exactly what `new` mapped; references ended with `self`.
        unsafe { libc::munmap(self.whole.as_ptr().cast(), self.whole_bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering;

    #[test]
    fn private_memory_is_aligned_and_can_be_touched_to_its_end() {
        let span = table_span();
        let mapping = Mapping::private(2 * span, span, true).expect("mapped");
        assert!(mapping.start.as_ptr().addr().is_multiple_of(span));
        mapping.touch(0, false);
        mapping.touch(2 * span - 1, true);
    }

    #[test]
    fn shared_words_keep_what_is_stored() {
        let mapping = Mapping::shared(page_bytes()).expect("mapped");
        mapping.word(3).store(7, Ordering::Relaxed);
        assert_eq!(mapping.word(3).load(Ordering::Relaxed), 7);
        assert_eq!(mapping.word(2).load(Ordering::Relaxed), 0);
    }

    #[test]
    fn this_process_may_use_some_cpu() {
        assert!(!allowed_cpus().expect("the kernel tells").is_empty());
    }

    #[test]
    fn time_does_not_run_backwards() {
        let before = now_ns();
        assert!(now_ns() >= before);
    }
}
