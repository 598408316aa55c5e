//! Per-CPU lists, alone and with two threads.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use super::*;

#[test]
fn the_frame_freed_last_is_handed_out_first() {
    let memory = simple(1, 4096);
    let pin = memory.pin();
    let [a, b] = [(); 2].map(|()| memory.alloc(&pin, Request::page(SITE)).unwrap());
    memory.put(&pin, a);
    memory.put(&pin, b);
    assert_eq!(memory.alloc(&pin, Request::page(SITE)), Ok(b));
    assert_eq!(memory.alloc(&pin, Request::page(SITE)), Ok(a));
}

#[test]
fn single_frames_move_in_batches() {
    let memory = simple(1, 1 << 15);
    let pin = memory.pin();
    let held: Vec<Pfn> = (0..10_000)
        .map(|_| memory.alloc(&pin, Request::page(SITE)).unwrap())
        .collect();
    for pfn in held {
        memory.put(&pin, pfn);
    }
    let stats = memory.stats();
    assert!(
        (10_000 / 64..=10_000 / 62).contains(&stats.refills),
        "{} refills",
        stats.refills
    );
    assert!(stats.drains <= 10_000 / 62, "{} drains", stats.drains);
    assert!(stats.cached <= 378 && stats.cached > 0);
}

#[test]
fn a_small_machine_does_not_hide_its_frames_in_lists() {
    let memory = simple(4, 256);
    for cpu in 0..4 {
        run_on(cpu);
        let held: Vec<Pfn> = (0..60)
            .map(|_| memory.alloc(&memory.pin(), Request::page(SITE)).unwrap())
            .collect();
        for pfn in held {
            release(&memory, pfn, 0);
        }
    }
    assert!(memory.stats().cached <= 256 / 8);
}

#[test]
fn a_shortage_makes_other_cpus_give_back() {
    let memory = simple(2, 4096);
    let page = Request::page(SITE).urgent();
    run_on(1);
    let held: Vec<Pfn> = (0..300)
        .map(|_| memory.alloc(&memory.pin(), page).unwrap())
        .collect();
    for &pfn in &held[..200] {
        release(&memory, pfn, 0);
    }
    let hidden = memory.stats().cached;
    assert!(hidden > 100);
    run_on(0);
    let mut count = 0;
    while memory.alloc(&memory.pin(), page).is_ok() {
        count += 1;
    }
    assert_eq!(count, 4096 - 100 - hidden);
    // The other CPU hears of it when it next fills or empties a list.
    run_on(1);
    assert!(memory.alloc(&memory.pin(), page.order(1)).is_ok());
    run_on(0);
    assert!(memory.alloc(&memory.pin(), page).is_ok());
}

#[test]
fn two_threads_never_get_the_same_frame() {
    let memory = simple(2, 2048);
    let owners: Vec<AtomicU64> = (0..2048).map(|_| AtomicU64::new(0)).collect();
    let seed = Rng::new(3).next();
    let work = |cpu: u16| {
        run_on(cpu);
        let mut rng = Rng::new(seed ^ u64::from(cpu) << 32);
        let me = u64::from(cpu) + 1;
        let place = |pfn: Pfn| &owners[(pfn.0 - 0x100) as usize];
        let mut held: Vec<(Pfn, u32)> = Vec::new();
        for step in 0..30_000 {
            let pin = memory.pin();
            if rng.below(1600) > held.len() {
                let order = if rng.below(10) == 0 {
                    rng.below(4) as u32
                } else {
                    0
                };
                let Ok(pfn) = memory.alloc(&pin, Request::page(SITE).order(order)) else {
                    continue;
                };
                for frame in 0..1 << order {
                    let before = place(pfn.offset(frame)).swap(me, Ordering::Relaxed);
                    assert_eq!(before, 0, "step {step}: {pfn:?} is in use");
                }
                held.push((pfn, order));
            } else if let Some((pfn, order)) = held.pop() {
                for frame in 0..1 << order {
                    assert_eq!(place(pfn.offset(frame)).swap(0, Ordering::Relaxed), me);
                }
                if order == 0 && rng.below(4) == 0 {
                    memory.retire(&pin, pfn, false);
                } else {
                    memory.put_order(&pin, pfn, order);
                }
            }
        }
        for (pfn, order) in held {
            for frame in 0..1 << order {
                assert_eq!(place(pfn.offset(frame)).swap(0, Ordering::Relaxed), me);
            }
            release(&memory, pfn, order);
        }
    };
    thread::scope(|scope| {
        scope.spawn(|| work(0));
        scope.spawn(|| work(1));
    });
    assert_whole(&memory, 1);
    let stats = memory.stats();
    assert_eq!(stats.allocs, stats.frees);
}
