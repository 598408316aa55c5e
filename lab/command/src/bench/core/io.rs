//! `write`, `read` and `readonce`: files by bytes, in blocks of every size.

use vellum_engine::{Call, FileSlot, Op};

use super::run::{self, Machine, Part};
use super::script::{SETUP, Script, Timing, Writer};
use crate::bench::Variant;
use crate::bench::findings::Findings;
use crate::bench::request::Request;
use crate::bench::sweep::{self, blocks, cpu_counts, size_name};
use crate::failure::Failure;
use vellum_terminal::progress::Interrupt;
use vellum_terminal::text::plural;

const MIB: u64 = 1 << 20;

/// Bytes that one CPU moves in a piece while the others have nothing to do.
const PIECE: u64 = 4 * MIB;

const BUFFER: &str = "Data comes from one buffer and goes to one, of a block, as in a program that \
     reads and writes; the core copies it once.";

/// What is done, by how many CPUs.
struct Sweep {
    cpus: usize,
    shared: bool,
    /// Bytes of each CPU.
    bytes: u64,
    /// Sizes of the blocks.
    blocks: Vec<u64>,
}

/// Part of a file that a CPU works on.
#[derive(Clone, Copy)]
struct Share {
    file: FileSlot,
    at: u64,
}

impl Sweep {
    fn new(request: &Request, variant: &Variant, cpus: usize) -> Result<Sweep, Failure> {
        Ok(Sweep {
            cpus,
            shared: variant.name == "shared",
            bytes: request.sizes.get("mebibytes") * MIB,
            blocks: blocks(request).map_err(Failure::usage)?,
        })
    }

    /// What `cpu` works on: a file of its own, or its part of the one that all share.
    fn share(&self, cpu: usize) -> Share {
        match self.shared {
            false => Share {
                file: FileSlot(cpu as u32),
                at: 0,
            },
            true => Share {
                file: FileSlot(0),
                at: cpu as u64 * self.bytes,
            },
        }
    }

    fn files(&self) -> impl Iterator<Item = FileSlot> + use<> {
        let files = if self.shared { 1 } else { self.cpus };
        (0..files as u32).map(FileSlot)
    }

    fn new_files(&self, writer: &mut Writer) {
        for file in self.files() {
            writer.op(Op::Call(Call::NewFile { file }));
        }
        writer.cut(SETUP);
    }

    /// All CPUs do `call` on their bytes at once; one CPU does it in pieces.
    fn all(
        &self,
        writer: &mut Writer,
        phase: super::script::Phase,
        call: impl Fn(Share, u64) -> Call,
    ) {
        let step = match self.cpus {
            1 => PIECE.min(self.bytes),
            _ => self.bytes,
        };
        for from in (0..self.bytes).step_by(step as usize) {
            let bytes = step.min(self.bytes - from);
            for cpu in 0..self.cpus {
                writer.beside(cpu);
                let Share { file, at } = self.share(cpu);
                let share = Share {
                    file,
                    at: at + from,
                };
                writer.op(Op::Call(call(share, bytes)));
            }
            writer.beside(0);
            writer.piece(phase, bytes / MIB * self.cpus as u64);
        }
    }

    fn writes(&self) -> Script {
        let mut writer = Writer::new(self.cpus);
        writer.phases_apart();
        self.new_files(&mut writer);
        let truncate = writer.phase("truncate", "MiB", Timing::Slices);
        let mebibytes = self.bytes / MIB * self.cpus as u64;
        for &block in &self.blocks {
            let name = size_name(block);
            let new = writer.phase(format!("new pages, {name}"), "MiB", Timing::Slices);
            let again = writer.phase(format!("overwrite, {name}"), "MiB", Timing::Slices);
            for phase in [new, again] {
                self.all(&mut writer, phase, |Share { file, at }, bytes| {
                    Call::Write {
                        file,
                        at,
                        block,
                        bytes,
                    }
                });
            }
            for file in self.files() {
                writer.op(Op::Call(Call::SetSize { file, bytes: 0 }));
            }
            writer.piece(truncate, mebibytes);
        }
        writer.finish()
    }

    fn reads(&self) -> Script {
        let mut writer = Writer::new(self.cpus);
        writer.phases_apart();
        self.new_files(&mut writer);
        // By one CPU: what several do in set-up may begin before there are files.
        for Share { file, at } in (0..self.cpus).map(|cpu| self.share(cpu)) {
            let (block, bytes) = (PIECE, self.bytes);
            writer.op(Op::Call(Call::Write {
                file,
                at,
                block,
                bytes,
            }));
        }
        writer.cut(SETUP);
        for &block in &self.blocks {
            let name = format!("read, {}", size_name(block));
            let read = writer.phase(name, "MiB", Timing::Slices);
            self.all(&mut writer, read, |Share { file, at }, bytes| Call::Read {
                file,
                at,
                block,
                bytes,
            });
        }
        writer.finish()
    }

    fn facts(&self) -> Vec<String> {
        vec![format!(
            "{} MiB for each CPU; a GB/s is a MiB in {:.1} us.",
            self.bytes / MIB,
            MIB as f64 / 1e3
        )]
    }
}

/// Writes of new pages and again, in blocks of every size.
pub fn write(request: &Request, interrupt: &Interrupt) -> Result<Findings, Failure> {
    sweep(request, interrupt, "writes", Sweep::writes)
}

/// Reads of what is in memory, in blocks of every size.
pub fn read(request: &Request, interrupt: &Interrupt) -> Result<Findings, Failure> {
    sweep(request, interrupt, "reads", Sweep::reads)
}

fn sweep(
    request: &Request,
    interrupt: &Interrupt,
    what: &str,
    script: fn(&Sweep) -> Script,
) -> Result<Findings, Failure> {
    let mut findings = Findings::default();
    'all: for variant in &request.variants {
        for cpus in cpu_counts(request) {
            let of = Sweep::new(request, variant, cpus)?;
            let title = sweep::title(what, cpus, of.shared);
            let script = script(&of);
            let facts = of.facts();
            if run::add(
                &mut findings,
                Part::new(&title, facts, &script).on(Machine::PREFAULTED),
                request,
                interrupt,
            )? {
                break 'all;
            }
        }
    }
    findings.notes = vec![BUFFER.to_owned(), run::NOT_MODELLED.to_owned()];
    Ok(findings)
}

/// Files of a backing store, each read once from its beginning to its end.
pub fn readonce(request: &Request, interrupt: &Interrupt) -> Result<Findings, Failure> {
    let mebibytes = request.sizes.get("mebibytes");
    let block = request.sizes.get("block");
    let mut findings = Findings::default();
    for cpus in cpu_counts(request) {
        let mut writer = Writer::new(cpus);
        let phase = writer.phase("read once", "MiB", Timing::Slices);
        for _ in 0..request.sizes.get("rounds") {
            let files = || (0..cpus as u32).map(FileSlot);
            for file in files() {
                let pages = mebibytes * MIB / 4096;
                writer.op(Op::FileOpen { file, pages });
            }
            writer.cut(SETUP);
            for (cpu, file) in files().enumerate() {
                writer.beside(cpu);
                writer.op(Op::Call(Call::ReadThrough { file, block }));
            }
            writer.beside(0);
            writer.piece(phase, mebibytes * cpus as u64);
            for file in files() {
                writer.op(Op::Call(Call::Close { file }));
            }
            writer.cut(SETUP);
        }
        let script = writer.finish();
        let title = plural(cpus, "CPU, a file for each", "CPUs, a file for each");
        let facts = vec![format!(
            "Files of {mebibytes} MiB, read in blocks of {}. They fit into memory: there is no \
             reclaim yet.",
            size_name(block)
        )];
        let needs = (mebibytes * cpus as u64 * MIB / 4 * 5 + 128 * MIB).next_multiple_of(64 * MIB);
        let part = Part::new(&title, facts, &script)
            .on(Machine::PREFAULTED)
            .needing(needs);
        if run::add(&mut findings, part, request, interrupt)? {
            break;
        }
    }
    findings.notes = vec![
        "The store makes up the bytes of a page when it is read, which takes about as long as \
         zeroing it, and no time to reach a device."
            .to_owned(),
        run::NOT_MODELLED.to_owned(),
    ];
    Ok(findings)
}
