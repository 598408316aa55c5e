//! Lines of text from anywhere, whatever the bytes are.

use std::cell::Cell;
use std::io::{self, BufRead, Read};
use std::rc::Rc;

use crate::packed::{Counted, Packing};

/// Longer lines are cut here.
pub const LONGEST: usize = 1 << 16;

/// An input with a name for messages.
pub struct Input {
    /// How messages call it.
    pub name: String,
    reader: Box<dyn BufRead>,
    line: u64,
    bytes: u64,
    /// Bytes taken from what is packed.
    packed: Option<Rc<Cell<u64>>>,
    buffer: Vec<u8>,
}

impl Input {
    /// Reads `reader`, which messages call `name`.
    pub fn new(name: impl Into<String>, reader: Box<dyn BufRead>) -> Self {
        Input {
            name: name.into(),
            reader,
            line: 0,
            bytes: 0,
            packed: None,
            buffer: Vec::new(),
        }
    }

    /// From now on what comes is unpacked, if its beginning shows that it is packed.
    ///
    /// # Errors
    /// The input cannot be read.
    pub(crate) fn unpack(&mut self) -> io::Result<Option<Packing>> {
        let packing = Packing::of(&self.head(4)?);
        if let Some(packing) = packing {
            let (counted, taken) = Counted::new(self.take_reader());
            self.packed = Some(taken);
            self.reader = packing.unpack(Box::new(counted))?;
        }
        Ok(packing)
    }

    /// All that is left.
    pub(crate) fn reader(&mut self) -> &mut dyn BufRead {
        &mut self.reader
    }

    fn take_reader(&mut self) -> Box<dyn BufRead> {
        std::mem::replace(&mut self.reader, Box::new(io::empty()))
    }

    /// The first bytes, at most `most`, which stay to be read.
    ///
    /// # Errors
    /// The input cannot be read.
    pub fn head(&mut self, most: usize) -> io::Result<Vec<u8>> {
        let mut head = Vec::new();
        let mut reader = self.take_reader();
        let result = reader.by_ref().take(most as u64).read_to_end(&mut head);
        self.reader = Box::new(io::Cursor::new(head.clone()).chain(reader));
        result.map(|_| head)
    }

    /// The next line without its end; cut after 65536 bytes, which the
    /// flag tells. Bytes that are not UTF-8 become U+FFFD.
    ///
    /// # Errors
    /// The input cannot be read.
    pub fn next_line(&mut self) -> io::Result<Option<(String, bool)>> {
        self.buffer.clear();
        let limit = LONGEST as u64 + 1;
        let mut length = (&mut self.reader)
            .take(limit)
            .read_until(b'\n', &mut self.buffer)?;
        if length == 0 {
            return Ok(None);
        }
        self.line += 1;
        let whole = self.buffer.last() == Some(&b'\n') || length < limit as usize;
        if !whole {
            length += self.pass_rest_of_line()?;
        }
        self.bytes += length as u64;
        while matches!(self.buffer.last(), Some(b'\n' | b'\r')) {
            self.buffer.pop();
        }
        let text = String::from_utf8_lossy(&self.buffer).into_owned();
        Ok(Some((text, !whole)))
    }

    /// Fills the buffer as far as the input goes; returns how far.
    ///
    /// # Errors
    /// The input cannot be read.
    pub(crate) fn next_bytes(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut filled = 0;
        while filled < buffer.len() {
            match self.reader.read(&mut buffer[filled..]) {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.bytes += filled as u64;
        Ok(filled)
    }

    fn pass_rest_of_line(&mut self) -> io::Result<usize> {
        let mut passed = 0;
        loop {
            let chunk = self.reader.fill_buf()?;
            let end = chunk.iter().position(|byte| *byte == b'\n');
            let used = end.map_or(chunk.len(), |end| end + 1);
            self.reader.consume(used);
            passed += used;
            if end.is_some() || used == 0 {
                return Ok(passed);
            }
        }
    }

    /// Number of the line read last, from 1.
    pub fn line(&self) -> u64 {
        self.line
    }

    /// Bytes read so far, of what is packed if it is.
    pub fn bytes(&self) -> u64 {
        self.packed.as_ref().map_or(self.bytes, |taken| taken.get())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn input(bytes: &[u8]) -> Input {
        Input::new("test", Box::new(io::Cursor::new(bytes.to_vec())))
    }

    #[test]
    fn lines_come_without_their_ends_and_the_head_stays_to_be_read() {
        let mut input = input(b"one\r\ntwo\n\nfour \xff");
        assert_eq!(input.head(5).unwrap(), b"one\r\n");
        let mut lines = Vec::new();
        while let Some((line, cut)) = input.next_line().unwrap() {
            assert!(!cut);
            lines.push(line);
        }
        assert_eq!(lines, ["one", "two", "", "four \u{fffd}"]);
        assert_eq!((input.line(), input.bytes()), (4, 16));
    }

    #[test]
    fn a_line_without_end_is_cut_not_kept() {
        let mut bytes = vec![b'x'; 3 * LONGEST];
        bytes.extend(b"\nnext\n");
        let mut input = input(&bytes);
        let (line, cut) = input.next_line().unwrap().unwrap();
        assert!(cut && line.len() <= LONGEST + 1);
        assert_eq!(input.next_line().unwrap(), Some(("next".to_owned(), false)));
        assert_eq!(input.next_line().unwrap(), None);
    }
}
