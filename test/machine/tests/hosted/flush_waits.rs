//! A flush returns only when accesses in progress have completed.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Barrier, Mutex};

use crate::common::*;
use vellum::addr::Pfn;
use vellum::platform::CpuId;

const ADDRESS: u64 = 0x40_0000;

#[test]
fn a_flush_waits_for_an_access_in_progress_on_the_other_cpu() {
    let machine = machine(2, 8 << 20);
    let mut tables = Tables::new(&machine, Pfn(0x100));
    let entry = tables.map(ADDRESS, Pfn(0x400), ALL);
    let root = tables.root;
    let inside = Arc::new(Barrier::new(2));
    let (go_on, may_go_on) = channel::<()>();
    let may_go_on = Mutex::new(may_go_on);
    let stored = Arc::new(AtomicBool::new(false));
    machine.set_access_hook(Some(Arc::new({
        let inside = Arc::clone(&inside);
        move |cpu, _| {
            assert_eq!(cpu, CpuId(1));
            inside.wait();
            may_go_on.lock().unwrap().recv().unwrap();
        }
    })));
    machine.record_flushes(true);
    std::thread::scope(|scope| {
        scope.spawn(|| mmu(&machine, 1).store(SPACE, root, ADDRESS, 0x55).unwrap());
        // The store has translated and has not stored.
        inside.wait();
        entry.store(0, Ordering::SeqCst);
        let flusher = scope.spawn(|| {
            flush(&machine, 0b10, page(ADDRESS), false);
            // Whatever the schedule: after the flush, the store is there.
            stored.store(
                word(&machine, Pfn(0x400), 0).load(Ordering::SeqCst) == 0x55,
                Ordering::SeqCst,
            );
        });
        while machine.take_flushes().is_empty() {
            std::thread::yield_now();
        }
        // The flush has begun. It cannot end before the store.
        let ended_early = flusher.is_finished();
        go_on.send(()).unwrap();
        assert!(!ended_early);
    });
    assert!(stored.load(Ordering::SeqCst));
}

#[test]
fn random_unmapping_never_lets_a_store_through_after_its_flush() {
    // One CPU stores as fast as it can; another unmaps, flushes, and checks
    // that the page does not change from then on.
    let machine = machine(2, 8 << 20);
    let mut tables = Tables::new(&machine, Pfn(0x100));
    let entry = tables.map(ADDRESS, Pfn(0x400), ALL);
    let mapped = entry.load(Ordering::Relaxed);
    let root = tables.root;
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut value = 0;
            while !done.load(Ordering::Relaxed) {
                value += 1;
                let _ = mmu(&machine, 1).store(SPACE, root, ADDRESS, value);
            }
        });
        for _ in 0..2000 {
            entry.store(0, Ordering::SeqCst);
            flush(&machine, 0b11, page(ADDRESS), false);
            let data = word(&machine, Pfn(0x400), 0);
            let before = data.load(Ordering::SeqCst);
            for _ in 0..20 {
                assert_eq!(data.load(Ordering::SeqCst), before);
            }
            entry.store(mapped, Ordering::SeqCst);
        }
        done.store(true, Ordering::Relaxed);
    });
}
