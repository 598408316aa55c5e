//! Where spaces place what is mapped without a place of its own.

use super::*;
use crate::space::Layout;
use crate::table::{Aarch64_4K, Sv39, X86Pae};

with_each_design_and_format! {
    mappings_come_below_the_base_and_away_from_what_is_kept_free => placed;
    the_lowest_pages_are_not_mapped_unless_somebody_says_so => lowest;
    aligned_requests_begin_where_superpages_can => aligned;
}

fn kept(start: u64, end: u64) -> [PageRange; 4] {
    let kept = PageRange {
        start: Vpn(start),
        end: Vpn(end),
    };
    let none = PageRange::default();
    [none, kept, none, none]
}

fn anywhere<F: Format, R: ReverseMap>(space: AnySpace<'_, F, R>, pages: u64) -> u64 {
    space.map(&MapRequest::anonymous(pages, RW)).unwrap().0
}

fn placed<F: Format, R: ReverseMap>(design: &str) {
    let vm = any_vm::<F, R>(design, 1024);
    let space = vm.create_space().unwrap();
    let layout = Layout {
        base: Vpn(0x2000),
        kept_free: kept(0x1e00, 0x1f00),
        ..Layout::fixed::<F>()
    };
    space.set_layout(&layout).unwrap();
    assert_eq!(anywhere(space, 0x80), 0x2000 - 0x80, "{design}");
    assert_eq!(anywhere(space, 0x100), 0x1e00 - 0x100, "kept free");
    assert_eq!(anywhere(space, 0x80), 0x1f00, "{design}");
    let child = space.fork().unwrap();
    assert_eq!(anywhere(child, 0x10), 0x1cf0, "{design}");
    // A hint there is followed nowhere, a fixed place is taken.
    let at = |placement| space.map(&MapRequest::anonymous(4, RW).at(placement));
    assert_eq!(
        at(Placement::Hint(Vpn(0x1e80))),
        Ok(Vpn(0x1d00 - 4)),
        "{design}"
    );
    assert_eq!(
        at(Placement::Hint(Vpn(0x9000))),
        Ok(Vpn(0x9000)),
        "{design}"
    );
    assert_eq!(
        at(Placement::FixedFree(Vpn(0x1e80))),
        Ok(Vpn(0x1e80)),
        "{design}"
    );
    // Neither a heap nor a stack grows there.
    space
        .set_layout(&Layout {
            kept_free: kept(0x4010, 0x4020),
            ..layout
        })
        .unwrap();
    space.set_heap_start(Vpn(0x4000)).unwrap();
    assert_eq!(space.set_heap_end(Vpn(0x4010)), Ok(()), "{design}");
    assert_eq!(
        space.set_heap_end(Vpn(0x4011)),
        Err(MapError::Occupied),
        "{design}"
    );
    let kept_free = kept(0x7010, 0x7020);
    space
        .set_layout(&Layout {
            kept_free,
            ..layout
        })
        .unwrap();
    map_at(space, 0x7028, MapRequest::anonymous(4, RW).growing_down());
    assert!(space.fault(0x7020 << 12, Access::Write).is_ok(), "{design}");
    let below = space.fault(0x701f << 12, Access::Write);
    assert_eq!(below, Err(FaultError::NoRegion), "{design}");
    // Without room below the base, above it; and moves go the same ways.
    space
        .set_layout(&Layout {
            base: Vpn(0x20),
            ..Layout::fixed::<F>()
        })
        .unwrap();
    assert_eq!(
        anywhere(space, 0x100),
        F::USER_END.0 - 1 - 0x100,
        "{design}"
    );
    space
        .set_layout(&Layout {
            base: Vpn(0x1000),
            ..Layout::fixed::<F>()
        })
        .unwrap();
    let moved = space
        .remap(Vpn(0x9000), 4, 4, RemapPlacement::Leave)
        .unwrap();
    assert_eq!(moved.range.start, Vpn(0x1000 - 4), "{design}");
    let wrong = Layout {
        base: Vpn(F::USER_END.0 + 1),
        ..layout
    };
    assert_eq!(
        space.set_layout(&wrong),
        Err(MapError::BadRange),
        "{design}"
    );
    assert_eq!(space.divide(Vpn(0x9000)), Ok(true), "{design}");
    assert!(anywhere(space, 4) < F::USER_END.0, "{design}");
    finish(&vm, &[space, child]);
}

fn lowest<F: Format, R: ReverseMap>(design: &str) {
    let vm = any_vm::<F, R>(design, 1024);
    let space = vm.create_space().unwrap();
    let at = |page, placement: fn(Vpn) -> Placement| {
        space.map(&MapRequest::anonymous(1, RW).at(placement(Vpn(page))))
    };
    for page in [0, 15] {
        assert_eq!(
            at(page, Placement::Fixed),
            Err(MapError::BadRange),
            "{page}"
        );
        assert_eq!(
            at(page, Placement::FixedFree),
            Err(MapError::BadRange),
            "{page}"
        );
        assert_eq!(space.set_heap_start(Vpn(page)), Err(MapError::BadRange));
        assert!(at(page, Placement::Hint).unwrap().0 > 16, "{page} {design}");
    }
    assert_eq!(
        at(F::USER_END.0 - 1, Placement::Fixed),
        Ok(Vpn(F::USER_END.0 - 1))
    );
    assert_eq!(at(F::USER_END.0, Placement::Fixed), Err(MapError::BadRange));
    map_at(space, 17, MapRequest::anonymous(1, RW).growing_down());
    let target = RemapPlacement::Fixed(Vpn(8));
    assert_eq!(
        space.remap(Vpn(17), 1, 1, target).err(),
        Some(MapError::BadRange)
    );
    assert!(space.fault(16 << 12, Access::Write).is_ok(), "{design}");
    let below = space.fault(15 << 12, Access::Write);
    assert_eq!(below, Err(FaultError::NoRegion), "no stack grows there");
    let layout = Layout {
        lowest: Vpn(0),
        ..Layout::fixed::<F>()
    };
    space.set_layout(&layout).unwrap();
    assert_eq!(at(0, Placement::Fixed), Ok(Vpn(0)), "{design}");
    finish(&vm, &[space]);
}

fn aligned<F: Format, R: ReverseMap>(design: &str) {
    let vm = any_vm::<F, R>(design, 1024);
    let space = vm.create_space().unwrap();
    let top = anywhere(space, 3);
    let of = |pages, order| {
        let request = MapRequest::anonymous(pages, RW).at(Placement::Aligned(order));
        space.map(&request).map(|start| start.0)
    };
    let first = of(512, 9).unwrap();
    assert_eq!(
        (first % 512, first > F::USER_END.0 - 2048),
        (0, true),
        "{design}"
    );
    let second = of(700, 9).unwrap();
    assert_eq!(second, first - 1024, "{design}");
    assert_eq!(of(1, 0).unwrap(), top - 1, "the highest gap");
    for order in [63, 64, u32::MAX] {
        assert_eq!(of(1, order), Err(MapError::NoGap), "{order} {design}");
    }
    finish(&vm, &[space]);
}

fn entropy<F: Format>() -> [u32; 3] {
    let entropy = Layout::entropy::<F>();
    let bits = [entropy.base, entropy.stack, entropy.heap];
    // Each bit is 1 for some seeds and 0 for others, and no other bit changes.
    let mut seen = [[0u64; 2]; 3];
    for seed in 0..300 {
        let layout = Layout::random::<F>(seed, 2048);
        assert_eq!(layout, Layout::random::<F>(seed, 2048));
        let fixed = Layout::fixed::<F>();
        assert!(layout.base < layout.stack_end && layout.stack_end <= fixed.stack_end);
        assert!(layout.base.0 >= F::USER_END.0 / 8);
        let room = (128 << 20) >> F::FRAME_SHIFT;
        assert!(layout.stack_end.0 - layout.base.0 >= room);
        let drawn = [
            layout.stack_end.0 - layout.base.0 - room,
            fixed.stack_end.0 - layout.stack_end.0,
            layout.heap_gap,
        ];
        for (seen, drawn) in seen.iter_mut().zip(drawn) {
            seen[0] |= drawn;
            seen[1] |= !drawn;
        }
    }
    for (seen, bits) in seen.iter().zip(bits) {
        assert_eq!(seen[0], (1 << bits) - 1, "{}", F::NAME);
        assert_eq!(seen[1], u64::MAX, "{}", F::NAME);
    }
    bits
}

#[test]
fn layouts_are_as_random_as_they_say() {
    assert_eq!(entropy::<X86_64>(), [28, 22, 18]);
    assert_eq!(entropy::<X86Pae>(), [12, 11, 13]);
    assert_eq!(entropy::<Sv39>(), [19, 18, 18]);
    assert_eq!(entropy::<Aarch64_4K>(), [28, 22, 18]);
    // A large stack moves the base.
    let (small, large) = (2048, 1 << 20);
    let [small, large] = [small, large].map(|pages| Layout::random::<X86_64>(7, pages));
    assert_eq!(small.stack_end, large.stack_end);
    assert_eq!(small.base.0 - large.base.0, (1 << 20) - 32768);
}
