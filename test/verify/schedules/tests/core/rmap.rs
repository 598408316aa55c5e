//! Visits of private pages beside what changes who maps them: a mapping that
//! nobody touches is found every time.

use crate::world::{World, at};
use vellum::addr::{Pfn, Vpn};
use vellum::platform::CpuId;
use vellum::rmap::{Env, ReverseMap, Verdict};
use vellum::space::{RemapPlacement, SpaceId};
use vellum::table::Format;

const ZERO: CpuId = CpuId(0);
const PAGES: std::ops::Range<u64> = 0x1000..0x1003;

explored! {
    a_mapping_is_found_while_relatives_come_and_go: 32 => relatives;
    a_mapping_is_found_after_the_space_that_made_the_page_ended: 32 => orphans;
    a_mapping_is_found_while_a_relative_moves_its_own: 32 => moves;
    a_mapping_is_found_while_relatives_store_and_end: 32 => ends;
    a_mapping_is_found_while_its_page_becomes_another_spaces: 48 => turns;
    the_last_spaces_of_a_family_end_beside_a_visit: 76 => last_exits;
}

/// A space with a few private pages, and their frames, each with a reference.
pub fn family<R: ReverseMap>(world: &World<R>) -> (SpaceId, Vec<Pfn>) {
    world.alone(|| {
        let space = world.space();
        world.anonymous(space, PAGES.start, 3);
        let pages = PAGES.map(|page| {
            world.store(ZERO, space, at(page, 0), page).unwrap();
            let (frame, _) = world.vm.space(space).translate(Vpn(page)).unwrap();
            let pin = world.vm.pin();
            // SAFETY: the frame is mapped; `put` drops the reference.
            assert!(unsafe { vellum::probe::layers(&world.vm).memory.get_raw(&pin, frame) });
            frame
        });
        (space, pages.collect())
    })
}

pub fn put<R: ReverseMap>(world: &World<R>, frames: &[Pfn]) {
    world.alone(|| {
        let pin = world.vm.pin();
        for &frame in frames {
            // SAFETY: the reference that `family` took.
            unsafe {
                vellum::probe::layers(&world.vm)
                    .memory
                    .put_raw(&pin, frame, 0)
            };
        }
    });
}

/// Whether a visit finds the entry of `page` in `space`, and how many it finds.
pub fn finds<R: ReverseMap, F: Format>(
    world: &World<R, F>,
    frame: Pfn,
    space: SpaceId,
    page: u64,
) -> (bool, u32) {
    let pin = world.vm.pin();
    // SAFETY: the visit changes nothing.
    let layers = unsafe { vellum::probe::layers(&world.vm) };
    let env = Env {
        memory: layers.memory,
        pin: &pin,
    };
    let mut found = false;
    let visitor = &mut |slot: &vellum::rmap::Slot<'_, F>| {
        found |= slot.space() == space.to_bits() as u32 && slot.page() == Vpn(page);
        Verdict::Keep
    };
    let rmap = layers.rmap;
    let report = rmap.visit::<_, F>(&env, &world.vm, frame, visitor);
    (found, report.hits)
}

/// What happens to a page beside its visits.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Beside {
    /// It gets no new mappings: those that stay are found.
    NoForks,
    /// It gets new mappings. Designs that stop when they have found as many as
    /// there were at the start may have found new ones in the place of old.
    Forks,
}

fn visit_all<R: ReverseMap>(
    world: &World<R>,
    frames: &[Pfn],
    space: SpaceId,
    beside: Beside,
    rounds: usize,
) {
    for _ in 0..rounds {
        for (&frame, page) in frames.iter().zip(PAGES) {
            let (found, hits) = finds(world, frame, space, page);
            let enough = beside == Beside::Forks && R::MISSES_BESIDE_FORKS && hits > 0;
            assert!(
                found || enough,
                "missed at page {page:#x}, {hits} others found"
            );
        }
    }
}

/// Forks, stores in the child and its child, and ends both.
fn live<R: ReverseMap>(world: &World<R>, cpu: CpuId, parent: SpaceId) {
    let child = world.vm.space(parent).fork().unwrap().id();
    let grandchild = world.vm.space(child).fork().unwrap().id();
    world.store(cpu, child, at(0x1001, 1), 7).unwrap();
    assert_eq!(world.vm.space(child).exit(), Ok(true));
    world.store(cpu, grandchild, at(0x1002, 1), 8).unwrap();
    assert_eq!(world.load(cpu, grandchild, at(0x1001, 1)), Ok(0));
    assert_eq!(world.vm.space(grandchild).exit(), Ok(true));
}

fn relatives<R: ReverseMap>() {
    let world = World::<R>::new(3, 300, "");
    let (space, frames) = family(&world);
    let visit = |_| visit_all(&world, &frames, space, Beside::Forks, 6);
    let work = |cpu| live(&world, cpu, space);
    world.run(&[&visit, &work, &work]);
    put(&world, &frames);
    world.finish(&[space], &[]);
}

fn orphans<R: ReverseMap>() {
    let world = World::<R>::new(3, 300, "");
    let (first, frames) = family(&world);
    let [heir, other] = world.alone(|| {
        let heirs = [(); 2].map(|()| world.vm.space(first).fork().unwrap().id());
        assert_eq!(world.vm.space(first).exit(), Ok(true));
        heirs
    });
    let visit = |_| visit_all(&world, &frames, heir, Beside::Forks, 6);
    let work = |cpu| live(&world, cpu, heir);
    let end = |cpu| {
        world.store(cpu, other, at(0x1000, 1), 1).unwrap();
        live(&world, cpu, other);
        assert_eq!(world.vm.space(other).exit(), Ok(true));
    };
    world.run(&[&visit, &work, &end]);
    put(&world, &frames);
    world.finish(&[heir], &[]);
}

fn moves<R: ReverseMap>() {
    let world = World::<R>::new(3, 300, "");
    let (space, frames) = family(&world);
    let child = world.alone(|| world.vm.space(space).fork().unwrap().id());
    let visit = |_| visit_all(&world, &frames, space, Beside::NoForks, 4);
    let shift = |cpu: CpuId| {
        let mut from = PAGES.start;
        for to in [0x2000, 0x11fe, 0x3000, PAGES.start] {
            let placement = RemapPlacement::Fixed(Vpn(to));
            world
                .vm
                .space(child)
                .remap(Vpn(from), 3, 3, placement)
                .unwrap();
            assert_eq!(world.load(cpu, child, at(to + 2, 0)), Ok(0x1002));
            from = to;
        }
    };
    world.run(&[&visit, &shift]);
    put(&world, &frames);
    world.finish(&[space, child], &[]);
}

/// Relatives store to their pages and end, none is born.
fn ends<R: ReverseMap>() {
    let world = World::<R>::new(3, 300, "");
    let (space, frames) = family(&world);
    let [child, other] = world.alone(|| {
        let child = world.vm.space(space).fork().unwrap().id();
        [child, world.vm.space(child).fork().unwrap().id()]
    });
    let visit = |_| visit_all(&world, &frames, space, Beside::NoForks, 6);
    let end = |cpu: CpuId| {
        let own = [child, other][usize::from(cpu.0) - 1];
        world.store(cpu, own, at(0x1001, 1), 7).unwrap();
        assert_eq!(world.load(cpu, own, at(0x1001, 0)), Ok(0x1001));
        assert_eq!(world.vm.space(own).exit(), Ok(true));
    };
    world.run(&[&visit, &end, &end]);
    put(&world, &frames);
    world.finish(&[space], &[]);
}

/// The space that made the pages ends, and the one that is left stores to each:
/// the page is its own from then on, where it was all the time.
fn turns<R: ReverseMap>() {
    let world = World::<R>::new(3, 300, "");
    let (first, frames) = family(&world);
    let space = world.alone(|| {
        let space = world.vm.space(first).fork().unwrap().id();
        // For reuse, nobody else may refer to the pages.
        let pin = world.vm.pin();
        for &frame in &frames {
            // SAFETY: the reference that `family` took.
            unsafe {
                vellum::probe::layers(&world.vm)
                    .memory
                    .put_raw(&pin, frame, 0)
            };
        }
        space
    });
    let visit = |_| visit_all(&world, &frames, space, Beside::NoForks, 5);
    let store = |cpu: CpuId| {
        for page in PAGES {
            world.store(cpu, space, at(page, 1), 7).unwrap();
            assert_eq!(world.load(cpu, space, at(page, 0)), Ok(page));
        }
    };
    world.alone(|| assert_eq!(world.vm.space(first).exit(), Ok(true)));
    world.run(&[&visit, &store]);
    assert_eq!(world.alone(|| world.vm.stats().events.cow_reuses), 3);
    world.finish(&[space], &[]);
}

fn last_exits<R: ReverseMap>() {
    let world = World::<R>::new(3, 300, "");
    let (space, frames) = family(&world);
    let child = world.alone(|| world.vm.space(space).fork().unwrap().id());
    let visit = |_| {
        for _ in 0..3 {
            for (&frame, page) in frames.iter().zip(PAGES) {
                finds(&world, frame, space, page);
            }
        }
    };
    let end = |cpu: CpuId| {
        let ended = [space, child][usize::from(cpu.0) - 1];
        assert_eq!(world.vm.space(ended).exit(), Ok(true));
    };
    world.run(&[&visit, &end, &end]);
    put(&world, &frames);
    world.finish(&[], &[]);
}
