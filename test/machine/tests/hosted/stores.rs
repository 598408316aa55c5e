//! Backing stores: patterns, failures, delays and lost power.

use std::sync::Arc;

use crate::common::*;
use vellum::addr::Pfn;
use vellum::platform::{CpuId, IoError, Store};
use vellum::sync::atomic::AtomicU64;
use vellum::sync::bytes::FrameBytes;
use vellum_machine::store::{BackingStore, BlockDevice, DeviceStore, PatternStore, Transfer};
use vellum_machine::{MachineConfig, MachineError};

const PAGE: usize = 4096;

fn pattern(store: u64, page: u64) -> u64 {
    store << 32 | page << 8 | 1
}

fn read(store: &dyn BackingStore, number: u64, index: u64) -> Result<Vec<u8>, IoError> {
    let words: Vec<AtomicU64> = (0..PAGE / 8).map(|_| AtomicU64::new(0xee)).collect();
    let page = FrameBytes::of_words(&words);
    store.read_page(number, index, page)?;
    let mut bytes = vec![0; PAGE];
    page.read(0, &mut bytes);
    Ok(bytes)
}

fn uniform(word: u64) -> Vec<u8> {
    word.to_ne_bytes().repeat(PAGE / 8)
}

/// A page whose words all differ.
fn varied(salt: u64) -> Vec<u8> {
    (0..PAGE as u64 / 8)
        .flat_map(|word| (word * 3 + salt).to_ne_bytes())
        .collect()
}

/// What every store must do.
fn behaves_as_a_store(store: &dyn BackingStore) {
    assert_eq!(read(store, 1, 2), Ok(uniform(pattern(1, 2))));
    store.write_page(1, 2, &varied(5)).unwrap();
    store.write_page(1, 3, &uniform(77)).unwrap();
    let mut nearly_uniform = uniform(8);
    nearly_uniform[PAGE - 1] = 1;
    store.write_page(1, 9, &nearly_uniform).unwrap();
    assert_eq!(read(store, 1, 9), Ok(nearly_uniform));
    assert_eq!(read(store, 1, 2), Ok(varied(5)));
    assert_eq!(read(store, 1, 3), Ok(uniform(77)));
    assert_eq!(read(store, 2, 2), Ok(uniform(pattern(2, 2))));
    let offset = |page: u64, word: u64| page * PAGE as u64 + word * 8;
    assert_eq!(store.stored_word(1, offset(2, 4)), Some(4 * 3 + 5));
    assert_eq!(store.stored_word(1, offset(3, 511)), Some(77));
    assert_eq!(store.stored_word(1, offset(4, 0)), Some(pattern(1, 4)));
    assert_eq!(store.stored_word(1, 4), None);
    // Discarded pages are zero, whatever they were, until they are written again.
    store.discard_pages(1, 3..4).unwrap();
    store.discard_pages(1, 5..7).unwrap();
    store.discard_pages(1, 100..u64::MAX).unwrap();
    for page in [3, 5, 6, 100, 1 << 40] {
        assert_eq!(read(store, 1, page), Ok(uniform(0)), "page {page}");
        assert_eq!(store.stored_word(1, offset(page, 1)), Some(0));
    }
    assert_eq!(read(store, 1, 4), Ok(uniform(pattern(1, 4))));
    assert_eq!(read(store, 2, 5), Ok(uniform(pattern(2, 5))));
    store.write_page(1, 5, &varied(8)).unwrap();
    assert_eq!(read(store, 1, 5), Ok(varied(8)));
    store.write_page(2, 2, &varied(6)).unwrap();
    store.discard(1);
    assert_eq!(read(store, 1, 6), Ok(uniform(pattern(1, 6))));
    assert_eq!(read(store, 1, 2), Ok(uniform(pattern(1, 2))));
    assert_eq!(read(store, 2, 2), Ok(varied(6)));
}

#[test]
fn a_pattern_store_makes_up_what_was_never_written() {
    let store = PatternStore::new(PAGE, pattern);
    behaves_as_a_store(&store);
    assert_eq!(store.written_pages(), 1);
}

#[test]
fn a_store_on_a_device_does_the_same_in_memory_and_in_a_file() {
    let device = Arc::new(BlockDevice::memory(PAGE, 16));
    behaves_as_a_store(&DeviceStore::new(device, pattern));
    let path = std::env::temp_dir().join(format!("vellum-device-{}", std::process::id()));
    let device = Arc::new(BlockDevice::file(&path, PAGE, 16).unwrap());
    let store = DeviceStore::new(Arc::clone(&device), pattern);
    behaves_as_a_store(&store);
    store.write_page(9, 9, &varied(1)).unwrap();
    store.flush().unwrap();
    device.lose_power();
    let result = read(&store, 9, 9);
    std::fs::remove_file(&path).unwrap();
    assert_eq!(result, Ok(varied(1)));
    assert_eq!(
        std::fs::metadata(&path).map_err(|error| error.kind()).err(),
        Some(std::io::ErrorKind::NotFound)
    );
}

#[test]
fn transfers_fail_and_are_slow_as_planned() {
    let store = PatternStore::new(PAGE, pattern);
    store.faults().fail_every(3);
    let results: Vec<_> = (0..7).map(|page| read(&store, 0, page).is_ok()).collect();
    assert_eq!(results, [true, true, false, true, true, false, true]);
    store.faults().heal();
    store.faults().fail_range(Transfer::Write, 10..12);
    store.faults().set_delay(250);
    assert_eq!(store.write_page(0, 9, &varied(1)), Ok(()));
    assert_eq!(store.write_page(0, 10, &varied(1)), Err(IoError));
    assert_eq!(store.write_page(0, 12, &varied(1)), Ok(()));
    assert_eq!(read(&store, 0, 10), Ok(uniform(pattern(0, 10))));
    assert_eq!(store.faults().failures(), 3);
    assert_eq!(store.faults().delay_spent(), 4 * 250);
    store.faults().heal();
    assert_eq!(store.write_page(0, 10, &varied(1)), Ok(()));
}

#[test]
fn writes_since_the_last_flush_vanish_with_the_power() {
    let device = Arc::new(BlockDevice::memory(PAGE, 8));
    let store = DeviceStore::new(Arc::clone(&device), pattern);
    store.write_page(0, 0, &varied(1)).unwrap();
    store.flush().unwrap();
    store.write_page(0, 0, &varied(2)).unwrap();
    store.write_page(0, 1, &varied(3)).unwrap();
    assert_eq!(read(&store, 0, 0), Ok(varied(2)));
    device.lose_power();
    assert_eq!(read(&store, 0, 0), Ok(varied(1)));
    assert_eq!(read(&store, 0, 1), Ok(uniform(pattern(0, 1))));
    // Devices write back in any order: block 1 made it, block 0 did not.
    store.write_page(0, 0, &varied(4)).unwrap();
    store.write_page(0, 1, &varied(5)).unwrap();
    device.lose_power_except(|block| block == 1);
    assert_eq!(read(&store, 0, 0), Ok(varied(1)));
    assert_eq!(read(&store, 0, 1), Ok(varied(5)));
}

#[test]
fn a_device_whose_power_is_cut_fails_until_it_is_back() {
    let device = BlockDevice::memory(PAGE, 8);
    device.cut_power_after(2);
    device.write(0, &varied(1)).unwrap();
    device.flush().unwrap();
    device.write(1, &varied(2)).unwrap();
    let mut bytes = uniform(0);
    assert_eq!(device.write(2, &varied(3)), Err(IoError));
    assert_eq!(device.flush(), Err(IoError));
    assert_eq!(device.read(0, &mut bytes), Err(IoError));
    device.lose_power();
    device.read(0, &mut bytes).unwrap();
    assert_eq!(bytes, varied(1));
    assert!(!device.is_written(1));
    device.write(1, &varied(2)).unwrap();
}

#[test]
fn a_full_device_refuses_new_pages_and_keeps_the_old() {
    let device = Arc::new(BlockDevice::memory(PAGE, 2));
    let store = DeviceStore::new(device, pattern);
    for page in 0..2 {
        store.write_page(4, page, &varied(page)).unwrap();
    }
    assert_eq!(store.write_page(4, 2, &varied(2)), Err(IoError));
    assert_eq!(read(&store, 4, 2), Ok(uniform(pattern(4, 2))));
    assert_eq!(store.write_page(4, 1, &varied(9)), Ok(()));
    store.discard(4);
    assert_eq!(store.write_page(5, 0, &varied(3)), Ok(()));
}

#[test]
fn a_block_of_a_discarded_store_does_not_show_its_old_contents() {
    let device = Arc::new(BlockDevice::memory(PAGE, 1));
    let store = DeviceStore::new(Arc::clone(&device), pattern);
    store.write_page(1, 0, &varied(1)).unwrap();
    store.flush().unwrap();
    store.discard(1);
    store.write_page(2, 0, &varied(2)).unwrap();
    device.lose_power();
    assert_eq!(read(&store, 2, 0), Ok(uniform(pattern(2, 0))));
}

#[test]
fn the_machine_transfers_frames_and_counts_them() {
    let store = Arc::new(PatternStore::new(PAGE, pattern));
    let machine = build(MachineConfig {
        high_from: Some(Pfn(0x180)),
        store: Arc::clone(&store) as Arc<dyn BackingStore>,
        ..MachineConfig::new(1 << 20)
    });
    machine.run_on(CpuId(0), || {
        // SAFETY: nobody else uses the machine.
        unsafe {
            machine.read_page(3, 5, Pfn(0x110)).unwrap();
            machine.read_page(3, 6, Pfn(0x190)).unwrap();
        }
        machine.write_page(3, 7, Pfn(0x190)).unwrap();
        store.faults().fail_every(1);
        assert_eq!(machine.write_page(3, 8, Pfn(0x110)), Err(IoError));
    });
    assert_eq!(machine.ram_word(Pfn(0x110), 4088), Some(pattern(3, 5)));
    assert_eq!(
        machine.store().stored_word(3, 7 * 4096 + 8),
        Some(pattern(3, 6))
    );
    let stats = machine.stats();
    assert_eq!(
        (stats.pages_read, stats.pages_written, stats.io_errors),
        (2, 1, 1)
    );
}

#[test]
fn a_store_with_other_pages_than_frames_is_refused() {
    let config = MachineConfig {
        store: Arc::new(PatternStore::new(8192, pattern)),
        ..MachineConfig::new(1 << 20)
    };
    let arena = vellum_machine::Arena::new(1 << 20).unwrap();
    let refused = vellum_machine::Machine::new(config, arena).err();
    assert_eq!(
        refused,
        Some(MachineError::StorePages {
            expected: 4096,
            found: 8192
        })
    );
}
