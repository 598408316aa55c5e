//! What the tests of all formats share.

use std::collections::BTreeMap;
use std::path::Path;

use vellum_import::{Format, Imported, Input, Options, Report, import_inputs, import_text};
use vellum_trace::{Access, EventKind};

pub const PAGE: u64 = 4096;

pub fn fixture(name: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    std::fs::read(path.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

pub fn import(text: &[u8]) -> (Format, Imported, Report) {
    import_text(text, &Options::default()).unwrap_or_else(|error| panic!("{error}"))
}

pub fn count(imported: &Imported, wanted: impl Fn(&EventKind) -> bool) -> usize {
    let events = imported.events().iter();
    events.filter(|event| wanted(&event.kind)).count()
}

pub fn clone_flags(imported: &Imported) -> Vec<u64> {
    let flags = imported
        .events()
        .iter()
        .filter_map(|event| match event.kind {
            EventKind::Create { clone_flags, .. } => Some(clone_flags),
            _ => None,
        });
    flags.collect()
}

pub fn programs(imported: &Imported) -> Vec<&str> {
    let names = imported
        .events()
        .iter()
        .filter_map(|event| match event.kind {
            EventKind::Exec { name } => Some(imported.header().strings[name as usize].as_str()),
            _ => None,
        });
    names.collect()
}

/// Names of the mapped files, with how often each is mapped.
pub fn mapped_files(imported: &Imported) -> BTreeMap<String, usize> {
    let mut names = BTreeMap::new();
    for event in imported.events() {
        if let EventKind::Map {
            file: Some(file), ..
        } = event.kind
        {
            let name = imported.header().files[file.0 as usize].name.clone();
            *names.entry(name).or_default() += 1;
        }
    }
    names
}

/// Imports several files of one run.
pub fn import_files(files: &[&[u8]]) -> (Imported, Report) {
    let names = (0..).map(|index| format!("file {index}"));
    let inputs = names
        .zip(files)
        .map(|(name, file)| Input::new(name, Box::new(std::io::Cursor::new(file.to_vec()))));
    let (_, imported, report) = import_inputs(inputs.collect(), &Options::default())
        .unwrap_or_else(|error| panic!("{error}"));
    (imported, report)
}

/// The text of the error that importing ends in.
pub fn refusal(text: &[u8]) -> String {
    match import_text(text, &Options::default()) {
        Ok(_) => panic!("it was imported"),
        Err(error) => error.to_string(),
    }
}

/// A fault.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fault {
    pub time_us: u64,
    pub task: u32,
    pub address: u64,
    pub access: Access,
    pub present: bool,
}

/// The faults, in order.
pub fn faults(imported: &Imported) -> Vec<Fault> {
    let faults = imported
        .events()
        .iter()
        .filter_map(|event| match event.kind {
            EventKind::Fault {
                address,
                access,
                present,
                ..
            } => Some(Fault {
                time_us: event.time_us,
                task: event.task.0,
                address,
                access,
                present,
            }),
            _ => None,
        });
    faults.collect()
}

/// Where they are, and what for.
pub fn accesses(imported: &Imported) -> Vec<(u64, Access)> {
    let faults = faults(imported).into_iter();
    faults.map(|fault| (fault.address, fault.access)).collect()
}

/// Mappings: address, pages, rights, in order.
pub fn mappings(imported: &Imported) -> Vec<(u64, u64, u8)> {
    let maps = imported
        .events()
        .iter()
        .filter_map(|event| match event.kind {
            EventKind::Map {
                address,
                length,
                prot,
                ..
            } => Some((address, length / PAGE, prot.0)),
            _ => None,
        });
    maps.collect()
}

/// A small generator of its own: the sequence must not change with a library.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit.max(1) as u64) as usize
    }
}
