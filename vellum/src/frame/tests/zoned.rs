//! Memory maps, nodes, and zones.

use super::*;

fn refused(nodes_of: &[u16], map: &[MemoryRange]) -> SetupError {
    match PhysicalMemory::new(TestMachine::new(nodes_of, map)) {
        Ok(_) => panic!("accepted"),
        Err(error) => error,
    }
}

#[test]
fn a_memory_map_that_cannot_be_is_refused_with_the_place() {
    let low = |start, frames| range(start, frames, 0, Zone::Low);
    assert_eq!(refused(&[0], &[]), SetupError::NoMemory);
    assert_eq!(
        refused(&[0], &[low(0, 64), low(64, 0)]),
        SetupError::EmptyRange { range: 1 }
    );
    assert_eq!(
        refused(&[0], &[low(0, 64), low(63, 8)]),
        SetupError::RangeOrder { range: 1 }
    );
    assert_eq!(
        refused(&[0], &[low(64, 8), low(0, 8)]),
        SetupError::RangeOrder { range: 1 }
    );
    let high_end = low(Pfn::END.0 - 7, 7);
    assert!(PhysicalMemory::new(TestMachine::new(&[0], &[high_end])).is_ok());
    for beyond in [low(Pfn::END.0 - 7, 8), low(u32::MAX - 7, 8)] {
        assert_eq!(refused(&[0], &[beyond]), SetupError::RangeEnd { range: 0 });
    }
    assert_eq!(
        refused(&[0], &[range(0, 64, 0, Zone::High)]),
        SetupError::NoLowMemory
    );
    assert_eq!(refused(&[], &[low(0, 64)]), SetupError::CpuCount(0));
}

#[test]
fn memory_whose_frames_are_not_aligned_is_refused() {
    let map = [range(16, 64, 0, Zone::Low)];
    for askew in [8, 2048] {
        let machine = TestMachine::new(&[0], &map).askew_by(askew);
        let error = PhysicalMemory::new(machine).err();
        let is_first = |error| matches!(error, SetupError::Misaligned { frame: Pfn(16), .. });
        assert!(error.is_some_and(is_first), "{askew}");
    }
}

#[test]
fn nodes_that_do_not_exist_are_refused() {
    let map = [range(0, 64, 0, Zone::Low), range(64, 64, 3, Zone::Low)];
    let machine = |nodes_of: &[u16]| TestMachine::new(nodes_of, &map).with_nodes(2);
    let error = PhysicalMemory::new(machine(&[0])).err();
    assert_eq!(
        error,
        Some(SetupError::RangeNode {
            range: 1,
            node: NodeId(3)
        })
    );
    let error = PhysicalMemory::new(machine(&[0, 2])).err();
    let cpu = crate::platform::CpuId(1);
    assert_eq!(
        error,
        Some(SetupError::CpuNode {
            cpu,
            node: NodeId(2)
        })
    );
    assert!(std::format!("{}", error.unwrap()).contains("CPU 1 is on node 2"));
}

#[test]
fn holes_are_never_handed_out() {
    run_on(0);
    let map = [
        range(0x0, 9, 0, Zone::Low),
        range(0x10, 0x33, 0, Zone::Low),
        range(0x80, 0x41, 0, Zone::Low),
    ];
    let memory = PhysicalMemory::new(TestMachine::new(&[0], &map)).unwrap();
    assert!(memory.contains(Pfn(0)) && memory.contains(Pfn(0xc0)));
    assert!(!memory.contains(Pfn(9)) && !memory.contains(Pfn(0x43)) && !memory.contains(Pfn(0xc1)));
    let pin = memory.pin();
    let mut count = 0;
    while let Ok(pfn) = memory.alloc(&pin, Request::page(SITE).urgent()) {
        assert!(memory.contains(pfn), "{pfn:?} is a hole");
        count += 1;
    }
    assert_eq!(count, 9 + 0x33 + 0x41);
}

/// Two nodes, each with low and high memory.
fn two_nodes(nodes_of: &[u16]) -> Memory {
    run_on(0);
    let map = [
        range(0, 256, 0, Zone::Low),
        range(256, 256, 0, Zone::High),
        range(512, 256, 1, Zone::Low),
        range(768, 256, 1, Zone::High),
    ];
    PhysicalMemory::new(TestMachine::new(nodes_of, &map)).unwrap()
}

/// The zones in the order in which they run out, as quarters of the frames.
fn order_of_use(memory: &Memory, request: Request) -> Vec<u32> {
    let pin = memory.pin();
    let mut order: Vec<u32> = Vec::new();
    while let Ok(pfn) = memory.alloc(&pin, request) {
        if order.last() != Some(&(pfn.0 / 256)) {
            order.push(pfn.0 / 256);
        }
    }
    order
}

#[test]
fn memory_is_used_near_first_and_high_before_low() {
    let page = Request::page(SITE);
    let exact = |node| page.on_node(NodeId(node)).exact();
    assert_eq!(order_of_use(&two_nodes(&[0, 1]), page), [1, 0, 3, 2]);
    assert_eq!(order_of_use(&two_nodes(&[0, 1]), page.low()), [0, 2]);
    assert_eq!(
        order_of_use(&two_nodes(&[0, 1]), page.on_node(NodeId(1))),
        [3, 2, 1, 0]
    );
    assert_eq!(order_of_use(&two_nodes(&[0, 1]), exact(1)), [3, 2]);
    assert_eq!(order_of_use(&two_nodes(&[0, 1]), exact(0).low()), [0]);
    assert_eq!(
        order_of_use(&two_nodes(&[0, 1]), page.order(3)),
        [1, 0, 3, 2]
    );
    assert_eq!(
        order_of_use(&two_nodes(&[1, 0]), page),
        [3, 2, 1, 0],
        "the CPU's node decides"
    );
}

#[test]
fn an_allocation_from_afar_is_counted() {
    let memory = two_nodes(&[0, 1]);
    let pin = memory.pin();
    let far = Request::page(SITE).on_node(NodeId(1));
    memory.alloc(&pin, far).unwrap();
    assert_eq!(
        memory.stats().remote_allocs,
        0,
        "it came from the node asked for"
    );
    order_of_use(&memory, Request::page(SITE));
    assert_eq!(memory.stats().remote_allocs, 511);
}

#[test]
fn a_frame_freed_elsewhere_goes_home() {
    let memory = two_nodes(&[0, 1]);
    let held: Vec<Pfn> = (0..200)
        .map(|_| memory.alloc(&memory.pin(), Request::page(SITE)).unwrap())
        .collect();
    run_on(1);
    for pfn in held {
        release(&memory, pfn, 0);
    }
    let pin = memory.pin();
    let pfn = memory.alloc(&pin, Request::page(SITE)).unwrap();
    assert_eq!(
        pfn.0 / 256,
        3,
        "the CPU's own node, not what was freed last"
    );
    memory.put(&pin, pfn);
    drop(pin);
    assert_whole(&memory, 0);
    let pin = memory.pin();
    for zone in 0..4 {
        let stats = memory.zone_stats(zone, &pin);
        assert_eq!((stats.total, stats.free, stats.blocks[8]), (256, 256, 1));
    }
}

#[test]
fn a_cpu_without_memory_of_its_own_uses_the_nearest() {
    run_on(0);
    let map = [range(0, 512, 0, Zone::Low), range(512, 512, 3, Zone::Low)];
    let memory = PhysicalMemory::new(TestMachine::new(&[2], &map)).unwrap();
    let pin = memory.pin();
    let held: Vec<Pfn> = (0..100)
        .map(|_| memory.alloc(&pin, Request::page(SITE)).unwrap())
        .collect();
    assert!(held.iter().all(|pfn| pfn.0 >= 512));
    assert!(memory.stats().refills < 50, "in batches, not one by one");
}

#[test]
fn high_memory_is_zeroed_and_copied_through_windows() {
    let memory = two_nodes(&[0]);
    let pin = memory.pin();
    let high = memory.alloc(&pin, Request::page(SITE).zeroed()).unwrap();
    assert!(!memory.is_direct(high));
    assert_eq!(memory.platform().peek(high), [0; 4096]);
    let low = memory.alloc(&pin, Request::page(SITE).low()).unwrap();
    assert!(memory.is_direct(low));
    memory.platform().scribble(high, 7);
    memory.copy(&pin, high, low);
    assert_eq!(memory.platform().peek(low), [7; 4096]);
    let other = memory.alloc(&pin, Request::page(SITE)).unwrap();
    memory.copy(&pin, high, other);
    assert_eq!(memory.platform().peek(other), [7; 4096]);
    // A zeroed allocation while one window is open takes the other.
    memory.with_bytes(&pin, high, |bytes| {
        memory.alloc(&pin, Request::page(SITE).zeroed()).unwrap();
        let mut first = [0];
        bytes.read(0, &mut first);
        assert_eq!(first, [7]);
    });
    // Every frame of a block is reached by the block's zone.
    let block = memory
        .alloc(&pin, Request::page(SITE).order(4).zeroed())
        .unwrap();
    assert!((0..16).all(|frame| memory.platform().peek(block.offset(frame)) == [0; 4096]));
}

#[test]
fn pages_leave_low_memory_to_those_who_need_it_low() {
    run_on(0);
    let map = [
        range(0x100, 4096, 0, Zone::Low),
        range(0x2000, 1024, 0, Zone::High),
    ];
    let memory = PhysicalMemory::new(TestMachine::new(&[0], &map)).unwrap();
    let pin = memory.pin();
    while memory.alloc(&pin, Request::page(SITE)).is_ok() {}
    assert!(memory.alloc(&pin, Request::page(SITE).low()).is_ok());
}

#[test]
fn frames_of_two_nodes_side_by_side_go_home_each_to_its_own() {
    run_on(0);
    let map = [
        range(0x100, 1024, 0, Zone::Low),
        range(0x1000, 1024, 1, Zone::Low),
        range(0x1400, 1024, 2, Zone::Low),
    ];
    let memory = PhysicalMemory::new(TestMachine::new(&[0, 1, 2], &map)).unwrap();
    let pin = memory.pin();
    for node in [1, 2] {
        let request = Request::page(SITE).on_node(NodeId(node)).exact().urgent();
        while memory.alloc(&pin, request).is_ok() {}
    }
    for pfn in [0x13ff, 0x1400] {
        memory.put(&pin, Pfn(pfn));
    }
    memory.send_home(&pin);
    assert_eq!(
        [1, 2].map(|zone| memory.zone_stats(zone, &pin).free),
        [1, 1]
    );
    drop(pin);
    census(&memory);
}
