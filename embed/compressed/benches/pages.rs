//! What it takes to compress pages, and how small they become: `cargo bench -p vellum-compressed`.
//!
//! The pages are those of a running process, read from `/proc`: of the one that started this
//! program, Cargo, or of the one whose number is given (`-- PID`). They are sorted into those that
//! are zero, those that are another repeated word, other memory that the program can write, and
//! code and read-only data. Beside them are random bytes. The time is the least of several rounds
//! over all pages of a kind. Below it stands how the sizes are spread: of ten pages, what the
//! first, the second, and so on take at most.

use std::fs::{self, File};
use std::hint::black_box;
use std::os::unix::fs::FileExt;
use std::sync::Mutex;
use std::time::Instant;

use vellum_compressed::{Exclusive, Loaded, Nowhere, Pool, Scratch, Store};

const PAGE: usize = 4096;
/// Most pages of a kind.
const PAGES: usize = 2000;
const ROUNDS: usize = 7;

type Page = [u8; PAGE];

struct Lock(Mutex<Pool<Vec<u8>>>);

impl Exclusive<Pool<Vec<u8>>> for Lock {
    fn new(pool: Pool<Vec<u8>>) -> Self {
        Lock(Mutex::new(pool))
    }

    fn with<R>(&self, work: impl FnOnce(&mut Pool<Vec<u8>>) -> R) -> R {
        work(&mut self.0.lock().expect("nobody panics"))
    }
}

struct Kind {
    name: &'static str,
    pages: Vec<Page>,
}

fn is_repeated(page: &Page) -> bool {
    page[8..] == page[..PAGE - 8]
}

/// Sorts the pages of a process.
fn pages_of(pid: u32) -> std::io::Result<Vec<Kind>> {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps"))?;
    let memory = File::open(format!("/proc/{pid}/mem"))?;
    let mut kinds = ["zero", "one word", "written", "code"].map(|name| Kind {
        name,
        pages: Vec::new(),
    });
    for line in maps.lines() {
        let mut fields = line.split_whitespace();
        let (Some(range), Some(rights)) = (fields.next(), fields.next()) else {
            continue;
        };
        let Some((start, end)) = range.split_once('-') else {
            continue;
        };
        let number = |text| u64::from_str_radix(text, 16).unwrap_or(0);
        for address in (number(start)..number(end)).step_by(PAGE) {
            let mut page = [0; PAGE];
            if !rights.starts_with('r') || memory.read_exact_at(&mut page, address).is_err() {
                break;
            }
            let kind = match (rights.as_bytes()[1] == b'w', is_repeated(&page)) {
                (true, true) if page == [0; PAGE] => 0,
                (true, true) => 1,
                (true, false) => 2,
                (false, _) => 3,
            };
            kinds[kind].pages.push(page);
        }
    }
    Ok(kinds.into())
}

/// So many of them, from everywhere.
fn thinned(mut pages: Vec<Page>) -> Vec<Page> {
    let step = pages.len().div_ceil(PAGES).max(1);
    let mut at = 0;
    pages.retain(|_| {
        at += 1;
        (at - 1) % step == 0
    });
    pages
}

fn random_pages() -> Vec<Page> {
    let mut state = 0x1234_5678_9abc_def0_u64;
    let mut page = || {
        let mut page = [0; PAGE];
        for bytes in page.chunks_exact_mut(8) {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            bytes.copy_from_slice(&state.to_le_bytes());
        }
        page
    };
    (0..500).map(|_| page()).collect()
}

/// Nanoseconds for one of `pages` that `work` takes at least.
fn least(pages: &[Page], mut work: impl FnMut(usize, &Page)) -> f64 {
    let round = |_| {
        let start = Instant::now();
        (0..).zip(pages).for_each(|(slot, page)| work(slot, page));
        start.elapsed().as_nanos() as f64
    };
    (0..ROUNDS).map(round).fold(f64::INFINITY, f64::min) / pages.len() as f64
}

/// A compressor: into a buffer, and back. Both return the bytes.
struct Codec<'c> {
    pack: &'c mut dyn FnMut(&Page, &mut [u8]) -> usize,
    unpack: &'c mut dyn FnMut(&[u8], &mut [u8]) -> usize,
}

/// Times for one page, and bytes that it takes.
fn measure(pages: &[Page], codec: &mut Codec<'_>) -> (f64, f64, f64) {
    let mut buffer = vec![0; 2 * PAGE];
    let packing = least(pages, |_, page| {
        black_box((codec.pack)(page, &mut buffer));
    });
    let mut packed = Vec::new();
    for page in pages {
        let len = (codec.pack)(page, &mut buffer);
        packed.push(buffer[..len].to_vec());
    }
    let mut back = [0; PAGE];
    let unpacking = least(pages, |slot, _| {
        black_box((codec.unpack)(&packed[slot], &mut back));
    });
    for (page, packed) in pages.iter().zip(&packed) {
        assert_eq!((codec.unpack)(packed, &mut back), PAGE);
        assert!(&back == page, "a page came back changed");
    }
    let bytes: usize = packed.iter().map(|bytes| bytes.len().min(PAGE)).sum();
    (packing, unpacking, bytes as f64 / pages.len() as f64)
}

/// The same of the whole store: its search for repeated words, its copies and its rounding.
fn measure_store(pages: &[Page]) -> (f64, f64, f64) {
    let bytes = pages.len() * (PAGE + 512) + (64 << 10);
    let slots = pages.len() as u64;
    let store: Store<Lock, Vec<u8>, Nowhere> =
        Store::new(vec![0; bytes], PAGE, slots, None).expect("sizes");
    let mut scratch = Scratch::new(PAGE);
    let putting = least(pages, |slot, page| {
        let put = store.put(slot as u64, page, &mut scratch);
        put.expect("room for all pages");
    });
    let getting = least(pages, |slot, _| {
        black_box(store.get(slot as u64, &mut scratch)).expect("it is there");
    });
    for (slot, page) in (0..).zip(pages) {
        match store.get(slot, &mut scratch) {
            Ok(Loaded::Page(found)) => assert!(found == page, "a page came back changed"),
            Ok(Loaded::Same(word)) => assert!(is_repeated(page) && page[..8] == word.to_le_bytes()),
            other => panic!("page {slot}: {other:?}"),
        }
    }
    let used = store.stats().page_bytes as f64;
    (putting, getting, used / pages.len() as f64)
}

/// What nine in ten pages take at most, eight in ten, and so on, from the least.
fn deciles(pages: &[Page]) -> Vec<usize> {
    let mut scratch = Scratch::new(PAGE);
    let packed = |page: &Page| scratch.compress(page).expect("room").min(PAGE);
    let mut sizes: Vec<usize> = pages.iter().map(packed).collect();
    sizes.sort_unstable();
    (1..10)
        .map(|tenth| sizes[sizes.len() * tenth / 10])
        .collect()
}

fn row(kind: &Kind, name: &str, (packing, unpacking, bytes): (f64, f64, f64)) {
    println!(
        "{:<10} {:>6}  {name:<22} {packing:>9.0} {unpacking:>9.0} {bytes:>7.0}  {:>6.3}",
        kind.name,
        kind.pages.len(),
        bytes / PAGE as f64
    );
}

fn main() {
    let arguments = std::env::args().skip(1);
    let mut numbers = arguments.filter_map(|argument| argument.parse().ok());
    let pid = numbers
        .next()
        .unwrap_or(std::os::unix::process::parent_id());
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    let mut kinds = match pages_of(pid) {
        Ok(kinds) => kinds,
        Err(error) => {
            eprintln!("the memory of process {pid} cannot be read: {error}");
            std::process::exit(1);
        }
    };
    println!("pages of process {pid}, {}", name.trim());
    kinds.push(Kind {
        name: "random",
        pages: random_pages(),
    });
    println!(
        "{:<10} {:>6}  {:<22} {:>9} {:>9} {:>7}  {:>6}",
        "kind", "pages", "", "in ns", "out ns", "bytes", "ratio"
    );
    for mut kind in kinds {
        let found = kind.pages.len();
        kind.pages = thinned(kind.pages);
        if kind.pages.is_empty() {
            println!("{:<10} {found:>6}", kind.name);
            continue;
        }
        row(&kind, "the store", measure_store(&kind.pages));
        println!("{:18} sizes {:?}", "", deciles(&kind.pages));
        let mut table = lz4_flex::block::CompressTable::small();
        let lz4 = measure(
            &kind.pages,
            &mut Codec {
                pack: &mut |page, buffer| {
                    lz4_flex::block::compress_into_with_table(page, buffer, &mut table)
                        .expect("room")
                },
                unpack: &mut |packed, page| {
                    lz4_flex::block::decompress_into(packed, page).expect("what was packed")
                },
            },
        );
        row(&kind, "lz4_flex", lz4);
        let mut packer = zstd::bulk::Compressor::new(1).expect("memory");
        let mut unpacker = zstd::bulk::Decompressor::new().expect("memory");
        let zstd = measure(
            &kind.pages,
            &mut Codec {
                pack: &mut |page, buffer| packer.compress_to_buffer(page, buffer).expect("room"),
                unpack: &mut |packed, page| {
                    unpacker
                        .decompress_to_buffer(packed, page)
                        .expect("what was packed")
                },
            },
        );
        row(&kind, "zstd 1 (C)", zstd);
        let deflate = measure(
            &kind.pages,
            &mut Codec {
                pack: &mut |page, buffer| {
                    let packed = miniz_oxide::deflate::compress_to_vec(page, 1);
                    buffer[..packed.len()].copy_from_slice(&packed);
                    packed.len()
                },
                unpack: &mut |packed, page| {
                    miniz_oxide::inflate::decompress_slice_iter_to_slice(
                        page,
                        std::iter::once(packed),
                        false,
                        true,
                    )
                    .expect("what was packed")
                },
            },
        );
        row(&kind, "miniz_oxide 1", deflate);
    }
}
