//! Several buffers as one row of bytes.

use super::parts::{FilePart, Filling};
use crate::platform::Platform;

/// Bytes in all of them, as many as a call can count.
fn total(lengths: impl Iterator<Item = usize>) -> usize {
    lengths
        .fold(0, |sum: usize, length| sum.saturating_add(length))
        .min(isize::MAX as usize)
}

/// Where byte `at` of the row lies: which buffer, and which of its bytes. The search
/// begins at the buffer found last.
#[derive(Default)]
struct Position {
    buffer: usize,
    /// Bytes before that buffer.
    before: usize,
}

impl Position {
    fn find(&mut self, at: usize, length: impl Fn(usize) -> usize) -> usize {
        if at < self.before {
            *self = Position::default();
        }
        while at - self.before >= length(self.buffer) {
            self.before += length(self.buffer);
            self.buffer += 1;
        }
        at - self.before
    }
}

/// Buffers that bytes are put into.
pub(super) struct Sinks<'a, 'b> {
    buffers: &'a mut [&'b mut [u8]],
    position: Position,
}

impl<'a, 'b> Sinks<'a, 'b> {
    pub fn new(buffers: &'a mut [&'b mut [u8]]) -> Self {
        Sinks {
            buffers,
            position: Position::default(),
        }
    }

    pub fn total(&self) -> usize {
        total(self.buffers.iter().map(|buffer| buffer.len()))
    }

    /// Takes all of `part` to byte `at` of the row, where there is room for it.
    // Always: two loops read with it, and in that of runs a call would be felt.
    #[inline(always)]
    pub fn take<P: Platform>(&mut self, at: usize, part: &FilePart<'_, P>) -> usize {
        let mut done = 0;
        while done < part.len() {
            let from = self
                .position
                .find(at + done, |buffer| self.buffers[buffer].len());
            let buffer = &mut self.buffers[self.position.buffer];
            done += part.read(done, &mut buffer[from..]);
        }
        done
    }
}

/// Buffers that bytes are taken from.
pub(in crate::space) struct Sources<'a, 'b> {
    buffers: &'a [&'b [u8]],
    position: Position,
}

impl<'a, 'b> Sources<'a, 'b> {
    pub fn new(buffers: &'a [&'b [u8]]) -> Self {
        Sources {
            buffers,
            position: Position::default(),
        }
    }

    pub fn total(&self) -> usize {
        total(self.buffers.iter().map(|buffer| buffer.len()))
    }

    /// Fills all of `filling` from byte `at` of the row on, where there is as much.
    pub fn give<P: Platform>(&mut self, mut at: usize, filling: &mut Filling<'_, P>) {
        while filling.room() > 0 {
            let from = self.position.find(at, |buffer| self.buffers[buffer].len());
            at += filling.put(&self.buffers[self.position.buffer][from..]);
        }
    }
}
