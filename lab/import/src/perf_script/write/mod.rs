//! A trace as the lines that `perf script` would print of its recording, which
//! `vellum import` reads back.
//!
//! Each event becomes the lines that it is made from: a mapping the beginning
//! and the end of its `mmap` with the kernel's report in between, and so on.
//! What perf has no words for (lengths of files, what was invisible) stands in
//! comments. Read back, the trace is the same but for the numbers of tasks,
//! files and names, which are given anew in the order in which they appear.
//! What cannot be said at all is counted: [`Writer::finish`].

mod files;
mod memory;

use std::collections::{HashMap, HashSet};
use std::io::{self, Write};

use crate::perf_script::calls;
use crate::perf_script::comment::{OWN, environment_text};
use vellum_record::number;
use vellum_trace::{Access, Event, EventKind, File, FileId, Header, MapOrigin, Task, TaskId};

const PAGE: u64 = 4096;
/// The file that writes are made through; perf shows no other.
const DESCRIPTOR: u64 = 3;
const MAP_SHARED: u64 = 1;
const MAP_PRIVATE: u64 = 2;
const MAP_ANONYMOUS: u64 = 0x20;
const MAP_GROWSDOWN: u64 = 0x100;
const MREMAP_MAYMOVE: u64 = 1;
/// Longest name of a command.
const NAME: usize = 15;

/// What a task is in the text.
#[derive(Clone, Default)]
struct Shown {
    pid: u32,
    tid: u32,
    name: String,
    /// Between the exec and the end of its call.
    in_exec: bool,
    ended: bool,
}

/// Writes the lines.
pub struct Writer<'a, W: Write> {
    out: W,
    header: &'a Header,
    tasks: Vec<Option<Shown>>,
    /// Ids in use, and the task that had one last.
    live: HashSet<u32>,
    last: HashMap<u32, TaskId>,
    /// The next id for a task whose own is taken.
    spare: u32,
    /// Order of the folio that a file's page was said to be in.
    orders: HashMap<(FileId, u64), u32>,
    unspoken: u64,
    renamed: u64,
}

/// What came back differently.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Losses {
    /// Events that perf has no lines for.
    pub events: u64,
    /// Tasks that got another id because theirs was in use.
    pub renamed: u64,
}

fn usable(name: &str) -> bool {
    !name.is_empty() && !name.chars().any(char::is_control)
}

/// Whether a mapping's line can show this file's name.
fn mappable(file: &File) -> bool {
    usable(&file.name)
        && file.name.starts_with('/')
        && !file.name.starts_with("//anon")
        && file.name == file.name.trim()
}

impl<'a, W: Write> Writer<'a, W> {
    /// Starts with what the trace says about itself.
    ///
    /// # Errors
    /// `out` cannot be written to.
    pub fn new(mut out: W, header: &'a Header) -> io::Result<Self> {
        writeln!(out, "{OWN}begin 0.000000")?;
        writeln!(
            out,
            "{OWN}environment {}",
            environment_text(&header.environment)
        )?;
        for note in &header.invisible {
            writeln!(
                out,
                "{OWN}invisible {}",
                serde_json::Value::from(note.as_str())
            )?;
        }
        for file in &header.files {
            writeln!(
                out,
                "{OWN}file {} {} {} {}",
                file.device,
                file.inode,
                file.size,
                serde_json::Value::from(file.name.as_str())
            )?;
        }
        let highest = header.tasks.iter().map(|task| task.pid.max(task.process));
        let mut writer = Writer {
            out,
            header,
            tasks: vec![None; header.tasks.len()],
            live: HashSet::new(),
            last: HashMap::new(),
            spare: highest.max().unwrap_or(0).min(0x7fff_0000) + 1,
            orders: HashMap::new(),
            unspoken: 0,
            renamed: 0,
        };
        if header.lost > 0 {
            writeln!(
                writer.out,
                "vellum 1/1 0.000000: PERF_RECORD_LOST lost {}",
                header.lost
            )?;
        }
        for (index, task) in header.tasks.iter().enumerate() {
            if task.parent.is_none() {
                writer.appear(TaskId(index as u32), *task, None);
                let shown = writer.shown(TaskId(index as u32));
                let (pid, tid) = (shown.pid, shown.tid);
                writer.line(
                    0,
                    TaskId(index as u32),
                    format_args!("PERF_RECORD_COMM: there:{pid}/{tid}"),
                )?;
            }
        }
        Ok(writer)
    }

    /// Gives a task its ids: its own, unless somebody has them.
    fn appear(&mut self, id: TaskId, task: Task, name: Option<String>) {
        let taken = task.pid == 0 || task.pid >= 1 << 31 || self.live.contains(&task.pid);
        let tid = if taken {
            self.renamed += 1;
            self.spare += 1;
            self.spare
        } else {
            task.pid
        };
        let pid = if task.process == task.pid {
            tid
        } else {
            task.process
        };
        self.live.insert(tid);
        self.last.insert(tid, id);
        self.tasks[id.0 as usize] = Some(Shown {
            pid,
            tid,
            name: name.unwrap_or_else(|| "there".to_owned()),
            ..Shown::default()
        });
    }

    fn shown(&mut self, id: TaskId) -> &mut Shown {
        self.tasks[id.0 as usize].get_or_insert_default()
    }

    fn line(
        &mut self,
        time_us: u64,
        task: TaskId,
        text: std::fmt::Arguments<'_>,
    ) -> io::Result<()> {
        let Shown { name, pid, tid, .. } = self.shown(task).clone();
        let (seconds, micros) = (time_us / 1_000_000, time_us % 1_000_000);
        writeln!(
            self.out,
            "{name:>16} {pid:>7}/{tid:<7} {seconds:>5}.{micros:06}: {text}"
        )
    }

    /// Writes the lines of the next event in order of time.
    ///
    /// # Errors
    /// `out` cannot be written to.
    pub fn take(&mut self, event: &Event) -> io::Result<()> {
        let made_by_exec = matches!(
            event.kind,
            EventKind::Map {
                origin: MapOrigin::Exec,
                ..
            }
        );
        let inside = matches!(event.kind, EventKind::Fault { kernel: true, .. })
            || matches!(event.kind, EventKind::MapAround { .. });
        let in_exec = self.shown(event.task).in_exec;
        let at = (event.time_us, event.task);
        if made_by_exec && !in_exec {
            self.shown(event.task).in_exec = true;
            self.line(
                at.0,
                at.1,
                format_args!("syscalls:sys_enter_execve: filename: 0x00000000"),
            )?;
        } else if in_exec && !made_by_exec && !inside {
            self.shown(event.task).in_exec = false;
            self.line(at.0, at.1, format_args!("syscalls:sys_exit_execve: 0x0"))?;
        }
        match event.kind {
            EventKind::Create { child, clone_flags } => self.create(at, child, clone_flags),
            EventKind::Exec { name } => self.exec(at, name),
            EventKind::Exit => {
                let Shown { pid, tid, .. } = *self.shown(event.task);
                self.shown(event.task).ended = true;
                self.live.remove(&tid);
                self.line(
                    at.0,
                    at.1,
                    format_args!("PERF_RECORD_EXIT({pid}:{tid}):({pid}:{tid})"),
                )
            }
            EventKind::Wait { child } => self.wait(at, child),
            EventKind::Map { .. } => self.map(at, &event.kind),
            EventKind::Fault {
                address,
                access,
                kernel,
                present,
            } => {
                let (event, user) = match kernel {
                    true => ("exceptions:page_fault_kernel", 0),
                    false => ("exceptions:page_fault_user", 4),
                };
                let code = user
                    | u64::from(present)
                    | match access {
                        Access::Read => 0,
                        Access::Write => 2,
                        Access::Execute => 16,
                    };
                self.line(
                    at.0,
                    at.1,
                    format_args!("{event}: address={address:#x} ip=0x0 error_code={code:#x}"),
                )
            }
            EventKind::MapAround { file, first, last } => {
                let place = self.place(file);
                let (from, to) = (first * PAGE, last * PAGE + (PAGE - 1));
                self.line(
                    at.0,
                    at.1,
                    format_args!("filemap:mm_filemap_map_pages: {place} ofs={from}-{to}"),
                )
            }
            EventKind::FileRead { .. }
            | EventKind::FileWrite { .. }
            | EventKind::Truncate { .. } => self.transfer(at, &event.kind),
            _ => self.range(at, &event.kind),
        }
    }

    fn enter(&mut self, at: (u64, TaskId), number: u64, args: &[(&str, u64)]) -> io::Result<()> {
        let name = calls::name_of(number).unwrap_or("unknown");
        let args: Vec<String> = args
            .iter()
            .map(|(name, value)| format!("{name}: {value:#010x}"))
            .collect();
        self.line(
            at.0,
            at.1,
            format_args!("syscalls:sys_enter_{name}: {}", args.join(", ")),
        )
    }

    fn exit(&mut self, at: (u64, TaskId), number: u64, result: u64) -> io::Result<()> {
        let name = calls::name_of(number).unwrap_or("unknown");
        self.line(
            at.0,
            at.1,
            format_args!("syscalls:sys_exit_{name}: {result:#x}"),
        )
    }

    fn create(&mut self, at: (u64, TaskId), child: TaskId, flags: u64) -> io::Result<()> {
        let name = self.shown(at.1).name.clone();
        let mut task = self.header.tasks[child.0 as usize];
        // A process keeps its id among its threads.
        let of_parent = self.header.tasks[at.1.0 as usize].process == task.process;
        let (ppid, ptid) = (self.shown(at.1).pid, self.shown(at.1).tid);
        if of_parent && task.process != task.pid {
            task.process = ppid;
        }
        self.appear(child, task, Some(name));
        let Shown { pid, tid, .. } = *self.shown(child);
        self.line(
            at.0,
            at.1,
            format_args!("PERF_RECORD_FORK({pid}:{tid}):({ppid}:{ptid})"),
        )?;
        self.line(
            at.0,
            at.1,
            format_args!(
                "task:task_newtask: pid={tid} comm=x clone_flags={flags:x} oom_score_adj=0"
            ),
        )
    }

    fn exec(&mut self, at: (u64, TaskId), name: u32) -> io::Result<()> {
        let name = &self.header.strings[name as usize];
        if name.chars().any(char::is_control) {
            self.unspoken += 1;
        }
        let clean = |c: char| if c.is_control() { '?' } else { c };
        let text: String = name.chars().map(clean).collect();
        // The column in front must not look like what follows it.
        let word = |c: char| if c.is_alphanumeric() { c } else { '-' };
        let column: String = text.chars().map(word).take(NAME).collect();
        let shown = self.shown(at.1);
        shown.in_exec = true;
        shown.name = if column.is_empty() {
            "-".to_owned()
        } else {
            format!("c{column}")
        };
        shown.name.truncate(
            shown
                .name
                .char_indices()
                .nth(NAME)
                .map_or(shown.name.len(), |(at, _)| at),
        );
        let (pid, tid) = (shown.pid, shown.tid);
        self.line(
            at.0,
            at.1,
            format_args!("PERF_RECORD_COMM exec: {text}:{pid}/{tid}"),
        )
    }

    fn wait(&mut self, at: (u64, TaskId), child: TaskId) -> io::Result<()> {
        let tid = self.shown(child).tid;
        if !self.shown(child).ended || self.last.get(&tid) != Some(&child) {
            self.unspoken += 1;
            return Ok(());
        }
        self.exit(at, number::WAIT4, u64::from(tid))
    }

    /// Ends the text; says what it could not say.
    ///
    /// # Errors
    /// `out` cannot be written to.
    pub fn finish(mut self) -> io::Result<Losses> {
        self.out.flush()?;
        Ok(Losses {
            events: self.unspoken,
            renamed: self.renamed,
        })
    }
}
