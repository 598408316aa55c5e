//! The header of a trace as columns.
//!
//! A reader keeps the whole header in memory, so its size is bounded: columns
//! and tables together take at most [`FREE_BYTES`] and [`MAX_GROWTH`] bytes for
//! each byte of the payload. The writer leaves a header uncompressed that would
//! exceed that.

use crate::column::{ColumnError, ColumnWriter, Columns, Packing};
use crate::event::TaskId;
use crate::header::{AccessMarks, Accesses, Environment, File, Header, MemoryGroup, Task};
use crate::varint::{self, Cursor, zigzag};

const ENVIRONMENT: u16 = 1;
const COMMAND: u16 = 2;
const CUTS: u16 = 3;
const TOTALS: u16 = 4;
const INVISIBLE: u16 = 5;
const STRINGS: u16 = 6;
const TASKS: u16 = 7;
const FILES: u16 = 8;
const FILE_NAMES: u16 = 9;
const CPU_TIMES: u16 = 10;
const ACCESSES: u16 = 11;
const BEGINNING: u16 = 12;
const GROUPS: u16 = 13;
const KNOWN: [u16; 13] = [
    ENVIRONMENT,
    COMMAND,
    CUTS,
    TOTALS,
    INVISIBLE,
    STRINGS,
    TASKS,
    FILES,
    FILE_NAMES,
    CPU_TIMES,
    ACCESSES,
    BEGINNING,
    GROUPS,
];

/// Memory that every header may take.
const FREE_BYTES: usize = 16 << 20;
/// Bytes of memory for each byte of the payload beyond that. Uncompressed
/// columns need less: a string that is empty takes most, 24 bytes and a byte of
/// its column.
const MAX_GROWTH: usize = 64;

/// Marks of [`AccessMarks`].
const PAGES: u8 = 0;
const REGIONS: u8 = 1;

fn strings<'a>(items: impl IntoIterator<Item = &'a String>) -> Vec<u8> {
    let mut out = Vec::new();
    for item in items {
        varint::put_string(&mut out, item);
    }
    out
}

/// The payload of the header section.
pub fn encode(header: &Header, level: i32) -> std::io::Result<Vec<u8>> {
    let packed = encode_as(header, Packing::Compress, level)?;
    match decode(&packed) {
        Ok(_) => Ok(packed),
        Err(_) => encode_as(header, Packing::Store, level),
    }
}

fn encode_as(header: &Header, packing: Packing, level: i32) -> std::io::Result<Vec<u8>> {
    let environment = &header.environment;
    let mut place = Vec::new();
    varint::put_string(&mut place, &environment.kernel);
    varint::put_string(&mut place, &environment.architecture);
    varint::put(&mut place, u64::from(environment.cpus));
    varint::put(&mut place, environment.memory);
    place.push(u8::from(environment.thp_off));
    let mut totals = Vec::new();
    for total in [header.lost, header.events, header.duration_us] {
        varint::put(&mut totals, total);
    }
    let mut tasks = Vec::new();
    let mut last = 0i64;
    for (index, task) in header.tasks.iter().enumerate() {
        varint::put(&mut tasks, zigzag(i64::from(task.pid) - last));
        last = i64::from(task.pid);
        varint::put(&mut tasks, zigzag(i64::from(task.process) - last));
        let back = task
            .parent
            .map_or(0, |parent| index as u64 - u64::from(parent.0));
        varint::put(&mut tasks, back);
    }
    let mut files = Vec::new();
    let mut last = 0i64;
    for file in &header.files {
        varint::put(&mut files, u64::from(file.device));
        varint::put(&mut files, zigzag((file.inode as i64).wrapping_sub(last)));
        last = file.inode as i64;
        varint::put(&mut files, file.size);
    }
    let mut columns = ColumnWriter::new(packing);
    columns.add(ENVIRONMENT, true, &place, level)?;
    columns.add(COMMAND, true, &strings(&environment.command), level)?;
    columns.add(CUTS, true, &strings(&environment.cuts), level)?;
    columns.add(TOTALS, true, &totals, level)?;
    columns.add(INVISIBLE, true, &strings(&header.invisible), level)?;
    columns.add(STRINGS, true, &strings(&header.strings), level)?;
    columns.add(TASKS, true, &tasks, level)?;
    columns.add(FILES, true, &files, level)?;
    let names = strings(header.files.iter().map(|file| &file.name));
    columns.add(FILE_NAMES, true, &names, level)?;
    if header.cpu_times {
        columns.add(CPU_TIMES, false, &[1], level)?;
    }
    if let Some(accesses) = header.accesses {
        let mut how = Vec::new();
        varint::put(&mut how, accesses.interval_us);
        how.push(match accesses.marks {
            AccessMarks::Pages => PAGES,
            AccessMarks::Regions => REGIONS,
        });
        columns.add(ACCESSES, false, &how, level)?;
    }
    if header.beginning > 0 {
        let mut beginning = Vec::new();
        varint::put(&mut beginning, header.beginning);
        columns.add(BEGINNING, false, &beginning, level)?;
    }
    if !header.groups.is_empty() {
        let mut groups = Vec::new();
        for group in &header.groups {
            varint::put_string(&mut groups, &group.path);
            varint::put(&mut groups, group.limit);
            varint::put(&mut groups, group.used);
        }
        columns.add(GROUPS, false, &groups, level)?;
    }
    let mut payload = Vec::new();
    columns.finish(&mut payload);
    Ok(payload)
}

/// The header that a payload holds.
pub fn decode(payload: &[u8]) -> Result<Header, ColumnError> {
    let most = payload.len().saturating_mul(MAX_GROWTH);
    let mut memory = Memory {
        left: most.saturating_add(FREE_BYTES),
    };
    let columns = Columns::decode(payload, &KNOWN, memory.left)?;
    memory.left -= columns.bytes();
    let part = |what: &str| ColumnError::Damaged(format!("the {what} cannot be read"));
    let mut list = |id, what| {
        let items = read_strings(columns.get(id), &mut memory)?;
        items.ok_or_else(|| part(what))
    };
    let command = list(COMMAND, "command")?;
    let cuts = list(CUTS, "list of cuts")?;
    let invisible = list(INVISIBLE, "list of what was invisible")?;
    let strings = list(STRINGS, "strings")?;
    let tasks = read_tasks(columns.get(TASKS), &mut memory)?;
    let files = read_files(columns.get(FILES), columns.get(FILE_NAMES), &mut memory)?;
    let groups = read_groups(columns.get(GROUPS), &mut memory)?;
    let beginning = match columns.get(BEGINNING) {
        none if none.is_empty() => Some(0),
        mut some => some.varint(),
    };
    let mut totals = columns.get(TOTALS);
    let mut total = || totals.varint().ok_or_else(|| part("totals"));
    let environment = read_environment(columns.get(ENVIRONMENT));
    Ok(Header {
        environment: Environment {
            command,
            cuts,
            ..environment.ok_or_else(|| part("environment"))?
        },
        lost: total()?,
        events: total()?,
        duration_us: total()?,
        invisible,
        cpu_times: columns.get(CPU_TIMES).byte().is_some_and(|byte| byte != 0),
        accesses: read_accesses(columns.get(ACCESSES))
            .ok_or_else(|| part("interval of accessed marks"))?,
        beginning: beginning.ok_or_else(|| part("length of the beginning"))?,
        groups: groups.ok_or_else(|| part("memory groups"))?,
        strings,
        tasks: tasks.ok_or_else(|| part("task table"))?,
        files: files.ok_or_else(|| part("file table"))?,
    })
}

/// Marks that this version does not know are taken for those that say least.
fn read_accesses(mut cursor: Cursor<'_>) -> Option<Option<Accesses>> {
    if cursor.is_empty() {
        return Some(None);
    }
    Some(Some(Accesses {
        interval_us: cursor.varint()?,
        marks: match cursor.byte()? {
            PAGES => AccessMarks::Pages,
            _ => AccessMarks::Regions,
        },
    }))
}

/// What the header may still take.
struct Memory {
    left: usize,
}

impl Memory {
    /// Takes an item of a table, with `bytes` of its own beside it.
    fn take<T>(&mut self, bytes: usize) -> Result<(), ColumnError> {
        let left = self.left.checked_sub(size_of::<T>() + bytes);
        self.left = left.ok_or_else(|| {
            ColumnError::Damaged("its tables take more memory than its length justifies".into())
        })?;
        Ok(())
    }
}

/// A table as far as its bytes could be read; an error if it is too long.
type Table<T> = Result<Option<Vec<T>>, ColumnError>;

/// Reads items to the end of the `cursor`.
fn read_table<T>(
    mut cursor: Cursor<'_>,
    memory: &mut Memory,
    mut next: impl FnMut(&mut Cursor<'_>, usize) -> Option<(T, usize)>,
) -> Table<T> {
    let mut items = Vec::new();
    while !cursor.is_empty() {
        let Some((item, bytes)) = next(&mut cursor, items.len()) else {
            return Ok(None);
        };
        memory.take::<T>(bytes)?;
        items.push(item);
    }
    Ok(Some(items))
}

fn read_strings(cursor: Cursor<'_>, memory: &mut Memory) -> Table<String> {
    read_table(cursor, memory, |cursor, _| {
        let text = cursor.string()?;
        let bytes = text.len();
        Some((text, bytes))
    })
}

fn read_groups(cursor: Cursor<'_>, memory: &mut Memory) -> Table<MemoryGroup> {
    read_table(cursor, memory, |cursor, _| {
        let path = cursor.string()?;
        let bytes = path.len();
        let group = MemoryGroup {
            path,
            limit: cursor.varint()?,
            used: cursor.varint()?,
        };
        Some((group, bytes))
    })
}

fn read_environment(mut cursor: Cursor<'_>) -> Option<Environment> {
    Some(Environment {
        kernel: cursor.string()?,
        architecture: cursor.string()?,
        cpus: u32::try_from(cursor.varint()?).ok()?,
        memory: cursor.varint()?,
        thp_off: cursor.byte()? != 0,
        ..Environment::default()
    })
}

fn read_tasks(cursor: Cursor<'_>, memory: &mut Memory) -> Table<Task> {
    let mut last = 0i64;
    read_table(cursor, memory, |cursor, index| {
        let pid = last.checked_add(cursor.signed()?)?;
        let process = pid.checked_add(cursor.signed()?)?;
        let parent = match cursor.varint()? {
            0 => None,
            back => Some(TaskId((index as u64).checked_sub(back)? as u32)),
        };
        last = pid;
        let task = Task {
            pid: u32::try_from(pid).ok()?,
            process: u32::try_from(process).ok()?,
            parent,
        };
        Some((task, 0))
    })
}

fn read_files(cursor: Cursor<'_>, mut names: Cursor<'_>, memory: &mut Memory) -> Table<File> {
    let mut last = 0i64;
    let files = read_table(cursor, memory, |cursor, _| {
        let device = u32::try_from(cursor.varint()?).ok()?;
        last = last.wrapping_add(cursor.signed()?);
        let name = names.string()?;
        let bytes = name.len();
        let file = File {
            name,
            device,
            inode: last as u64,
            size: cursor.varint()?,
        };
        Some((file, bytes))
    })?;
    Ok(files.filter(|_| names.is_empty()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(change: impl FnOnce(&mut Header)) -> Header {
        let mut header = Header::default();
        change(&mut header);
        header
    }

    /// Mostly alike, so that they take a hundredth of their length and less; not
    /// quite, so that the writer compresses them.
    fn tables_that_compress_well() -> [Header; 3] {
        let odd = |index: u64| match index.is_multiple_of(1000) {
            true => index.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40,
            false => 0,
        };
        let name = |index| match odd(index) {
            0 => String::new(),
            odd => odd.to_string(),
        };
        let file = |index| File {
            name: name(index),
            device: 0,
            inode: index,
            size: odd(index),
        };
        let task = |index| Task {
            pid: 1 + odd(index) as u32,
            process: 1,
            parent: None,
        };
        [
            with(|header| header.strings = (0..1 << 20).map(name).collect()),
            with(|header| header.tasks = (0..3 << 19).map(task).collect()),
            with(|header| header.files = (0..1 << 19).map(file).collect()),
        ]
    }

    fn refusal(payload: &[u8]) -> String {
        match decode(payload) {
            Err(ColumnError::Damaged(reason)) => reason,
            Err(other) => panic!("{other:?}"),
            Ok(_) => panic!("{} bytes were read", payload.len()),
        }
    }

    #[test]
    fn tables_that_take_more_memory_than_their_bytes_justify_are_refused() {
        for header in tables_that_compress_well() {
            let payload = encode_as(&header, Packing::Compress, 3).unwrap();
            let reason = refusal(&payload);
            assert!(reason.contains("more memory"), "{reason}");
        }
    }

    #[test]
    fn columns_that_would_fill_memory_are_refused_before_they_are_unpacked() {
        let mut column = vec![0; 8 << 20];
        for (index, byte) in column.iter_mut().step_by(300).enumerate() {
            *byte = ((index as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8;
        }
        let mut columns = ColumnWriter::default();
        for id in [COMMAND, CUTS, INVISIBLE, STRINGS] {
            columns.add(id, true, &column, 3).unwrap();
        }
        let mut payload = Vec::new();
        columns.finish(&mut payload);
        assert!(payload.len() < 1 << 18, "{} bytes", payload.len());
        let reason = refusal(&payload);
        assert!(reason.contains("claim more than"), "{reason}");
    }

    #[test]
    fn the_writer_stores_large_tables_so_that_they_can_be_read_back() {
        for header in tables_that_compress_well() {
            let payload = encode(&header, 3).unwrap();
            assert!(decode(&payload).unwrap() == header);
        }
    }
}
