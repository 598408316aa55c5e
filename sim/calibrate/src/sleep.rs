//! Sleeping and waking.

use std::io;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use vellum_description::Time;

use crate::Effort;
use crate::host::{Host, pin};
use crate::rounds::{Rounds, nanoseconds};

/// What the description says of sleeping.
pub(crate) struct Prices {
    pub sleep: Time,
    pub wake: Time,
    pub wake_latency: Time,
}

/// Sleeps until `word` is not `value`.
fn wait(word: &AtomicU32, value: u32) {
    while word.load(Ordering::Acquire) == value {
        // SAFETY: the word outlives the call, which only loads it; without a timeout
        // the pointer for one is null.
        unsafe {
            libc::syscall(
                libc::SYS_futex,
                word.as_ptr(),
                libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG,
                value,
                std::ptr::null::<libc::timespec>(),
            )
        };
    }
}

/// Wakes one who sleeps at `word`.
fn wake(word: &AtomicU32) {
    // SAFETY: the address is a name only; nothing is loaded or stored.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG,
            1,
        )
    };
}

pub(crate) fn prices(host: &Host, effort: Effort) -> io::Result<Prices> {
    let one = host.first().cpu;
    let switch = switches(one, effort)?;
    let sleep_time = |wake: f64| (switch.median() - wake).max(0.0);
    let others = host.pairs(1, |a, b| a.core != b.core);
    let Some(&(_, other)) = others.first() else {
        let half = switch.median() / 2.0;
        let assumed =
            |why: &str| Time::new(crate::rounds::shortened(half), format!("assumed: {why}"));
        let why = "half of a switch between two threads of one CPU; there is no other core";
        return Ok(Prices {
            sleep: assumed(why),
            wake: assumed(why),
            wake_latency: assumed(why),
        });
    };
    let (waking, latency) = wakes(one, other.cpu, effort)?;
    let sleep = sleep_time(waking.median());
    let how = format!("waking a thread that sleeps on CPU {}", other.cpu);
    Ok(Prices {
        sleep: Time::new(
            crate::rounds::shortened(sleep),
            format!(
                "derived: {} ns to wake another thread of the same CPU and sleep, less system.wake",
                crate::rounds::shortened(switch.median())
            ),
        ),
        wake: waking.time(&format!("{how}, a futex")),
        wake_latency: latency.time(&format!("{how}, from the end of the call until it runs")),
    })
}

/// Two threads of one CPU wake each other in turn: nanoseconds of a turn.
fn switches(cpu: usize, effort: Effort) -> io::Result<Rounds> {
    const TURNS: u32 = 500;
    let rounds = 25;
    let turn = AtomicU32::new(0);
    pin(cpu)?;
    thread::scope(|scope| {
        // Threads inherit the CPU.
        let (ping, end) = (&turn, u32::MAX);
        scope.spawn(move || {
            loop {
                wait(ping, 0);
                if ping.load(Ordering::Acquire) == end {
                    return;
                }
                ping.store(0, Ordering::Release);
                wake(ping);
            }
        });
        let measured = Rounds::take(effort, rounds, || {
            let all = nanoseconds(|| {
                for _ in 0..TURNS {
                    turn.store(1, Ordering::Release);
                    wake(&turn);
                    wait(&turn, 1);
                }
            });
            all / f64::from(2 * TURNS)
        });
        turn.store(end, Ordering::Release);
        wake(&turn);
        Ok(measured)
    })
}

/// What waking takes, and how long after the call the sleeper runs.
fn wakes(one: usize, other: usize, effort: Effort) -> io::Result<(Rounds, Rounds)> {
    let count = match effort {
        Effort::Full => 401,
        Effort::Quick => 5,
    };
    let turn = AtomicU32::new(0);
    let ran_at = AtomicU64::new(0);
    let zero = Instant::now();
    pin(one)?;
    thread::scope(|scope| {
        let sleeper = scope.spawn(|| {
            let pinned = pin(other);
            for round in 0..count {
                wait(&turn, round);
                ran_at.store(zero.elapsed().as_nanos() as u64, Ordering::Release);
            }
            pinned
        });
        let (mut waking, mut latency) = (Vec::new(), Vec::new());
        for round in 0..count {
            ran_at.store(0, Ordering::Release);
            // Until it sleeps.
            thread::sleep(Duration::from_micros(200));
            let begun = zero.elapsed().as_nanos() as u64;
            turn.store(round + 1, Ordering::Release);
            wake(&turn);
            let called = zero.elapsed().as_nanos() as u64;
            let ran = loop {
                match ran_at.load(Ordering::Acquire) {
                    0 => std::hint::spin_loop(),
                    ran => break ran,
                }
            };
            waking.push((called - begun) as f64);
            latency.push(ran.saturating_sub(called) as f64);
        }
        sleeper
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        Ok((Rounds::of(waking), Rounds::of(latency)))
    })
}
