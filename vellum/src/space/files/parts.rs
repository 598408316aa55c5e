//! What is read and written of a file at once, and how bytes and pages of it are counted.

use crate::platform::Platform;
use crate::space::state::page::PageBytes;

/// Bytes of an object that are being read, all of one page.
///
/// Tasks that map the page may store to it at the same time: each aligned word is
/// then as it was before or after.
pub struct FilePart<'a, P: Platform> {
    pub(in crate::space) page: Option<PageBytes<'a, P>>,
    pub(in crate::space) start: usize,
    pub(in crate::space) len: usize,
}

impl<P: Platform> FilePart<'_, P> {
    /// Number of bytes; not 0.
    #[expect(clippy::len_without_is_empty, reason = "it never is")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether no page is there, so that all bytes are zero.
    pub fn is_hole(&self) -> bool {
        self.page.is_none()
    }

    /// Copies bytes from the `from`th on to `to`, as many as there are. Returns how
    /// many.
    pub fn read(&self, from: usize, to: &mut [u8]) -> usize {
        let count = to.len().min(self.len.saturating_sub(from));
        match &self.page {
            Some(page) => page.read(self.start + from, &mut to[..count]),
            None => {
                to[..count].fill(0);
                count
            }
        }
    }
}

/// Bytes of an object that are being written, all of one page: they are put there
/// from the first on, and what is not put keeps its old value.
pub struct Filling<'a, P: Platform> {
    pub(in crate::space) page: PageBytes<'a, P>,
    pub(in crate::space) next: usize,
    pub(in crate::space) end: usize,
}

impl<P: Platform> Filling<'_, P> {
    /// Bytes that may still be put.
    pub fn room(&self) -> usize {
        self.end - self.next
    }

    /// Puts bytes, as many as there is room for. Returns how many.
    pub fn put(&mut self, bytes: &[u8]) -> usize {
        let count = bytes.len().min(self.room());
        self.page.write(self.next, &bytes[..count]);
        self.next += count;
        count
    }

    /// Puts zeroes, as many as there is room for. Returns how many.
    pub fn put_zeroes(&mut self, count: usize) -> usize {
        let count = count.min(self.room());
        self.page.zero(self.next..self.next + count);
        self.next += count;
        count
    }
}
