//! An event as one row of a table.

use vellum_trace::{Access, Event, EventKind, FileId, Header, MapOrigin, Prot};

const PAGE: u64 = 4096;

/// A row. What an event does not have is `None`, or empty.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Row<'a> {
    pub time_us: u64,
    pub task: u64,
    pub pid: u64,
    pub process: u64,
    pub event: &'static str,
    pub address: Option<u64>,
    pub length: Option<u64>,
    pub new_address: Option<u64>,
    pub new_length: Option<u64>,
    pub access: Option<&'static str>,
    pub rights: Option<&'static str>,
    pub shared: Option<bool>,
    pub grows_down: Option<bool>,
    pub by_exec: Option<bool>,
    pub in_kernel: Option<bool>,
    pub present: Option<bool>,
    pub file: Option<u64>,
    pub offset: Option<u64>,
    pub child: Option<u64>,
    pub clone_flags: Option<u64>,
    pub advice: Option<u64>,
    /// The file's path, or the program of an exec.
    pub name: Option<&'a str>,
    pub ran_us: Option<u64>,
}

/// A value of a row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Value<'a> {
    Number(u64),
    Flag(bool),
    Text(&'a str),
}

/// What a column holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Number,
    Flag,
    Text,
}

/// A column: its name, what it holds, and how to get at it.
pub struct Column {
    pub name: &'static str,
    pub kind: Kind,
    /// Every row has a value.
    pub required: bool,
    pub get: for<'a> fn(&Row<'a>) -> Option<Value<'a>>,
}

macro_rules! columns {
    ($($name:ident $kind:ident $need:ident;)*) => {
        /// The columns, in their order.
        pub const COLUMNS: &[Column] = &[$(Column {
            name: stringify!($name),
            kind: Kind::$kind,
            required: columns!(@required $need),
            get: |row| columns!(@value $need $kind row.$name),
        },)*];
    };
    (@required always) => { true };
    (@required sometimes) => { false };
    (@value always $kind:ident $value:expr) => { Some(Value::$kind($value)) };
    (@value sometimes $kind:ident $value:expr) => { $value.map(Value::$kind) };
}

columns! {
    time_us Number always;
    task Number always;
    pid Number always;
    process Number always;
    event Text always;
    address Number sometimes;
    length Number sometimes;
    new_address Number sometimes;
    new_length Number sometimes;
    access Text sometimes;
    rights Text sometimes;
    shared Flag sometimes;
    grows_down Flag sometimes;
    by_exec Flag sometimes;
    in_kernel Flag sometimes;
    present Flag sometimes;
    file Number sometimes;
    offset Number sometimes;
    child Number sometimes;
    clone_flags Number sometimes;
    advice Number sometimes;
    name Text sometimes;
    ran_us Number sometimes;
}

fn rights(prot: Prot) -> &'static str {
    const TEXTS: [&str; 8] = ["---", "r--", "-w-", "rw-", "--x", "r-x", "-wx", "rwx"];
    TEXTS[usize::from(prot.0 & 7)]
}

impl<'a> Row<'a> {
    /// The row of an event.
    pub fn of(header: &'a Header, event: &Event) -> Self {
        let task = &header.tasks[event.task.0 as usize];
        let mut row = Row {
            time_us: event.time_us,
            task: u64::from(event.task.0),
            pid: u64::from(task.pid),
            process: u64::from(task.process),
            ran_us: event.ran_us,
            ..Row::default()
        };
        row.fill(header, &event.kind);
        row
    }

    fn range(&mut self, event: &'static str, address: u64, length: u64) {
        self.event = event;
        self.address = Some(address);
        self.length = Some(length);
    }

    fn in_file(&mut self, header: &'a Header, event: &'static str, file: FileId, length: u64) {
        self.event = event;
        self.file = Some(u64::from(file.0));
        self.length = Some(length);
        let name = header.files[file.0 as usize].name.as_str();
        self.name = (!name.is_empty()).then_some(name);
    }

    fn fill(&mut self, header: &'a Header, kind: &EventKind) {
        match *kind {
            EventKind::Create { child, clone_flags } => {
                self.event = "create";
                self.child = Some(u64::from(child.0));
                self.clone_flags = Some(clone_flags);
            }
            EventKind::Exec { name } => {
                self.event = "exec";
                self.name = Some(&header.strings[name as usize]);
            }
            EventKind::Exit => self.event = "exit",
            EventKind::Wait { child } => {
                self.event = "wait";
                self.child = Some(u64::from(child.0));
            }
            EventKind::Map {
                address,
                length,
                prot,
                shared,
                grows_down,
                file,
                offset,
                origin,
            } => {
                if let Some(file) = file {
                    self.in_file(header, "map", file, length);
                    self.offset = Some(offset);
                }
                self.range("map", address, length);
                self.rights = Some(rights(prot));
                self.shared = Some(shared);
                self.grows_down = Some(grows_down);
                self.by_exec = Some(origin == MapOrigin::Exec);
            }
            EventKind::Unmap { address, length } => self.range("unmap", address, length),
            EventKind::Protect {
                address,
                length,
                prot,
            } => {
                self.range("protect", address, length);
                self.rights = Some(rights(prot));
            }
            EventKind::Remap {
                address,
                length,
                new_address,
                new_length,
            } => {
                self.range("remap", address, length);
                self.new_address = Some(new_address);
                self.new_length = Some(new_length);
            }
            EventKind::Brk { end } => {
                self.event = "brk";
                self.address = Some(end);
            }
            EventKind::Advise {
                address,
                length,
                advice,
            } => {
                self.range("advise", address, length);
                self.advice = Some(u64::from(advice));
            }
            EventKind::Fault {
                address,
                access,
                kernel,
                present,
            } => {
                self.event = "fault";
                self.address = Some(address);
                self.access = Some(match access {
                    Access::Read => "read",
                    Access::Write => "write",
                    Access::Execute => "execute",
                });
                self.in_kernel = Some(kernel);
                self.present = Some(present);
            }
            EventKind::MapAround { file, first, last } => {
                self.in_file(header, "around", file, (last - first + 1) * PAGE);
                self.offset = Some(first * PAGE);
            }
            EventKind::FileRead {
                file,
                offset,
                length,
            } => {
                self.in_file(header, "read", file, length);
                self.offset = Some(offset);
            }
            EventKind::FileWrite {
                file,
                offset,
                length,
            } => {
                self.in_file(header, "write", file, length);
                self.offset = Some(offset);
            }
            EventKind::Truncate { file, size } => self.in_file(header, "truncate", file, size),
            EventKind::Accessed { address, length } => {
                self.event = "accessed";
                self.address = Some(address);
                self.length = Some(length);
            }
        }
    }
}
