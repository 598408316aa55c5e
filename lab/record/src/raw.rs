//! The kernel's records, taken apart.

use crate::error::RecordError;
use crate::sample::Sample;

/// One record of the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// Nanoseconds of the monotonic clock.
    pub time_ns: u64,
    /// The process it is about, as the recorder's namespace numbers it.
    pub pid: u32,
    /// The thread.
    pub tid: u32,
    /// What it says.
    pub body: Body<'a>,
}

/// What a record says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body<'a> {
    /// The kernel made or changed a mapping.
    Mmap(Mmap<'a>),
    /// The task has another name. `exec`: because it executed a program.
    Comm { name: &'a [u8], exec: bool },
    /// Task `ptid` created this record's task.
    Fork { ptid: u32 },
    /// The task ended.
    Exit,
    /// The task was put on a CPU.
    SwitchIn,
    /// The task left its CPU.
    SwitchOut,
    /// The ring was full.
    Lost { count: u64 },
    /// A tracepoint: its number and its fields.
    Sample { id: u16, raw: &'a [u8] },
    /// A tracepoint that somebody else has taken apart.
    Event(Sample<'a>),
    /// Something that is of no interest.
    Other,
}

/// A mapping as the kernel reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mmap<'a> {
    /// Where it begins.
    pub address: u64,
    /// Bytes.
    pub length: u64,
    /// Byte offset in the file.
    pub offset: u64,
    /// Major number of the file's device.
    pub major: u32,
    /// Minor number of the file's device.
    pub minor: u32,
    /// The file's inode; 0 without a file.
    pub inode: u64,
    /// `PROT_*` flags.
    pub prot: u32,
    /// `MAP_*` flags.
    pub flags: u32,
    /// Path, or a name in brackets, or `//anon`.
    pub name: &'a [u8],
}

impl Mmap<'_> {
    /// Whether it is one of a file, and not of memory without one.
    pub fn is_of_file(&self) -> bool {
        // A segment of System V shared memory has its number as inode, from 0 on.
        let is_numbered = self.inode != 0 || self.name.starts_with(b"/SYSV");
        is_numbered && self.name.starts_with(b"/") && !self.name.starts_with(b"//anon")
    }
}

const MMAP2: u32 = 10;
const LOST: u32 = 2;
const COMM: u32 = 3;
const EXIT: u32 = 4;
const FORK: u32 = 7;
const SAMPLE: u32 = 9;
const LOST_SAMPLES: u32 = 13;
const SWITCH_CPU_WIDE: u32 = 15;
const MISC_SWITCH_OUT: u16 = 1 << 13;
const MISC_COMM_EXEC: u16 = 1 << 13;
const MISC_MMAP_BUILD_ID: u16 = 1 << 14;
/// `tid` and `time`, which end every record that is not a sample.
const TRAILER: usize = 16;

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

/// A NUL-terminated name in a padded field.
fn name(bytes: &[u8]) -> &[u8] {
    let end = bytes.iter().position(|byte| *byte == 0);
    &bytes[..end.unwrap_or(bytes.len())]
}

/// Length in bytes of the record at the start of `bytes`.
pub fn length(bytes: &[u8]) -> Result<usize, RecordError> {
    let length = u16_at(bytes, 6).map(usize::from);
    length
        .filter(|length| *length >= 8 && *length <= bytes.len())
        .ok_or_else(|| RecordError::BadRecord("its length does not fit".into()))
}

/// Takes one whole record apart.
pub fn parse(record: &[u8]) -> Result<Record<'_>, RecordError> {
    let kind = u32_at(record, 0).unwrap_or(0);
    let parsed = if kind == SAMPLE {
        parse_sample(record)
    } else {
        parse_side_band(record, kind)
    };
    parsed.ok_or_else(|| {
        let length = record.len();
        RecordError::BadRecord(format!("type {kind}, {length} bytes"))
    })
}

fn parse_sample(record: &[u8]) -> Option<Record<'_>> {
    let size = u32_at(record, 24)? as usize;
    let raw = record.get(28..28 + size)?;
    Some(Record {
        pid: u32_at(record, 8)?,
        tid: u32_at(record, 12)?,
        time_ns: u64_at(record, 16)?,
        body: Body::Sample {
            id: u16_at(raw, 0)?,
            raw,
        },
    })
}

/// A sample without time and task that carries `raw`.
pub fn sample(raw: &[u8]) -> Vec<u8> {
    const HEAD: usize = 28;
    let length = (HEAD + raw.len()).next_multiple_of(8);
    let mut record = SAMPLE.to_le_bytes().to_vec();
    record.extend([0; 2]);
    record.extend((length as u16).to_le_bytes());
    record.resize(HEAD - 4, 0);
    record.extend(((length - HEAD) as u32).to_le_bytes());
    record.extend(raw);
    record.resize(length, 0);
    record
}

fn parse_side_band(record: &[u8], kind: u32) -> Option<Record<'_>> {
    let misc = u16_at(record, 4)?;
    let body_end = record.len().checked_sub(TRAILER)?;
    let trailer = &record[body_end..];
    let bytes = record.get(..body_end)?;
    let (mut pid, mut tid) = (u32_at(trailer, 0)?, u32_at(trailer, 4)?);
    let body = match kind {
        MMAP2 if misc & MISC_MMAP_BUILD_ID == 0 => Body::Mmap(Mmap {
            address: u64_at(bytes, 16)?,
            length: u64_at(bytes, 24)?,
            offset: u64_at(bytes, 32)?,
            major: u32_at(bytes, 40)?,
            minor: u32_at(bytes, 44)?,
            inode: u64_at(bytes, 48)?,
            prot: u32_at(bytes, 64)?,
            flags: u32_at(bytes, 68)?,
            name: name(bytes.get(72..)?),
        }),
        COMM => Body::Comm {
            name: name(bytes.get(16..)?),
            exec: misc & MISC_COMM_EXEC != 0,
        },
        FORK => {
            pid = u32_at(bytes, 8)?;
            tid = u32_at(bytes, 16)?;
            Body::Fork {
                ptid: u32_at(bytes, 20)?,
            }
        }
        EXIT => {
            pid = u32_at(bytes, 8)?;
            tid = u32_at(bytes, 16)?;
            Body::Exit
        }
        SWITCH_CPU_WIDE if misc & MISC_SWITCH_OUT != 0 => Body::SwitchOut,
        SWITCH_CPU_WIDE => Body::SwitchIn,
        LOST => Body::Lost {
            count: u64_at(bytes, 16)?,
        },
        LOST_SAMPLES => Body::Lost {
            count: u64_at(bytes, 8)?,
        },
        _ => Body::Other,
    };
    Some(Record {
        pid,
        tid,
        time_ns: u64_at(trailer, 8)?,
        body,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_switch_tells_its_task_and_which_way_it_went() {
        let mut record = vec![0u8; 32];
        record[0] = SWITCH_CPU_WIDE as u8;
        record[6] = 32;
        record[16..20].copy_from_slice(&40u32.to_le_bytes());
        record[20..24].copy_from_slice(&41u32.to_le_bytes());
        record[24..].copy_from_slice(&5000u64.to_le_bytes());
        let switch = |body| Record {
            time_ns: 5000,
            pid: 40,
            tid: 41,
            body,
        };
        assert_eq!(parse(&record).unwrap(), switch(Body::SwitchIn));
        record[5] = (MISC_SWITCH_OUT >> 8) as u8;
        assert_eq!(parse(&record).unwrap(), switch(Body::SwitchOut));
    }

    #[test]
    fn records_that_end_early_are_refused_not_read_past() {
        let mut record = vec![0u8; 64];
        record[0] = SAMPLE as u8;
        record[6] = 64;
        record[24] = 32;
        record[28] = 190;
        let sample = parse(&record).unwrap();
        assert!(matches!(sample.body, Body::Sample { id: 190, raw } if raw.len() == 32));
        for length in 8..60 {
            assert!(parse(&record[..length]).is_err(), "{length} bytes");
        }
        for kind in [MMAP2, COMM, FORK, EXIT, LOST] {
            record[0] = kind as u8;
            for length in 8..24 {
                assert!(
                    parse(&record[..length]).is_err(),
                    "type {kind}, {length} bytes"
                );
            }
        }
    }
}
