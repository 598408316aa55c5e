//! The header of a trace as columns.

use crate::column::{ColumnError, ColumnWriter, Columns};
use crate::event::TaskId;
use crate::header::{AccessMarks, Accesses, Environment, File, Header, Task};
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
const KNOWN: [u16; 11] = [
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
];

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
    let mut columns = ColumnWriter::default();
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
    let mut payload = Vec::new();
    columns.finish(&mut payload);
    Ok(payload)
}

/// The header that a payload holds.
pub fn decode(payload: &[u8]) -> Result<Header, ColumnError> {
    let columns = Columns::decode(payload, &KNOWN)?;
    let part = |what: &str| ColumnError::Damaged(format!("the {what} cannot be read"));
    let list = |id, what| read_strings(columns.get(id)).ok_or_else(|| part(what));
    let mut totals = columns.get(TOTALS);
    let mut total = || totals.varint().ok_or_else(|| part("totals"));
    let environment = read_environment(columns.get(ENVIRONMENT));
    Ok(Header {
        environment: Environment {
            command: list(COMMAND, "command")?,
            cuts: list(CUTS, "list of cuts")?,
            ..environment.ok_or_else(|| part("environment"))?
        },
        lost: total()?,
        events: total()?,
        duration_us: total()?,
        invisible: list(INVISIBLE, "list of what was invisible")?,
        cpu_times: columns.get(CPU_TIMES).byte().is_some_and(|byte| byte != 0),
        accesses: read_accesses(columns.get(ACCESSES))
            .ok_or_else(|| part("interval of accessed marks"))?,
        strings: list(STRINGS, "strings")?,
        tasks: read_tasks(columns.get(TASKS)).ok_or_else(|| part("task table"))?,
        files: read_files(columns.get(FILES), columns.get(FILE_NAMES))
            .ok_or_else(|| part("file table"))?,
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

fn read_strings(mut cursor: Cursor<'_>) -> Option<Vec<String>> {
    let mut items = Vec::new();
    while !cursor.is_empty() {
        items.push(cursor.string()?);
    }
    Some(items)
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

fn read_tasks(mut cursor: Cursor<'_>) -> Option<Vec<Task>> {
    let mut tasks = Vec::new();
    let mut last = 0i64;
    while !cursor.is_empty() {
        let pid = last.checked_add(cursor.signed()?)?;
        let process = pid.checked_add(cursor.signed()?)?;
        let back = cursor.varint()?;
        let parent = match back {
            0 => None,
            back => Some(TaskId((tasks.len() as u64).checked_sub(back)? as u32)),
        };
        tasks.push(Task {
            pid: u32::try_from(pid).ok()?,
            process: u32::try_from(process).ok()?,
            parent,
        });
        last = pid;
    }
    Some(tasks)
}

fn read_files(mut cursor: Cursor<'_>, mut names: Cursor<'_>) -> Option<Vec<File>> {
    let mut files = Vec::new();
    let mut last = 0i64;
    while !cursor.is_empty() {
        let device = u32::try_from(cursor.varint()?).ok()?;
        last = last.wrapping_add(cursor.signed()?);
        files.push(File {
            name: names.string()?,
            device,
            inode: last as u64,
            size: cursor.varint()?,
        });
    }
    names.is_empty().then_some(files)
}
