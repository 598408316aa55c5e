//! What one process of the host does: system calls on what it has, between `fork` and `_exit`.
//! Nothing here takes a lock or allocates.

use std::ffi::CString;
use std::io;
use std::os::fd::RawFd;

use vellum_engine::Access;

/// Mappings that a process may have.
const MAPPINGS: usize = 4;

/// Bytes of a call that reads or writes a file, at the most.
const BUFFER: usize = 64 << 10;

/// What a system call failed with.
pub type Refused = i32;

/// Why the last call failed.
pub fn error() -> Refused {
    io::Error::last_os_error()
        .raw_os_error()
        .unwrap_or(libc::EIO)
}

/// A result, or why the call failed.
pub fn checked(result: i64) -> Result<i64, Refused> {
    if result < 0 { Err(error()) } else { Ok(result) }
}

/// The process enters the group, and ends with the one that forked it.
pub fn enter(entrance: RawFd) -> Result<(), Refused> {
    // SAFETY: takes integers. Children that end need not be waited for.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_IGN) };
    end_with_parent()?;
    // SAFETY: the text is as long as stated.
    checked(unsafe { libc::write(entrance, c"0".as_ptr().cast(), 1) } as i64)?;
    Ok(())
}

/// Has the process end with the one that forked it.
pub fn end_with_parent() -> Result<(), Refused> {
    // SAFETY: takes integers.
    checked(unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0) }.into())?;
    Ok(())
}

/// Nanoseconds on a clock.
pub fn now(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the struct outlives the call, which cannot fail for the clocks asked for.
    unsafe { libc::clock_gettime(clock, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// The memory of a process: what it has mapped, and where data of files comes from and goes to.
pub struct Process {
    mapped: [(usize, usize); MAPPINGS],
    buffer: [u8; BUFFER],
}

/// An open file that is closed again.
struct Opened(RawFd);

impl Opened {
    fn new(path: &CString, flags: i32) -> Result<Opened, Refused> {
        // SAFETY: the path ends in a zero byte and outlives the call.
        let file = unsafe { libc::open(path.as_ptr(), flags | libc::O_CLOEXEC) };
        checked(file.into()).map(|_| Opened(file))
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        // SAFETY: a descriptor of this value alone.
        unsafe { libc::close(self.0) };
    }
}

impl Process {
    /// One that has mapped nothing.
    pub fn new() -> Process {
        Process {
            mapped: [(0, 0); MAPPINGS],
            buffer: [7; BUFFER],
        }
    }

    /// Maps private memory, or a file, at a place.
    pub fn map(
        &mut self,
        (at, bytes): (usize, usize),
        file: Option<&CString>,
    ) -> Result<(), Refused> {
        let free = self.mapped.iter_mut().find(|mapped| mapped.1 == 0);
        let place = free.ok_or(libc::ENOMEM)?;
        let opened = file
            .map(|path| Opened::new(path, libc::O_RDWR))
            .transpose()?;
        let (sharing, fd) = match &opened {
            Some(opened) => (libc::MAP_SHARED, opened.0),
            None => (
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
            ),
        };
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        let flags = sharing | libc::MAP_FIXED_NOREPLACE;
        // SAFETY: a new mapping; the kernel refuses a place where something is.
        let start = unsafe { libc::mmap(at as *mut _, bytes, rights, flags, fd, 0) };
        if start == libc::MAP_FAILED {
            return Err(error());
        }
        *place = (start as usize, bytes);
        if start as usize != at {
            // A kernel that does not know the flag takes the place for a wish.
            return Err(libc::EEXIST);
        }
        // A kernel without large pages refuses, which is as well.
        // SAFETY: advice on the mapping made above, which changes no byte.
        unsafe { libc::madvise(start, bytes, libc::MADV_NOHUGEPAGE) };
        Ok(())
    }

    /// Unmaps all that it has mapped.
    pub fn unmap(&mut self) -> Result<(), Refused> {
        for (at, bytes) in &mut self.mapped {
            if *bytes > 0 {
                // SAFETY: exactly what was mapped; nothing refers to it.
                checked(unsafe { libc::munmap(*at as *mut _, *bytes) }.into())?;
                *bytes = 0;
            }
        }
        Ok(())
    }

    /// The first word of each page; what is stored is the number of the page.
    pub fn access(
        &self,
        (at, bytes): (usize, usize),
        page_bytes: usize,
        access: Access,
        page: u64,
    ) -> Result<(), Refused> {
        let end = at.checked_add(bytes).ok_or(libc::EFAULT)?;
        let holds = |&(start, length): &(usize, usize)| start <= at && end <= start + length;
        if !self.mapped.iter().any(holds) {
            return Err(libc::EFAULT);
        }
        for (number, address) in (page..).zip((at..end).step_by(page_bytes)) {
            let word = address as *mut u64;
            match access {
                // SAFETY: the word lies in a mapping of this process, whose rights allow it;
                // no reference to it exists.
                Access::Write => unsafe { word.write_volatile(number) },
                // SAFETY: as above.
                Access::Read | Access::Execute => unsafe {
                    word.read_volatile();
                },
            }
        }
        Ok(())
    }

    /// Reads a file from its beginning to its end.
    pub fn read_through(&mut self, path: &CString, block: usize) -> Result<(), Refused> {
        let file = Opened::new(path, libc::O_RDONLY)?;
        let block = block.min(BUFFER);
        loop {
            let buffer = self.buffer.as_mut_ptr().cast();
            // SAFETY: the buffer has at least so many bytes.
            match checked(unsafe { libc::read(file.0, buffer, block) } as i64)? {
                0 => return Ok(()),
                _ => continue,
            }
        }
    }

    /// Writes bytes of a file.
    pub fn write(
        &mut self,
        path: &CString,
        at: u64,
        block: usize,
        bytes: u64,
    ) -> Result<(), Refused> {
        let file = Opened::new(path, libc::O_WRONLY)?;
        let mut done = 0;
        while done < bytes {
            let count = (bytes - done).min(block.min(BUFFER) as u64) as usize;
            let place = i64::try_from(at + done).map_err(|_| libc::EFBIG)?;
            let buffer = self.buffer.as_ptr().cast();
            // SAFETY: the buffer has at least so many bytes.
            let written = unsafe { libc::pwrite(file.0, buffer, count, place) };
            done += checked(written as i64)? as u64;
        }
        Ok(())
    }
}
