//! Inputs that are compressed: gzip, zlib, zstd and zip archives, of which every file is read, one
//! after the other, as drmemtrace's reader does with the pieces of a trace.

use std::cell::Cell;
use std::io::{self, BufRead, BufReader, Read};
use std::rc::Rc;

use flate2::Crc;
use flate2::bufread::{DeflateDecoder, MultiGzDecoder, ZlibDecoder};

type Source = Box<dyn BufRead>;

/// Bytes of unpacked data that are kept ready.
const READY: usize = 1 << 16;
/// Bytes of a zip entry's name and further fields; more is none.
const MOST_FIELDS: u64 = 2 << 16;

/// How an input is packed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Packing {
    Gzip,
    Zlib,
    Zstd,
    Zip,
}

impl Packing {
    /// What the first bytes show.
    pub fn of(head: &[u8]) -> Option<Packing> {
        match head {
            [0x1f, 0x8b, ..] => Some(Packing::Gzip),
            [0x28, 0xb5, 0x2f, 0xfd, ..] => Some(Packing::Zstd),
            [b'P', b'K', 3, 4, ..] => Some(Packing::Zip),
            [0x78, 0x01 | 0x5e | 0x9c | 0xda, ..] => Some(Packing::Zlib),
            _ => None,
        }
    }

    /// Unpacks what `source` reads.
    pub fn unpack(self, source: Source) -> io::Result<Source> {
        let unpacked: Box<dyn Read> = match self {
            Packing::Gzip => Box::new(MultiGzDecoder::new(source)),
            Packing::Zlib => Box::new(ZlibDecoder::new(source)),
            Packing::Zstd => Box::new(zstd::Decoder::with_buffer(source)?),
            Packing::Zip => Box::new(Zip::new(source)),
        };
        Ok(Box::new(BufReader::with_capacity(READY, unpacked)))
    }
}

/// Counts the bytes that are taken from a source.
pub struct Counted {
    source: Source,
    taken: Rc<Cell<u64>>,
}

impl Counted {
    pub fn new(source: Source) -> (Counted, Rc<Cell<u64>>) {
        let taken = Rc::new(Cell::new(0));
        let counted = Counted {
            source,
            taken: Rc::clone(&taken),
        };
        (counted, taken)
    }
}

impl Read for Counted {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.source.read(buffer)?;
        self.taken.set(self.taken.get() + read as u64);
        Ok(read)
    }
}

impl BufRead for Counted {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.source.fill_buf()
    }

    fn consume(&mut self, amount: usize) {
        self.taken.set(self.taken.get() + amount as u64);
        self.source.consume(amount);
    }
}

/// The files of a zip archive, one after the other, read in one go: from the headers in front of them,
/// not from the list at the end.
struct Zip {
    at: At,
    /// Files that were begun.
    files: u64,
}

/// Where in the archive reading has come to.
enum At {
    /// In front of a header.
    Header(Source),
    /// In a file.
    File(Box<File>),
    /// After the last file, or nothing can be read any more.
    End,
}

struct File {
    data: Data,
    header: Entry,
    crc: Crc,
}

enum Data {
    Deflated(DeflateDecoder<Source>),
    Stored(io::Take<Source>),
}

/// What stands in front of a file.
#[derive(Clone, Copy)]
struct Entry {
    /// Check sum and lengths stand after the data.
    sums_follow: bool,
    long_sums: bool,
    crc: u32,
    stored: u32,
}

impl Zip {
    fn new(source: Source) -> Zip {
        Zip {
            at: At::Header(source),
            files: 0,
        }
    }

    fn damaged(&self, what: &str) -> io::Error {
        let text = format!("file {} of the zip archive: {what}", self.files);
        io::Error::new(io::ErrorKind::InvalidData, text)
    }

    /// Reads the header of the next file, if there is one.
    fn next_file(&mut self, mut source: Source) -> io::Result<At> {
        self.files += 1;
        match &bytes::<4>(&mut source)? {
            b"PK\x03\x04" => {}
            // The list of files, or the end of it.
            b"PK\x01\x02" | b"PK\x05\x06" | b"PK\x06\x06" => return Ok(At::End),
            _ => return Err(self.damaged("neither a file nor the list of files begins here")),
        }
        let fixed = bytes::<26>(&mut source)?;
        let short = |at: usize| u16::from_le_bytes([fixed[at], fixed[at + 1]]);
        let long = |at: usize| u32::from(short(at)) | u32::from(short(at + 2)) << 16;
        let (flags, method) = (short(2), short(4));
        let fields = u64::from(short(22)) + u64::from(short(24));
        let mut skipped = (&mut source).take(fields.min(MOST_FIELDS));
        if io::copy(&mut skipped, &mut io::sink())? < fields {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if flags & 1 != 0 {
            return Err(self.damaged("it is encrypted"));
        }
        let header = Entry {
            sums_follow: flags & 8 != 0,
            long_sums: short(0) >= 45,
            crc: long(10),
            stored: long(14),
        };
        let data = match method {
            8 => Data::Deflated(DeflateDecoder::new(source)),
            0 if header.sums_follow || header.stored == u32::MAX => {
                return Err(self.damaged("it is stored without its length in front of it"));
            }
            0 => Data::Stored(source.take(u64::from(header.stored))),
            other => {
                return Err(self.damaged(&format!(
                    "it is compressed by method {other}, which is not read (unzip it)"
                )));
            }
        };
        Ok(At::File(Box::new(File {
            data,
            header,
            crc: Crc::new(),
        })))
    }

    /// The data of a file have ended: checks them.
    fn end_file(&self, file: File) -> io::Result<At> {
        let mut crc = file.header.crc;
        let mut source = match file.data {
            Data::Deflated(decoder) => decoder.into_inner(),
            Data::Stored(rest) if rest.limit() > 0 => {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            Data::Stored(rest) => rest.into_inner(),
        };
        if file.header.sums_follow {
            let mut first = bytes::<4>(&mut source)?;
            if &first == b"PK\x07\x08" {
                first = bytes::<4>(&mut source)?;
            }
            crc = u32::from_le_bytes(first);
            match file.header.long_sums {
                true => drop(bytes::<16>(&mut source)?),
                false => drop(bytes::<8>(&mut source)?),
            }
        }
        match crc == file.crc.sum() {
            true => Ok(At::Header(source)),
            false => Err(self.damaged("its check sum is wrong")),
        }
    }
}

fn bytes<const N: usize>(source: &mut Source) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    source.read_exact(&mut bytes)?;
    Ok(bytes)
}

impl Read for Zip {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        loop {
            match std::mem::replace(&mut self.at, At::End) {
                At::End => return Ok(0),
                At::Header(source) => self.at = self.next_file(source)?,
                At::File(mut file) => {
                    let read = match &mut file.data {
                        Data::Deflated(decoder) => decoder.read(buffer)?,
                        Data::Stored(data) => data.read(buffer)?,
                    };
                    if read > 0 {
                        file.crc.update(&buffer[..read]);
                        self.at = At::File(file);
                        return Ok(read);
                    }
                    self.at = self.end_file(*file)?;
                }
            }
        }
    }
}
