//! `/proc/PID/pagemap`: which pages of a process are in memory, and in which frames.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

pub const PAGE: u64 = 4096;
/// Entries that are read at once.
const ENTRIES: u64 = 4096;
const PRESENT: u64 = 1 << 63;
const EXCLUSIVE: u64 = 1 << 56;
const FRAME: u64 = (1 << 55) - 1;

/// What the map says of a page that is in memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry(u64);

impl Entry {
    /// Its frame; 0 if that is hidden from this user.
    pub fn frame(self) -> u64 {
        self.0 & FRAME
    }

    /// Nothing else maps it.
    pub fn is_exclusive(self) -> bool {
        self.0 & EXCLUSIVE != 0
    }
}

/// Pages in memory that follow one another and are of one kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Run {
    pub first: u64,
    pub end: u64,
    pub kind: Kind,
}

/// What a page is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Of a file or of shared memory.
    File,
    /// The kernel's page of zeroes.
    Zero,
    /// Anonymous memory.
    Anonymous,
}

/// `PAGEMAP_SCAN`, and the categories of pages that it tells.
const SCAN: u64 = 0xc060_6610;
const IS_FILE: u64 = 1 << 2;
const IS_PRESENT: u64 = 1 << 3;
const IS_ZERO: u64 = 1 << 5;
/// Runs that one call gives at most.
const RUNS: usize = 1024;

/// `struct pm_scan_arg`.
#[repr(C)]
#[derive(Default)]
struct Scan {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    vec: u64,
    vec_len: u64,
    max_pages: u64,
    inverted: u64,
    all_of: u64,
    any_of: u64,
    told: u64,
}

/// `struct page_region`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Region {
    start: u64,
    end: u64,
    categories: u64,
}

impl Region {
    fn run(self) -> Run {
        let kind = match self.categories {
            zero if zero & IS_ZERO != 0 => Kind::Zero,
            file if file & IS_FILE != 0 => Kind::File,
            _ => Kind::Anonymous,
        };
        Run {
            first: self.start / PAGE,
            end: self.end / PAGE,
            kind,
        }
    }
}

/// The pages of a process.
pub struct PageMap(File);

impl PageMap {
    /// That of a process, or `self`.
    pub fn of(process: impl std::fmt::Display) -> io::Result<PageMap> {
        File::open(format!("/proc/{process}/pagemap")).map(PageMap)
    }

    /// Gives each page of a range that is in memory.
    pub fn each_present(
        &self,
        first: u64,
        end: u64,
        give: &mut dyn FnMut(u64, Entry),
    ) -> io::Result<()> {
        for from in (first..end).step_by(ENTRIES as usize) {
            for (page, entry) in (from..).zip(self.entries(from, end.min(from + ENTRIES))?) {
                if entry & PRESENT != 0 {
                    give(page, Entry(entry));
                }
            }
        }
        Ok(())
    }

    /// Gives the runs of pages of a range that are in memory. What is not there costs nothing,
    /// however large it is.
    pub fn each_run(&self, first: u64, end: u64, give: &mut dyn FnMut(Run)) -> io::Result<()> {
        let mut regions = [Region::default(); RUNS];
        let mut scan = Scan {
            size: size_of::<Scan>() as u64,
            start: first * PAGE,
            end: end * PAGE,
            vec: regions.as_mut_ptr() as u64,
            vec_len: RUNS as u64,
            all_of: IS_PRESENT,
            told: IS_PRESENT | IS_FILE | IS_ZERO,
            ..Scan::default()
        };
        while scan.start < scan.end {
            // SAFETY: the argument states its own size, outlives the call and points to as many
            // regions as it says, which nothing else refers to meanwhile.
            let found = unsafe { libc::ioctl(self.0.as_raw_fd(), SCAN as _, &raw mut scan) };
            if found < 0 {
                return Err(io::Error::last_os_error());
            }
            for region in &regions[..(found as usize).min(RUNS)] {
                give(region.run());
            }
            if scan.walk_end <= scan.start {
                return Ok(());
            }
            scan.start = scan.walk_end;
        }
        Ok(())
    }

    fn entries(&self, first: u64, end: u64) -> io::Result<Vec<u64>> {
        let mut bytes = vec![0; (end - first) as usize * 8];
        let read = self.0.read_at(&mut bytes, first * 8)?;
        let words = bytes[..read].chunks_exact(8);
        Ok(words
            .map(|word| u64::from_le_bytes(word.try_into().expect("eight bytes")))
            .collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pages of zeroes that nobody has touched.
    fn fresh(pages: usize) -> (*mut u8, u64) {
        let (rights, flags) = (
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
        );
        // SAFETY: a fresh mapping at an address that the kernel chooses; it stays.
        let at = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                pages * PAGE as usize,
                rights,
                flags,
                -1,
                0,
            )
        };
        assert_ne!(at, libc::MAP_FAILED);
        // SAFETY: the range was mapped above; small pages make the test say what it says.
        unsafe { libc::madvise(at, pages * PAGE as usize, libc::MADV_NOHUGEPAGE) };
        (at.cast(), at as u64 / PAGE)
    }

    #[test]
    fn what_is_there_of_a_vast_mapping_is_found_by_kind() {
        let pages = 1 << 28;
        let (at, page) = fresh(pages);
        let far = pages - 3;
        // SAFETY: all inside the mapping, which nothing else uses.
        unsafe {
            at.add(PAGE as usize).write_volatile(1);
            at.add(2 * PAGE as usize).read_volatile();
            at.add(far * PAGE as usize).write_volatile(1);
        }
        let map = PageMap::of("self").unwrap();
        let mut runs = Vec::new();
        map.each_run(page, page + pages as u64, &mut |run| runs.push(run))
            .unwrap();
        let run = |at: usize, kind| Run {
            first: page + at as u64,
            end: page + at as u64 + 1,
            kind,
        };
        let expected = [
            run(1, Kind::Anonymous),
            run(2, Kind::Zero),
            run(far, Kind::Anonymous),
        ];
        assert_eq!(runs, expected);
        let mut entries = Vec::new();
        map.each_present(page, page + 2, &mut |page, entry| {
            entries.push((page, entry))
        })
        .unwrap();
        assert_eq!(entries.len(), 1);
        assert!(entries[0].0 == page + 1 && entries[0].1.is_exclusive());
        // SAFETY: what `fresh` mapped, of which nothing is used any more.
        unsafe { libc::munmap(at.cast(), pages * PAGE as usize) };
    }
}
