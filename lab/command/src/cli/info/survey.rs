//! Counting a trace's events.

use std::collections::HashMap;

use serde::Serialize;

use super::cpu_time::{CpuTime, Tally};
use crate::cli::dump::Kind;
use vellum_trace::model::{Model, Totals};
use vellum_trace::{Access, AccessMarks, Event, EventKind, Header, TaskId, TraceReader};

const CLONE_VM: u64 = 0x100;
const CLONE_VFORK: u64 = 0x4000;
const CLONE_THREAD: u64 = 0x1_0000;
const PAGE: u64 = 4096;

/// What `vellum info` reports; its JSON form.
#[derive(Serialize, Debug)]
pub struct Report {
    pub trace: String,
    pub file_bytes: u64,
    pub bytes_per_event: f64,
    pub kernel: String,
    pub architecture: String,
    pub cpus: u32,
    pub memory_bytes: u64,
    pub command: Vec<String>,
    pub transparent_huge_pages: bool,
    pub cuts: Vec<String>,
    /// How many of the first events make the state with which the trace begins.
    pub beginning_events: u64,
    pub memory_groups: Vec<GroupRow>,
    pub seconds: f64,
    /// `None`: the trace has no CPU times.
    pub cpu_time: Option<CpuTime>,
    pub tasks: usize,
    pub files: usize,
    pub lost: u64,
    pub creations: Creations,
    pub events: Vec<Count>,
    pub total_events: u64,
    /// `None`: accessed marks were not sampled.
    pub accesses: Option<AccessCounts>,
    pub faults: Vec<FaultRow>,
    pub around_pages: u64,
    pub commands: Vec<CommandRow>,
    pub anonymous_pages: u64,
    pub singleton_pages: u64,
    pub singleton_share: f64,
    pub peak_bytes: u64,
    pub peak_anonymous_bytes: u64,
    pub peak_file_bytes: u64,
    pub unmapped_faults: u64,
    pub invisible: Vec<String>,
}

/// A memory group with a limit.
#[derive(Serialize, Clone, Debug)]
pub struct GroupRow {
    pub path: String,
    pub limit_bytes: u64,
    pub used_bytes: u64,
}

/// Samples of accessed marks.
#[derive(Serialize, Clone, Copy, Default, Debug)]
pub struct AccessCounts {
    /// Microseconds from one sample to the next.
    pub interval_us: u64,
    /// Whether only the number of pages that were used is known of each region.
    pub of_regions: bool,
    /// Ranges of pages in them.
    pub ranges: u64,
    /// Pages in these.
    pub pages: u64,
}

fn groups(header: &Header) -> Vec<GroupRow> {
    let rows = header.groups.iter().map(|group| GroupRow {
        path: group.path.clone(),
        limit_bytes: group.limit,
        used_bytes: group.used,
    });
    rows.collect()
}

/// How tasks came to be.
#[derive(Serialize, Clone, Copy, Default, Debug)]
pub struct Creations {
    pub initial: u64,
    pub vfork: u64,
    pub fork: u64,
    pub thread: u64,
    /// Other tasks that share their creator's address space.
    pub shared_space: u64,
}

/// A number with its name.
#[derive(Serialize, Debug)]
pub struct Count {
    pub kind: &'static str,
    pub count: u64,
}

/// Faults of one access: by mode and by what was found.
#[derive(Serialize, Clone, Copy, Default, Debug)]
pub struct FaultRow {
    pub access: &'static str,
    pub user_absent: u64,
    pub user_present: u64,
    pub kernel_absent: u64,
    pub kernel_present: u64,
}

/// What the runs of one command did. A task counts under its creator's command
/// until it executes one of its own.
#[derive(Serialize, Clone, Default, Debug)]
pub struct CommandRow {
    pub command: String,
    pub execs: u64,
    pub creations: u64,
    pub faults: u64,
    pub cow_faults: u64,
    pub maps: u64,
    pub unmaps: u64,
    pub protects: u64,
    pub brks: u64,
    pub reads: u64,
    pub writes: u64,
}

/// Counts events as they come.
pub struct Survey {
    kinds: [u64; Kind::ALL.len()],
    accessed: AccessCounts,
    creations: Creations,
    faults: [FaultRow; 3],
    around_pages: u64,
    commands: Vec<CommandRow>,
    /// Which command each task runs: its name's number plus one, 0 for none.
    command_of: HashMap<TaskId, usize>,
    cpu_time: Tally,
    model: Model,
}

impl Survey {
    pub fn new(trace: &TraceReader) -> Self {
        let header = trace.header();
        let row = |name: &str| CommandRow {
            command: name.to_owned(),
            ..CommandRow::default()
        };
        let mut commands = vec![row("(before exec)")];
        commands.extend(header.strings.iter().map(|name| row(name)));
        let initial = header.tasks.iter().filter(|task| task.parent.is_none());
        let fault = |access| FaultRow {
            access,
            ..FaultRow::default()
        };
        Survey {
            kinds: [0; Kind::ALL.len()],
            accessed: AccessCounts::default(),
            creations: Creations {
                initial: initial.count() as u64,
                ..Creations::default()
            },
            faults: [fault("read"), fault("write"), fault("execute")],
            around_pages: 0,
            commands,
            command_of: HashMap::new(),
            cpu_time: Tally::new(header),
            model: Model::default(),
        }
    }

    /// Counts one event.
    pub fn take(&mut self, header: &Header, event: &Event) {
        if let EventKind::Accessed { length, .. } = event.kind {
            self.accessed.ranges += 1;
            self.accessed.pages += length / PAGE;
            return;
        }
        self.model.take(event);
        self.cpu_time.take(event);
        self.kinds[Kind::of(&event.kind) as usize] += 1;
        if let EventKind::Exec { name } = event.kind
            && (name as usize) < header.strings.len()
        {
            self.command_of.insert(event.task, name as usize + 1);
        }
        let command = self.command_of.get(&event.task).copied().unwrap_or(0);
        let row = &mut self.commands[command];
        match event.kind {
            EventKind::Create { child, clone_flags } => {
                row.creations += 1;
                self.command_of.insert(child, command);
                *self.creations.slot(clone_flags) += 1;
            }
            EventKind::Exec { .. } => row.execs += 1,
            EventKind::Map { .. } => row.maps += 1,
            EventKind::Unmap { .. } => row.unmaps += 1,
            EventKind::Protect { .. } => row.protects += 1,
            EventKind::Brk { .. } => row.brks += 1,
            EventKind::FileRead { .. } => row.reads += 1,
            EventKind::FileWrite { .. } => row.writes += 1,
            EventKind::MapAround { first, last, .. } => self.around_pages += last - first + 1,
            EventKind::Fault {
                access,
                kernel,
                present,
                ..
            } => {
                row.faults += 1;
                row.cow_faults += u64::from(present && access == Access::Write);
                *self.faults[access as usize].slot(kernel, present) += 1;
            }
            _ => {}
        }
    }

    /// The summary.
    pub fn report(self, trace: &TraceReader) -> Report {
        let header = trace.header();
        let environment = &header.environment;
        let totals: Totals = self.model.totals();
        let singletons = totals.anonymous - totals.shared_by_fork;
        let cpu_time = self.cpu_time.report(header, |task| {
            let command = self.command_of.get(&task).copied().unwrap_or(0);
            self.commands[command].command.clone()
        });
        let mut commands: Vec<CommandRow> = self.commands;
        commands.retain(|row| row.execs + row.faults + row.creations > 0);
        commands.sort_by(|a, b| b.faults.cmp(&a.faults).then(a.command.cmp(&b.command)));
        let count = |kind: Kind| Count {
            kind: kind.name(),
            count: self.kinds[kind as usize],
        };
        // Samples are told of apart.
        let kinds = Kind::ALL.into_iter();
        let kinds = kinds.filter(|kind| *kind != Kind::Accessed);
        Report {
            trace: trace.path().display().to_string(),
            file_bytes: trace.file_length(),
            bytes_per_event: trace.file_length() as f64 / header.events.max(1) as f64,
            kernel: environment.kernel.clone(),
            architecture: environment.architecture.clone(),
            cpus: environment.cpus,
            memory_bytes: environment.memory,
            command: environment.command.clone(),
            transparent_huge_pages: !environment.thp_off,
            cuts: environment.cuts.clone(),
            beginning_events: header.beginning.min(header.events),
            memory_groups: groups(header),
            seconds: header.duration_us as f64 / 1e6,
            cpu_time,
            tasks: header.tasks.len(),
            files: header.files.len(),
            lost: header.lost,
            creations: self.creations,
            events: kinds.map(count).collect(),
            accesses: header.accesses.map(|accesses| AccessCounts {
                interval_us: accesses.interval_us,
                of_regions: accesses.marks == AccessMarks::Regions,
                ..self.accessed
            }),
            total_events: header.events,
            faults: self.faults.to_vec(),
            around_pages: self.around_pages,
            commands,
            anonymous_pages: totals.anonymous,
            singleton_pages: singletons,
            singleton_share: singletons as f64 / totals.anonymous.max(1) as f64,
            peak_bytes: totals.peak * PAGE,
            peak_anonymous_bytes: totals.peak_anonymous * PAGE,
            peak_file_bytes: totals.peak_file * PAGE,
            unmapped_faults: totals.unmapped_faults,
            invisible: header.invisible.clone(),
        }
    }
}

impl Creations {
    fn slot(&mut self, clone_flags: u64) -> &mut u64 {
        if clone_flags & CLONE_THREAD != 0 {
            &mut self.thread
        } else if clone_flags & CLONE_VFORK != 0 {
            &mut self.vfork
        } else if clone_flags & CLONE_VM != 0 {
            &mut self.shared_space
        } else {
            &mut self.fork
        }
    }
}

impl FaultRow {
    fn slot(&mut self, kernel: bool, present: bool) -> &mut u64 {
        match (kernel, present) {
            (false, false) => &mut self.user_absent,
            (false, true) => &mut self.user_present,
            (true, false) => &mut self.kernel_absent,
            (true, true) => &mut self.kernel_present,
        }
    }
}
