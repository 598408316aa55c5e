//! Calls that no trace holds: accesses of programs, files by bytes, and frames.

use std::cell::RefCell;
use std::sync::atomic::Ordering;

use vellum::addr::Vpn;
use vellum::frame::{OutOfMemory, Request, Site};
use vellum::rmap::ReverseMap;
use vellum::space::{File, FileRequest, ReadRequest, WriteRequest};
use vellum::table::Format;
use vellum_machine::Machine;

use crate::core_engine::CoreEngine;
use crate::executor::{DONE, Executed, file_error};
use crate::op::{Call, FileSlot, OpError};

/// The largest buffer.
const MOST_BLOCK: u64 = 1 << 28;

thread_local! {
    /// Where data comes from and goes to, as in a program that uses one buffer.
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Calls `each` with the buffer's first `block` bytes.
fn with_buffer(block: u64, each: impl FnOnce(&mut [u8]) -> Executed) -> Executed {
    if !(1..=MOST_BLOCK).contains(&block) {
        return Err(OpError::Invalid);
    }
    let len = block as usize;
    BUFFER.with_borrow_mut(|buffer| {
        if buffer.len() < len {
            buffer.resize(len, 7);
        }
        each(&mut buffer[..len])
    })
}

/// Calls `each` for one block after the other, with its place and the buffer; it moves
/// all bytes of the block or fails.
fn blocks(
    (at, block, bytes): (u64, u64, u64),
    mut each: impl FnMut(u64, &mut [u8]) -> Result<usize, OpError>,
) -> Executed {
    with_buffer(block, |buffer| {
        let mut done = 0;
        while done < bytes {
            let wanted = block.min(bytes - done) as usize;
            let place = at.checked_add(done).ok_or(OpError::Invalid)?;
            if each(place, &mut buffer[..wanted])? != wanted {
                return Err(OpError::PastEnd);
            }
            done += wanted as u64;
        }
        DONE
    })
}

/// Writes all of `data`. A call that could not go on has said how much it wrote, and the
/// next one says why.
fn write_all<F: Format, R: ReverseMap>(
    file: File<'_, Machine, F, R>,
    at: u64,
    data: &[u8],
) -> Result<usize, OpError> {
    let mut done = 0;
    while done < data.len() {
        let rest = &data[done..];
        done += file
            .write(WriteRequest::bytes(at + done as u64, &[rest]))
            .map_err(file_error)?;
    }
    Ok(done)
}

impl<F: Format, R: ReverseMap> CoreEngine<F, R> {
    pub(crate) fn call(&self, call: &Call) -> Executed {
        match *call {
            Call::Access {
                space,
                page,
                pages,
                access,
            } => {
                let space = self.space(space)?;
                let end = page.checked_add(pages).ok_or(OpError::Invalid)?;
                if end > F::USER_END.0 {
                    return Err(OpError::Invalid);
                }
                let places = (page..end).map(|page| (Vpn(page).address::<F>(), page));
                self.accesses(space, places, access)?;
                DONE
            }
            Call::NewFile { file } => self.new_file(file),
            Call::Close { file } => self.close(file),
            Call::SetSize { file, bytes } => {
                self.file(file)?.set_size(bytes).map_err(file_error)?;
                DONE
            }
            Call::Write {
                file,
                at,
                block,
                bytes,
            } => {
                let file = self.file(file)?;
                blocks((at, block, bytes), |at, data| write_all(file, at, data))
            }
            Call::WriteZeroes {
                file,
                at,
                block,
                bytes,
            } => {
                let file = self.file(file)?;
                blocks((at, block, bytes), |at, data| {
                    data.fill(0);
                    write_all(file, at, data)
                })
            }
            Call::Read {
                file,
                at,
                block,
                bytes,
            } => {
                let file = self.file(file)?;
                blocks((at, block, bytes), |at, data| {
                    file.read(ReadRequest::bytes(at, &mut [data]))
                        .map_err(file_error)
                })
            }
            Call::ReadThrough { file, block } => self.read_through(file, block),
            Call::Sync { file } => {
                self.file(file)?.sync().map_err(file_error)?;
                DONE
            }
            Call::Frames {
                order,
                blocks,
                rounds,
            } => self.frames(order, blocks, rounds),
        }
    }

    fn new_file(&self, slot: FileSlot) -> Executed {
        let word = self.names.files.word(slot.0).ok_or(OpError::BadFile)?;
        let file = self.vm.create_file(FileRequest::shared_memory(0));
        let file = file.map_err(file_error)?;
        let bits = file.id().to_bits();
        let taken = word.compare_exchange(0, bits, Ordering::AcqRel, Ordering::Relaxed);
        if taken.is_err() {
            let _ = file.release();
            return Err(OpError::BadFile);
        }
        DONE
    }

    fn close(&self, slot: FileSlot) -> Executed {
        self.file(slot)?.release().map_err(file_error)?;
        if let Some(word) = self.names.files.word(slot.0) {
            word.store(0, Ordering::Release);
        }
        DONE
    }

    fn read_through(&self, slot: FileSlot, block: u64) -> Executed {
        let file = self.file(slot)?.open().map_err(file_error)?;
        let result = with_buffer(block, |buffer| {
            let mut at = 0;
            loop {
                match file
                    .on(&self.vm)
                    .read(ReadRequest::bytes(at, &mut [&mut *buffer]))
                    .map_err(file_error)?
                {
                    0 => return DONE,
                    bytes => at += bytes as u64,
                }
            }
        });
        self.vm.close(file).map_err(|_| OpError::BadFile)?;
        result
    }

    fn frames(&self, order: u32, blocks: u32, rounds: u32) -> Executed {
        if order > vellum::frame::MAX_ORDER {
            return Err(OpError::Invalid);
        }
        let request = Request {
            order,
            ..Request::page(Site::AnonymousPage)
        };
        let memory = self.vm.memory();
        let mut held = Vec::with_capacity(blocks as usize);
        for _ in 0..rounds {
            let mut full = None;
            while full.is_none() && held.len() < blocks as usize {
                match memory.alloc(&self.vm.pin(), request) {
                    Ok(block) => held.push(block),
                    Err(error) => full = Some(error),
                }
            }
            for block in held.drain(..) {
                block.free(&self.vm.pin());
            }
            if let Some(OutOfMemory) = full {
                return Err(OpError::OutOfMemory);
            }
        }
        DONE
    }
}
