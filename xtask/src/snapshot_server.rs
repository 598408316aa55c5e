//! A workload for recording: a forking server and a store with snapshots.
//!
//! Three families of processes run at once. *Clients* connect to the *server*,
//! which forks for each connection; the child works on memory that all share
//! and on memory of its own. The *store* keeps private data, writes to random
//! pages of it, and forks now and then: the child saves the pages as they were
//! at the fork while the parent goes on writing, so that every write breaks
//! copy-on-write. What each process does follows from the seed alone.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::ptr;

/// Sizes of the workload.
#[derive(clap::Args, Clone)]
pub struct Args {
    /// Connections that clients make in all
    #[arg(long, default_value_t = 8000)]
    connections: u32,
    /// Clients that connect at the same time
    #[arg(long, default_value_t = 6)]
    clients: u32,
    /// Snapshots that the store takes
    #[arg(long, default_value_t = 40)]
    snapshots: u32,
    /// Pages of private data in the store
    #[arg(long, default_value_t = 16384)]
    store_pages: usize,
    /// Pages of memory that all connections share
    #[arg(long, default_value_t = 4096)]
    shared_pages: usize,
    /// Seed of every choice
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

const PAGE: usize = 4096;
/// Page writes of the store between two snapshots.
const WRITES_PER_SNAPSHOT: u32 = 8000;

/// A reproducible random-number generator (SplitMix64).
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (word ^ (word >> 31)) as usize % limit
    }
}

/// Anonymous memory that is unmapped with the value.
struct Memory {
    base: *mut u8,
    pages: usize,
}

impl Memory {
    fn map(pages: usize, sharing: libc::c_int) -> io::Result<Memory> {
        // SAFETY: a fresh mapping at an address the kernel chooses.
        let base = unsafe {
            libc::mmap(
                ptr::null_mut(),
                pages * PAGE,
                libc::PROT_READ | libc::PROT_WRITE,
                sharing | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = base.cast();
        Ok(Memory { base, pages })
    }

    fn word(&self, page: usize) -> *mut u64 {
        assert!(page < self.pages);
        // SAFETY: the page is inside the mapping.
        unsafe { self.base.add(page * PAGE).cast() }
    }

    fn read(&self, page: usize) -> u64 {
        // SAFETY: mapped, aligned memory; any value is a valid integer. Other
        // processes may write it, which a volatile access allows for.
        unsafe { self.word(page).read_volatile() }
    }

    fn write(&self, page: usize, value: u64) {
        // SAFETY: as in `read`; no reference into the mapping exists.
        unsafe { self.word(page).write_volatile(value) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: exactly what `map` mapped.
        unsafe { libc::munmap(self.base.cast(), self.pages * PAGE) };
    }
}

/// Runs `body` in a child process. Returns the child's id.
fn fork(body: impl FnOnce() -> io::Result<()>) -> io::Result<libc::pid_t> {
    // SAFETY: the process has one thread, so the child may do anything.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            let code = i32::from(body().is_err());
            // SAFETY: ends the child without running the parent's destructors.
            unsafe { libc::_exit(code) }
        }
        child => Ok(child),
    }
}

/// Waits for a child, or with -1 for any, and checks that it succeeded.
fn wait(child: libc::pid_t) -> io::Result<()> {
    let mut status = 0;
    // SAFETY: the status outlives the call.
    if unsafe { libc::waitpid(child, &mut status, 0) } < 0 {
        return Err(io::Error::last_os_error());
    }
    match status {
        0 => Ok(()),
        status => Err(io::Error::other(format!(
            "a process ended with status {status:#x}"
        ))),
    }
}

/// Runs the workload.
pub fn run(args: &Args) -> Result<(), String> {
    let directory = std::env::temp_dir().join(format!("snapshot-server.{}", std::process::id()));
    fs::create_dir(&directory).map_err(|error| format!("{}: {error}", directory.display()))?;
    let done = run_in(args, &directory);
    let removed = fs::remove_dir_all(&directory);
    done.and(removed).map_err(|error| error.to_string())
}

fn run_in(args: &Args, directory: &Path) -> io::Result<()> {
    let socket = directory.join("socket");
    let listener = UnixListener::bind(&socket)?;
    let mut children = vec![fork(|| store(args, directory.join("snapshot")))?];
    for client in 0..args.clients {
        children.push(fork(|| connect_often(args, client, &socket))?);
    }
    serve(args, &listener)?;
    children.into_iter().try_for_each(wait)
}

/// How many connections a client makes.
fn share(args: &Args, client: u32) -> u32 {
    args.connections / args.clients + u32::from(client < args.connections % args.clients)
}

fn connect_often(args: &Args, client: u32, socket: &Path) -> io::Result<()> {
    let mut random = Random(args.seed ^ u64::from(client) << 32);
    for _ in 0..share(args, client) {
        let mut stream = UnixStream::connect(socket)?;
        stream.write_all(&(random.below(1 << 30) as u64).to_le_bytes())?;
        let mut reply = Vec::new();
        stream.read_to_end(&mut reply)?;
    }
    Ok(())
}

/// Accepts every connection and forks for it. At most as many children run as
/// there are clients.
fn serve(args: &Args, listener: &UnixListener) -> io::Result<()> {
    let shared = Memory::map(args.shared_pages, libc::MAP_SHARED)?;
    let mut running = Vec::new();
    for _ in 0..args.connections {
        let (stream, _) = listener.accept()?;
        running.push(fork(|| answer(stream, &shared))?);
        if running.len() > args.clients as usize {
            wait(running.remove(0))?;
        }
    }
    running.into_iter().try_for_each(wait)
}

/// One connection: work in shared and in private memory, then a reply.
fn answer(mut stream: UnixStream, shared: &Memory) -> io::Result<()> {
    let mut request = [0; 8];
    stream.read_exact(&mut request)?;
    let mut random = Random(u64::from_le_bytes(request));
    let mut sum = 0u64;
    let private = Memory::map(16 + random.below(160), libc::MAP_PRIVATE)?;
    for page in 0..private.pages {
        // Most requests touch shared memory near one place, as an index does.
        let place = random.below(shared.pages);
        let near = (place + random.below(8)) % shared.pages;
        sum = sum.wrapping_add(shared.read(near));
        if random.below(4) == 0 {
            shared.write(place, sum);
        }
        private.write(page, sum);
    }
    // SAFETY: a live mapping of this process; its contents are not needed.
    unsafe {
        libc::madvise(
            private.base.cast(),
            private.pages / 2 * PAGE,
            libc::MADV_DONTNEED,
        )
    };
    for page in 0..private.pages / 4 {
        sum = sum.wrapping_add(private.read(page));
    }
    stream.write_all(&sum.to_le_bytes())
}

/// Private data, written at random and saved by forked children.
fn store(args: &Args, path: PathBuf) -> io::Result<()> {
    let data = Memory::map(args.store_pages, libc::MAP_PRIVATE)?;
    let mut random = Random(args.seed ^ 0x5707e);
    for page in 0..data.pages {
        data.write(page, page as u64);
    }
    for number in 0..args.snapshots {
        let child = fork(|| save(&data, &path))?;
        for _ in 0..WRITES_PER_SNAPSHOT {
            // Half of the writes go to a tenth of the data.
            let hot = random.below(2) == 0;
            let range = if hot { data.pages / 10 } else { data.pages };
            data.write(random.below(range), u64::from(number));
        }
        wait(child)?;
    }
    Ok(())
}

/// Saves a part of each page, and a checksum that needs them all.
fn save(data: &Memory, path: &Path) -> io::Result<()> {
    let partial = path.with_extension("partial");
    let mut file = File::create(&partial)?;
    let mut buffer = Vec::with_capacity(data.pages * 64);
    let mut sum = 0u64;
    for page in 0..data.pages {
        let word = data.read(page);
        sum = sum.rotate_left(5) ^ word;
        buffer.extend_from_slice(&[word.to_le_bytes(), sum.to_le_bytes()].concat());
    }
    file.write_all(&buffer)?;
    fs::rename(partial, path)
}
