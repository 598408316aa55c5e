//! Accessed marks as the kernel shows them.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::FileExt;

use crate::page_map::{PAGE, PageMap};
use vellum_trace::AccessMarks;

const BITMAP: &str = "/sys/kernel/mm/page_idle/bitmap";
/// Regions that a program does not store in, and that a trace has no pages of.
const SPECIAL: [&str; 3] = ["[vvar]", "[vvar_vclock]", "[vsyscall]"];

/// The way to see accessed marks and to take them.
pub enum Marks {
    /// The idle bits of frames (`/sys/kernel/mm/page_idle`): of each page. A frame that several
    /// processes map counts for all of them.
    Idle(File),
    /// `/proc/PID/clear_refs` and `smaps`: of how many pages of each region.
    Referenced,
}

/// A region as `smaps` shows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Region {
    /// Pages, the end excluded.
    first: u64,
    end: u64,
    resident: u64,
    used: u64,
}

impl Marks {
    /// The better of the ways that this kernel offers to this user.
    ///
    /// # Errors
    /// There is none; the text says what each needs.
    pub fn find() -> Result<Marks, String> {
        let idle = match idle_bits() {
            Ok(bitmap) => return Ok(Marks::Idle(bitmap)),
            Err(why) => why,
        };
        match referenced() {
            Ok(()) => Ok(Marks::Referenced),
            Err(why) => Err(format!("{idle}; {why}")),
        }
    }

    /// What they tell of.
    pub fn tell(&self) -> AccessMarks {
        match self {
            Marks::Idle(_) => AccessMarks::Pages,
            Marks::Referenced => AccessMarks::Regions,
        }
    }

    /// Takes the marks of these processes and gives the runs of pages of each that has any.
    /// Processes that have ended are passed over.
    pub fn take(&self, processes: &[u32], give: &mut dyn FnMut(u32, Vec<(u64, u64)>)) {
        let mut idle = Idle::default();
        for &pid in processes {
            let runs = match self {
                Marks::Idle(bitmap) => idle.used(pid, bitmap),
                Marks::Referenced => take_referenced(pid),
            };
            match runs {
                Ok(runs) if !runs.is_empty() => give(pid, runs),
                _ => {}
            }
        }
        if let Marks::Idle(bitmap) = self {
            idle.mark(bitmap);
        }
    }
}

/// The bitmap of idle bits, if frames can be looked up, too.
fn idle_bits() -> Result<File, String> {
    let bitmap = OpenOptions::new().read(true).write(true).open(BITMAP);
    let bitmap = bitmap.map_err(|error| {
        format!("{BITMAP}: {error} (it takes root and a kernel with CONFIG_IDLE_PAGE_TRACKING)")
    })?;
    let here = 0u64;
    let page = &raw const here as u64 / PAGE;
    let mut frame = 0;
    PageMap::of("self")
        .and_then(|map| map.each_present(page, page + 1, &mut |_, entry| frame = entry.frame()))
        .map_err(|error| format!("pagemap: {error}"))?;
    match frame {
        0 => Err("/proc/PID/pagemap hides frames (that takes CAP_SYS_ADMIN)".to_owned()),
        _ => Ok(bitmap),
    }
}

/// Whether the marks of regions can be taken and are shown.
fn referenced() -> Result<(), String> {
    let needs = "it takes a kernel with CONFIG_PROC_PAGE_MONITOR";
    fs::write("/proc/self/clear_refs", "1")
        .map_err(|error| format!("/proc/PID/clear_refs: {error} ({needs})"))?;
    let text = fs::read_to_string("/proc/self/smaps")
        .map_err(|error| format!("/proc/PID/smaps: {error} ({needs})"))?;
    match text.contains("\nReferenced:") {
        true => Ok(()),
        false => Err("/proc/PID/smaps does not say what is referenced".to_owned()),
    }
}

/// Takes the marks of a process by region.
fn take_referenced(pid: u32) -> io::Result<Vec<(u64, u64)>> {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps"))?;
    let map = PageMap::of(pid)?;
    let mut runs = Vec::new();
    for region in regions(&text).iter().filter(|region| region.used > 0) {
        let mut left = region.used;
        map.each_present(region.first, region.end, &mut |page, _| {
            if left > 0 {
                left -= 1;
                add(&mut runs, page);
            }
        })?;
    }
    fs::write(format!("/proc/{pid}/clear_refs"), "1")?;
    Ok(runs)
}

/// The regions of the text of `smaps`.
fn regions(text: &str) -> Vec<Region> {
    let mut regions: Vec<Region> = Vec::new();
    let mut is_special = false;
    for line in text.lines() {
        if let Some((first, end, name)) = range(line) {
            is_special = SPECIAL.contains(&name);
            if !is_special {
                regions.push(Region {
                    first,
                    end,
                    resident: 0,
                    used: 0,
                });
            }
            continue;
        }
        let Some(region) = regions.last_mut().filter(|_| !is_special) else {
            continue;
        };
        let pages = |rest: &str| {
            let kib: u64 = rest.trim().strip_suffix(" kB")?.parse().ok()?;
            Some(kib * 1024 / PAGE)
        };
        if let Some(count) = line.strip_prefix("Rss:").and_then(pages) {
            region.resident = count;
        }
        if let Some(count) = line.strip_prefix("Referenced:").and_then(pages) {
            region.used = count.min(region.resident);
        }
    }
    regions
}

/// The pages and the name of a region, if the line begins one.
fn range(line: &str) -> Option<(u64, u64, &str)> {
    let mut words = line.split_ascii_whitespace();
    let (first, end) = words.next()?.split_once('-')?;
    let page = |text| u64::from_str_radix(text, 16).ok().map(|at| at / PAGE);
    Some((page(first)?, page(end)?, words.nth(4).unwrap_or("")))
}

/// Adds a page to runs of pages.
fn add(runs: &mut Vec<(u64, u64)>, page: u64) {
    match runs.last_mut() {
        Some((first, count)) if *first + *count == page => *count += 1,
        _ => runs.push((page, 1)),
    }
}

/// Idle bits of frames, a word for 64 of them.
#[derive(Default)]
struct Idle {
    /// Words that were read in this sample.
    words: BTreeMap<u64, u64>,
    /// Frames that were looked at, to be marked idle at its end.
    seen: BTreeMap<u64, u64>,
}

impl Idle {
    /// The runs of pages of a process that are not idle.
    fn used(&mut self, pid: u32, bitmap: &File) -> io::Result<Vec<(u64, u64)>> {
        let mut text = String::new();
        File::open(format!("/proc/{pid}/maps"))?.read_to_string(&mut text)?;
        let map = PageMap::of(pid)?;
        let mut runs = Vec::new();
        let ranges = text.lines().filter_map(range);
        for (first, end, _) in ranges.filter(|(_, _, name)| !SPECIAL.contains(name)) {
            map.each_present(first, end, &mut |page, entry| {
                // What is no page that can be aged reads as not idle and is never marked.
                if self.is_used(entry.frame(), |word| read_word(bitmap, word)) {
                    add(&mut runs, page);
                }
            })?;
        }
        Ok(runs)
    }

    fn is_used(&mut self, frame: u64, read: impl FnOnce(u64) -> u64) -> bool {
        let (word, bit) = (frame / 64, 1 << (frame % 64));
        *self.seen.entry(word).or_default() |= bit;
        let bits = *self.words.entry(word).or_insert_with(|| read(word));
        bits & bit == 0
    }

    fn mark(&self, bitmap: &File) {
        for (word, bits) in &self.seen {
            // A frame that cannot be marked counts as used the next time.
            let _ = bitmap.write_at(&bits.to_ne_bytes(), word * 8);
        }
    }
}

/// The idle bits of 64 frames; none where there are no such frames.
fn read_word(bitmap: &File, word: u64) -> u64 {
    let mut bytes = [0; 8];
    match bitmap.read_at(&mut bytes, word * 8) {
        Ok(8) => u64::from_ne_bytes(bytes),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMAPS: &str = "\
55d0c0000000-55d0c0004000 r-xp 00002000 fe:00 123                        /bin/a b
Size:                 16 kB
Rss:                  12 kB
Referenced:            8 kB
Anonymous:             0 kB
7ffd00000000-7ffd00002000 r--p 00000000 00:00 0                          [vvar]
Rss:                   8 kB
Referenced:            8 kB
7ffd10000000-7ffd10001000 rw-p 00000000 00:00 0
Rss:                   4 kB
Referenced:           64 kB
";

    #[test]
    fn regions_of_smaps_have_what_is_resident_and_used() {
        let region = |first, end, resident, used| Region {
            first,
            end,
            resident,
            used,
        };
        let expected = [
            region(0x55d0_c0000, 0x55d0_c0004, 3, 2),
            region(0x7ffd_10000, 0x7ffd_10001, 1, 1),
        ];
        assert_eq!(regions(SMAPS), expected);
        assert!(regions("").is_empty());
    }

    #[test]
    fn pages_that_follow_one_another_are_a_run() {
        let mut runs = Vec::new();
        [3, 4, 5, 9, 11, 12]
            .into_iter()
            .for_each(|page| add(&mut runs, page));
        assert_eq!(runs, [(3, 3), (9, 1), (11, 2)]);
    }

    #[test]
    fn a_frame_is_used_unless_its_bit_says_idle_and_is_marked_once_for_all_processes() {
        let mut idle = Idle::default();
        let mut reads = 0;
        let bits = |word: u64| if word == 2 { 1 << 3 } else { 0 };
        for (frame, used) in [(131, false), (132, true), (131, false), (5, true)] {
            let found = idle.is_used(frame, |word| {
                reads += 1;
                bits(word)
            });
            assert_eq!(found, used, "frame {frame}");
        }
        assert_eq!(reads, 2, "a word is read once in a sample");
        assert_eq!(
            idle.seen,
            BTreeMap::from([(0, 1 << 5), (2, 1 << 3 | 1 << 4)])
        );
    }
}
