//! Shootdowns: interrupting CPUs, and forgetting pages.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use vellum_description::Time;

use crate::Effort;
use crate::host::{Host, pin};
use crate::memory::Mapping;
use crate::rounds::{Rounds, nanoseconds, shortened};

/// What the description says of shootdowns, but for forgetting everything.
pub(crate) struct Prices {
    pub send: Time,
    pub arrive: Time,
    pub handle: Time,
    pub page: Time,
}

/// Most CPUs that are interrupted at once.
const MOST_TARGETS: usize = 16;

/// `membarrier` commands.
const REGISTER: libc::c_int = 1 << 4;
const INTERRUPT: libc::c_int = 1 << 3;

fn membarrier(command: libc::c_int) -> io::Result<()> {
    // SAFETY: takes integers only.
    match unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// What interrupting CPUs that run this process costs the sender, and each target.
struct Interrupts {
    call: f64,
    stolen: f64,
}

pub(crate) fn prices(host: &Host, effort: Effort) -> io::Result<Prices> {
    let page = page(host, effort)?;
    let first = host.first();
    let mut cores = std::collections::BTreeSet::from([first.core]);
    let others = host.cpus().iter().filter(|cpu| cores.insert(cpu.core));
    let targets: Vec<usize> = others.map(|cpu| cpu.cpu).take(MOST_TARGETS).collect();
    let assumed = |ns: f64, why: &str| Time::new(ns, format!("assumed: {why}"));
    if targets.is_empty() || membarrier(REGISTER).is_err() {
        let why = match targets.is_empty() {
            true => "there is no other core to interrupt",
            false => "the kernel refuses membarrier, with which interrupts are measured",
        };
        return Ok(Prices {
            send: assumed(120.0, why),
            arrive: assumed(700.0, why),
            handle: assumed(318.0, why),
            page,
        });
    }
    let rounds = match effort {
        Effort::Full => 15,
        Effort::Quick => 3,
    };
    let mut one = Vec::new();
    let mut more = Vec::new();
    let mut stolen = Vec::new();
    for _ in 0..rounds {
        let interrupts = interrupts(first.cpu, &targets[..1], effort)?;
        one.push(interrupts.call);
        stolen.push(interrupts.stolen);
        if targets.len() > 1 {
            more.push(self::interrupts(first.cpu, &targets, effort)?.call);
        }
    }
    let (one, stolen) = (Rounds::of(one), Rounds::of(stolen));
    let send = match more.is_empty() {
        true => assumed(
            120.0,
            "one write of the interrupt controller; with one other core it cannot be told apart",
        ),
        false => {
            let slope = (Rounds::of(more).median() - one.median()) / (targets.len() - 1) as f64;
            let how = format!(
                "derived: membarrier that interrupts {} CPUs, less one that interrupts 1, for each",
                targets.len()
            );
            Time::new(shortened(slope.max(0.0)), how)
        }
    };
    let arrive = (one.median() - send.ns - stolen.median()).max(0.0);
    Ok(Prices {
        arrive: Time::new(
            shortened(arrive),
            format!(
                "derived: {} ns for membarrier that interrupts 1 CPU, less flush.send and \
                 flush.handle",
                shortened(one.median())
            ),
        ),
        send,
        handle: stolen.time("what each membarrier takes from a CPU that counts meanwhile"),
        page,
    })
}

/// Interrupts `targets`, which count meanwhile.
fn interrupts(sender: usize, targets: &[usize], effort: Effort) -> io::Result<Interrupts> {
    let calls: u32 = match effort {
        Effort::Full => 2000,
        Effort::Quick => 100,
    };
    let ready = AtomicUsize::new(0);
    let stop = AtomicBool::new(false);
    let count = AtomicU64::new(0);
    thread::scope(|scope| {
        let threads: Vec<_> = targets
            .iter()
            .enumerate()
            .map(|(place, &cpu)| {
                let (ready, stop, count) = (&ready, &stop, &count);
                scope.spawn(move || {
                    let pinned = pin(cpu);
                    ready.fetch_add(1, Ordering::AcqRel);
                    let mut done = 0u64;
                    while !stop.load(Ordering::Relaxed) {
                        done += 1;
                        if place == 0 {
                            count.store(done, Ordering::Relaxed);
                        }
                    }
                    pinned
                })
            })
            .collect();
        let measured = (|| {
            pin(sender)?;
            while ready.load(Ordering::Acquire) < targets.len() {
                std::hint::spin_loop();
            }
            // How fast the first target counts undisturbed, and then with interrupts.
            let quiet = counted(&count, || spin_for(f64::from(calls) * 500.0));
            let mut failed = None;
            let disturbed = counted(&count, || {
                for _ in 0..calls {
                    if let Err(error) = membarrier(INTERRUPT) {
                        failed = Some(error);
                    }
                }
            });
            if let Some(error) = failed {
                return Err(error);
            }
            let lost = 1.0 - (disturbed.count / disturbed.ns) / (quiet.count / quiet.ns);
            let call = disturbed.ns / f64::from(calls);
            Ok(Interrupts {
                call,
                stolen: (call * lost).max(0.0),
            })
        })();
        stop.store(true, Ordering::Relaxed);
        for thread in threads {
            thread
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        }
        measured
    })
}

struct Counted {
    count: f64,
    ns: f64,
}

/// How far `count` gets during `work`.
fn counted(count: &AtomicU64, work: impl FnOnce()) -> Counted {
    let before = count.load(Ordering::Relaxed);
    let ns = nanoseconds(work);
    let after = count.load(Ordering::Relaxed);
    Counted {
        count: after.saturating_sub(before).max(1) as f64,
        ns,
    }
}

fn spin_for(ns: f64) {
    let begun = Instant::now();
    while (begun.elapsed().as_nanos() as f64) < ns {
        std::hint::spin_loop();
    }
}

/// What forgetting a page takes on the CPU itself: taking the right to store away needs
/// it, giving the right does not, and otherwise the kernel does the same.
fn page(host: &Host, effort: Effort) -> io::Result<Time> {
    /// Few enough that Linux forgets them one by one.
    const PAGES: usize = 32;
    const CALLS: u32 = 200;
    pin(host.first().cpu)?;
    // SAFETY: takes an integer.
    let page_bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    let bytes = PAGES * usize::try_from(page_bytes).unwrap_or(4096);
    let mut mapping = Mapping::touched(bytes)?;
    let mut failed = None;
    let rounds = Rounds::take(effort, 25, || {
        let (mut taking, mut giving) = (Vec::new(), Vec::new());
        for _ in 0..CALLS {
            // A page that was stored to is writable again and may be in the TLB.
            mapping
                .words()
                .iter_mut()
                .step_by(512)
                .for_each(|word| *word += 1);
            for (times, prot) in [
                (&mut taking, libc::PROT_READ),
                (&mut giving, libc::PROT_READ | libc::PROT_WRITE),
            ] {
                let start = mapping.words().as_mut_ptr().cast();
                times.push(nanoseconds(|| {
                    // SAFETY: the range is mapped and ours; until the right to store is
                    // given again nobody stores there.
                    if unsafe { libc::mprotect(start, bytes, prot) } != 0 {
                        failed = Some(io::Error::last_os_error());
                    }
                }));
            }
        }
        let median = |times| Rounds::of(times).median();
        ((median(taking) - median(giving)) / PAGES as f64).max(0.0)
    });
    match failed {
        Some(error) => Err(error),
        None => Ok(rounds.time(&format!(
            "mprotect of {PAGES} pages: taking the right to store away, less giving it, a page"
        ))),
    }
}
