//! Reads and writes of files in memory, beside the host's tmpfs and beside `memcpy`.
//!
//! Rounds of all that is compared are interleaved, and each figure is the median over
//! rounds with the smallest and the largest, in GB/s. The ceiling is `memcpy` into the
//! same kind of memory: pages of an allocation that nobody has touched for writes that
//! make pages, the same allocation again for the others. The host's figures include the
//! entry into its kernel, whose cost is printed as that of a call that does nothing.
//!
//! `cargo bench -p vellum-machine --bench files`

use std::fs::{File, OpenOptions};
use std::hint::black_box;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::{Arc, Barrier};
use std::time::Instant;

use vellum::platform::CpuId;
use vellum::rmap::Family;
use vellum::table::X86_64;
use vellum::{Design, ObjectId, Vm};
use vellum_machine::{Arena, ArenaOptions, Machine, MachineConfig};

const FILE: usize = 128 << 20;
const ROUNDS: usize = 7;

type Manager = Vm<Arc<Machine>, X86_64, Family>;

/// Seconds that some work takes.
fn timed(work: impl FnOnce()) -> f64 {
    let start = Instant::now();
    work();
    start.elapsed().as_secs_f64()
}

/// Figures of one name, one for each round.
#[derive(Default)]
struct Row {
    name: String,
    rates: Vec<f64>,
}

#[derive(Default)]
struct Table(Vec<Row>);

impl Table {
    /// A round of `bytes` took `seconds`.
    fn add(&mut self, name: &str, bytes: usize, seconds: f64) {
        let rate = bytes as f64 / seconds / 1e9;
        match self.0.iter_mut().find(|row| row.name == name) {
            Some(row) => row.rates.push(rate),
            None => self.0.push(Row {
                name: name.into(),
                rates: vec![rate],
            }),
        }
    }

    fn print(mut self) {
        for row in &mut self.0 {
            row.rates.sort_by(f64::total_cmp);
            let median = row.rates[row.rates.len() / 2];
            let (low, high) = (row.rates[0], row.rates[row.rates.len() - 1]);
            println!(
                "{:<44} {median:>7.2} GB/s  ({low:.2} .. {high:.2})",
                row.name
            );
        }
    }
}

/// A file of the host's tmpfs, which goes when it is dropped.
struct HostFile(File, PathBuf);

impl HostFile {
    fn new(number: usize) -> std::io::Result<HostFile> {
        let name = format!("/dev/shm/vellum-files-{}-{number}", std::process::id());
        let mut options = OpenOptions::new();
        let options = options.read(true).write(true).create(true).truncate(true);
        Ok(HostFile(options.open(&name)?, name.into()))
    }
}

impl Drop for HostFile {
    fn drop(&mut self) {
        // It is in memory, and gone at the next start at the latest.
        let _ = std::fs::remove_file(&self.1);
    }
}

/// Offsets of the blocks of a file.
fn blocks(block: usize) -> impl Iterator<Item = u64> {
    (0..FILE).step_by(block).map(|place| place as u64)
}

fn one_block(table: &mut Table, vm: &Manager, block: usize) -> std::io::Result<()> {
    let data = vec![7; block];
    let mut back = vec![0; block];
    let host = HostFile::new(0)?;
    let file = vm.create_shared_memory(0).expect("a file");
    for _ in 0..ROUNDS {
        let name = |what: &str| format!("{what}, blocks of {} KiB", block >> 10);
        for what in ["write new pages", "overwrite"] {
            let seconds = timed(|| {
                for place in blocks(block) {
                    assert_eq!(vm.write_at(file, place, &[&data]), Ok(block));
                }
            });
            table.add(&name(&format!("{what}: ours")), FILE, seconds);
            let mut result = Ok(());
            let seconds = timed(|| {
                for place in blocks(block) {
                    result = host.0.write_all_at(&data, place);
                }
            });
            result?;
            table.add(&name(&format!("{what}: host")), FILE, seconds);
        }
        let seconds = timed(|| {
            for place in blocks(block) {
                assert_eq!(vm.read_at(file, place, &mut [&mut back]), Ok(block));
            }
        });
        table.add(&name("read: ours"), FILE, seconds);
        let mut result = Ok(());
        let seconds = timed(|| {
            for place in blocks(block) {
                result = host.0.read_exact_at(&mut back, place);
            }
        });
        result?;
        table.add(&name("read: host"), FILE, seconds);
        let mut memory: Vec<u8> = Vec::with_capacity(FILE);
        for what in ["memcpy to fresh memory", "memcpy to resident memory"] {
            memory.clear();
            let seconds = timed(|| {
                for _ in blocks(block) {
                    memory.extend_from_slice(black_box(&data));
                }
            });
            table.add(&name(what), FILE, seconds);
        }
        let seconds = timed(|| vm.set_size(file, 0).expect("a file"));
        table.add(&name("truncate: ours"), FILE, seconds);
        let mut result = Ok(());
        let seconds = timed(|| result = host.0.set_len(0));
        result?;
        table.add(&name("truncate: host"), FILE, seconds);
    }
    vm.release_object(file).expect("a file");
    Ok(())
}

/// Two CPUs do `work` at once, after `prepare` has been done.
fn two(
    table: &mut Table,
    name: &str,
    machine: &Machine,
    prepare: impl Fn(),
    work: impl Fn(usize) + Sync,
) {
    for _ in 0..ROUNDS {
        prepare();
        let barrier = Barrier::new(3);
        std::thread::scope(|scope| {
            for cpu in 0..2 {
                let (barrier, work) = (&barrier, &work);
                scope.spawn(move || {
                    barrier.wait();
                    machine.run_on(CpuId(cpu as u16), || work(cpu));
                    barrier.wait();
                });
            }
            barrier.wait();
            let seconds = timed(|| {
                barrier.wait();
            });
            table.add(name, FILE, seconds);
        });
    }
}

fn many(table: &mut Table, machine: &Machine, vm: &Manager, block: usize) {
    let data = vec![7; block];
    let files: Vec<ObjectId> = (0..2)
        .map(|_| machine.run_on(CpuId(0), || vm.create_shared_memory(0).expect("a file")))
        .collect();
    let half = |cpu: usize, file: ObjectId, from: usize| {
        for place in (from..from + FILE / 2).step_by(block) {
            let written = vm.write_at(file, place as u64, &[&data]);
            assert_eq!(written, Ok(block), "CPU {cpu}");
        }
    };
    let empty = || {
        machine.run_on(CpuId(0), || {
            for &file in &files {
                vm.set_size(file, 0).expect("a file");
            }
        });
    };
    let name = |what: &str| format!("two CPUs, {what}, blocks of {} KiB", block >> 10);
    let two_files = |cpu| half(cpu, files[cpu], 0);
    two(table, &name("two new files"), machine, empty, two_files);
    two(table, &name("two files again"), machine, || (), two_files);
    let halves = |cpu| half(cpu, files[0], cpu * FILE / 2);
    two(table, &name("halves of a new file"), machine, empty, halves);
    two(table, &name("halves of it again"), machine, || (), halves);
    let copies = |_: usize| {
        let mut memory = vec![1_u8; block];
        for _ in (0..FILE / 2).step_by(block) {
            memory.copy_from_slice(black_box(&data));
        }
        black_box(&memory);
    };
    let what = "memcpy to one block";
    two(table, &name(what), machine, || (), copies);
    machine.run_on(CpuId(0), || {
        for file in files {
            vm.release_object(file).expect("a file");
        }
    });
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut config = MachineConfig::new(4 * FILE as u64);
    config.cpus = 2;
    let options = ArenaOptions {
        huge_pages: true,
        prefault: true,
    };
    let arena = Arena::with_options(config.arena_bytes()?, options)?;
    let machine = Arc::new(Machine::new(config, arena)?);
    let vm: Manager = Vm::new(Arc::clone(&machine), Design::default())?;
    let mut table = Table::default();
    for block in [4 << 10, 1 << 20] {
        machine.run_on(CpuId(0), || one_block(&mut table, &vm, block))?;
        many(&mut table, &machine, &vm, block);
    }
    table.print();
    let calls = 200_000;
    let seconds = timed(|| {
        for _ in 0..calls {
            // SAFETY: the call has no arguments and changes nothing.
            black_box(unsafe { libc::getppid() });
        }
    });
    let each = seconds * 1e9 / f64::from(calls);
    println!("an entry into the host's kernel: {each:.0} ns");
    Ok(())
}
