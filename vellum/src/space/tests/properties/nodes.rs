//! Policies of nodes, by the sentences of mbind(2), set_mempolicy(2) and get_mempolicy(2).

use super::*;
use crate::frame::{NodePolicy, NodeSet};
use crate::platform::{NodeId, Zone};
use crate::space::PagesMoved;
use crate::testing::range;

with_each_design_and_format! {
    pages_lie_where_the_policy_of_their_region_says => placed;
    a_policy_cuts_and_unites_regions_and_moves_with_them => cut_and_moved;
    a_child_and_a_new_program_have_the_policies_of_who_made_them => inherited;
    pages_of_an_object_lie_where_it_says => of_objects;
    copies_and_pages_from_swap_lie_where_the_policy_says => copied;
    a_bound_page_comes_from_its_nodes_or_not_at_all => bound;
    pages_of_the_nodes_of_a_call_leave_before_it_fails => reclaimed;
    a_policy_that_cannot_be_is_refused_and_changes_nothing => refused;
    a_space_in_a_group_has_policies_and_is_charged => in_groups;
    superpages_and_folios_lie_where_the_policy_says => larger;
    random_calls_place_and_move_pages_as_the_policies_say => at_random;
}

const NODES: u16 = 4;

/// A machine with a CPU and so many frames on each node.
fn machine<F: Format, R: ReverseMap>(design: &str, frames: u32) -> AnyVm<F, R> {
    run_on(0);
    let design = Design::parse(design).unwrap();
    let map: Vec<_> = (0..NODES)
        .map(|node| range(u32::from(node) * frames, frames, node, Zone::Low))
        .collect();
    Vm::new(TestMachine::new(&[0, 1, 2, 3], &map), design).unwrap()
}

fn nodes(nodes: &[u16]) -> NodeSet {
    nodes.iter().copied().map(NodeId).collect()
}

fn bind(to: &[u16]) -> Option<NodePolicy> {
    Some(NodePolicy::Bind {
        nodes: nodes(to),
        home: None,
    })
}

fn prefer(to: &[u16]) -> Option<NodePolicy> {
    Some(NodePolicy::Prefer {
        nodes: nodes(to),
        home: None,
    })
}

fn set<F: Format, R: ReverseMap>(
    space: AnySpace<'_, F, R>,
    (first, pages): (u64, u64),
    policy: Option<NodePolicy>,
) -> Result<(), MapError> {
    space.set_node_policy(Some(PageRange::new(Vpn(AT + first), pages)), policy)
}

fn node_at<F: Format, R: ReverseMap>(space: AnySpace<'_, F, R>, page: u64) -> u16 {
    let (frame, _) = space.translate(Vpn(AT + page)).unwrap();
    let memory = space.vm.memory();
    let zone = memory.zone_of(frame);
    memory.zone_stats(zone, &space.vm.pin()).node.0
}

fn store<F: Format, R: ReverseMap>(space: AnySpace<'_, F, R>, pages: u64) -> Vec<u16> {
    for page in 0..pages {
        put(space, AT + page, page as u8 + 1);
    }
    (0..pages).map(|page| node_at(space, page)).collect()
}

fn policy_at<F: Format, R: ReverseMap>(space: AnySpace<'_, F, R>, page: u64) -> Option<NodePolicy> {
    let region = space.region_at(Vpn(AT + page)).unwrap();
    region.node_policy
}

fn placed<F: Format, R: ReverseMap>(design: &str) {
    let vm = machine::<F, R>(design, 512);
    let space = vm.create_space().unwrap();
    map_at(space, AT, MapRequest::anonymous(24, RW));
    set(space, (4, 4), bind(&[2, 3])).unwrap();
    set(space, (8, 4), prefer(&[3])).unwrap();
    let turns = Some(NodePolicy::Interleave(nodes(&[0, 1, 3])));
    set(space, (12, 4), turns).unwrap();
    assert!(vm.memory().set_node_weight(NodeId(2), 3));
    let weighted = Some(NodePolicy::WeightedInterleave(nodes(&[1, 2])));
    set(space, (16, 8), weighted).unwrap();
    let found = store(space, 24);
    // AT is 0x1000, so that 12 after it is the second of three, and 16 the first of four.
    let turn = |page: u64| [0, 1, 3][((AT + page) % 3) as usize];
    let by_weight = |page: u64| [1, 2, 2, 2][((AT + page) % 4) as usize];
    for (page, &node) in found.iter().enumerate() {
        let page = page as u64;
        let wanted = match page {
            0..4 => 0,
            4..8 => 2,
            8..12 => 3,
            12..16 => turn(page),
            _ => by_weight(page),
        };
        assert_eq!(node, wanted, "page {page} {design}");
    }
    assert_eq!(policy_at(space, 5), bind(&[2, 3]));
    assert_eq!(policy_at(space, 13), turns);
    assert_eq!(policy_at(space, 0), None);
    // From the CPU of node 3 another node of the set is nearest, unless a home is named.
    run_on(3);
    map_at(space, AT + 40, MapRequest::anonymous(2, RW));
    set(space, (40, 2), bind(&[2, 3])).unwrap();
    let home = Some(NodePolicy::Bind {
        nodes: nodes(&[0, 1, 2]),
        home: Some(NodeId(0)),
    });
    set(space, (41, 1), home).unwrap();
    put(space, AT + 40, 1);
    put(space, AT + 41, 1);
    assert_eq!((node_at(space, 40), node_at(space, 41)), (3, 0), "{design}");
    assert_eq!(policy_at(space, 41), home);
    run_on(0);
    finish(&vm, &[space]);
}

fn cut_and_moved<F: Format, R: ReverseMap>(design: &str) {
    let vm = machine::<F, R>(design, 512);
    let space = vm.create_space().unwrap();
    map_at(space, AT, MapRequest::anonymous(12, RW));
    set(space, (4, 4), bind(&[1])).unwrap();
    assert_eq!(
        ranges(space),
        [(AT, AT + 4), (AT + 4, AT + 8), (AT + 8, AT + 12)]
    );
    set(space, (8, 4), bind(&[1])).unwrap();
    assert_eq!(ranges(space), [(AT, AT + 4), (AT + 4, AT + 12)], "{design}");
    let fixed = RemapPlacement::Fixed(Vpn(AT + 100));
    space.remap(Vpn(AT + 6), 2, 3, fixed).unwrap();
    assert_eq!(policy_at(space, 101), bind(&[1]));
    put(space, AT + 102, 1);
    assert_eq!(node_at(space, 102), 1, "{design}");
    set(space, (4, 2), None).unwrap();
    set(space, (8, 4), None).unwrap();
    assert_eq!(ranges(space)[0], (AT, AT + 6), "{design}");
    let hole = set(space, (0, 12), bind(&[2]));
    assert_eq!(hole, Err(MapError::NotMapped), "{design}");
    assert_eq!(policy_at(space, 0), None);
    let file = vm.memory_pages(4).unwrap();
    map_at(space, AT + 200, MapRequest::object(file, 0, 4, RW).shared());
    set(space, (200, 4), bind(&[3])).unwrap();
    let twice = RemapPlacement::Fixed(Vpn(AT + 204));
    space.remap(Vpn(AT + 200), 0, 4, twice).unwrap();
    assert_eq!(policy_at(space, 205), bind(&[3]), "{design}");
    vm.file(file).release().unwrap();
    finish(&vm, &[space]);
}

fn inherited<F: Format, R: ReverseMap>(design: &str) {
    let vm = machine::<F, R>(design, 512);
    let space = vm.create_space().unwrap();
    map_at(space, AT, MapRequest::anonymous(8, RW));
    space.set_node_policy(None, prefer(&[1])).unwrap();
    set(space, (4, 2), bind(&[2])).unwrap();
    set(space, (6, 2), Some(NodePolicy::Local)).unwrap();
    let child = space.fork().unwrap();
    assert_eq!(store(child, 8), [1, 1, 1, 1, 2, 2, 0, 0], "{design}");
    assert_eq!(store(space, 8), [1, 1, 1, 1, 2, 2, 0, 0], "{design}");
    assert_eq!(child.stats().unwrap().node_policy, prefer(&[1]));
    // The parent's is the parent's.
    space.set_node_policy(None, None).unwrap();
    assert_eq!(space.stats().unwrap().node_policy, None);
    assert_eq!(child.stats().unwrap().node_policy, prefer(&[1]));
    let program = child.exec().unwrap();
    map_at(program, AT, MapRequest::anonymous(1, RW));
    assert_eq!(store(program, 1), [1], "{design}");
    finish(&vm, &[space, program]);
}

fn of_objects<F: Format, R: ReverseMap>(design: &str) {
    let vm = machine::<F, R>(design, 512);
    let space = vm.create_space().unwrap();
    let id = vm.memory_pages(8).unwrap();
    let file = vm.file(id);
    file.set_node_policy(bind(&[2])).unwrap();
    assert_eq!(file.stats().unwrap().node_policy, bind(&[2]));
    map_at(space, AT, MapRequest::object(id, 0, 8, RW).shared());
    set(space, (4, 2), Some(NodePolicy::Interleave(nodes(&[1, 3])))).unwrap();
    // Also where another policy is the space's.
    space.set_node_policy(None, bind(&[1])).unwrap();
    assert_eq!(store(space, 6), [2, 2, 2, 2, 1, 3], "{design}");
    file.set_node_policy(None).unwrap();
    put(space, AT + 6, 1);
    assert_eq!(node_at(space, 6), 1, "{design}");
    file.set_node_policy(bind(&[3])).unwrap();
    file.write(WriteRequest::bytes(7 << 12, &[&[1; 64]]))
        .unwrap();
    assert_eq!(get(space, AT + 7), Ok(1));
    assert_eq!(node_at(space, 7), 3, "{design}");
    // What a private mapping copies is its own; what it shows is the object's.
    let stored = vm.create_file(FileRequest::stored(5, 4 << 12)).unwrap();
    stored.set_node_policy(bind(&[2])).unwrap();
    map_at(space, AT + 20, MapRequest::object(stored.id(), 0, 4, RW));
    get(space, AT + 20).unwrap();
    assert_eq!(node_at(space, 20), 2, "{design}");
    put(space, AT + 20, 7);
    put(space, AT + 21, 7);
    assert_eq!((node_at(space, 20), node_at(space, 21)), (1, 1), "{design}");
    stored.release().unwrap();
    file.release().unwrap();
    finish(&vm, &[space]);
}

fn copied<F: Format, R: ReverseMap>(design: &str) {
    let vm = machine::<F, R>(design, 512);
    vm.swap_on(SwapArea::new(SWAP, 200)).unwrap();
    let space = with_pages(&vm, MapRequest::anonymous(8, RW));
    let child = space.fork().unwrap();
    for space in [space, child] {
        set(space, (0, 8), bind(&[3])).unwrap();
    }
    put(child, AT, 9);
    assert_eq!((node_at(space, 0), node_at(child, 0)), (0, 3), "{design}");
    let shared = vm.memory_pages(2).unwrap();
    map_at(space, AT + 8, MapRequest::object(shared, 0, 2, RW).shared());
    put(space, AT + 8, 1);
    assert_eq!(node_at(space, 8), 0);
    set(space, (8, 2), bind(&[1])).unwrap();
    for page in [1, 2, 8] {
        advise(space, (page, 1), Advice::PageOut).unwrap();
    }
    // Those of the child map the others still.
    assert_eq!(get(space, AT + 8), Ok(1), "{design}");
    assert_eq!(get(space, AT + 2), Ok(3), "{design}");
    put(space, AT + 5, 4);
    advise(space, (5, 1), Advice::PageOut).unwrap();
    assert_eq!(get(space, AT + 5), Ok(4), "{design}");
    assert_eq!(node_at(space, 5), 3, "{design}");
    assert_eq!(node_at(space, 8), 1, "{design}");
    vm.file(shared).release().unwrap();
    finish(&vm, &[space, child]);
}

fn bound<F: Format, R: ReverseMap>(design: &str) {
    let vm = machine::<F, R>(design, 512);
    let space = vm.create_space().unwrap();
    map_at(space, AT, MapRequest::anonymous(1200, RW));
    set(space, (0, 1200), bind(&[2])).unwrap();
    let mut page = 0;
    let end = loop {
        match space.fault((AT + page) << 12, Access::Write) {
            Ok(_) => page += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(end, FaultError::OutOfMemory, "{design}");
    assert!(page > 300, "{page} {design}");
    for page in 0..page {
        assert_eq!(node_at(space, page), 2, "page {page} {design}");
    }
    // Others are not short of anything, and what only prefers the node goes elsewhere.
    set(space, (page, 1), prefer(&[2])).unwrap();
    put(space, AT + page, 1);
    assert_ne!(node_at(space, page), 2, "{design}");
    set(space, (page + 1, 1), bind(&[2, 3])).unwrap();
    put(space, AT + page + 1, 1);
    assert_eq!(node_at(space, page + 1), 3, "{design}");
    // What is freed there helps.
    space.unmap(Vpn(AT), 64).unwrap();
    put(space, AT + page + 2, 1);
    assert_eq!(node_at(space, page + 2), 2, "{design}");
    finish(&vm, &[space]);
}

fn reclaimed<F: Format, R: ReverseMap>(design: &str) {
    let vm = machine::<F, R>(&std::format!("{design},reclaim=on"), 512);
    vm.swap_on(SwapArea::new(SWAP, 2000)).unwrap();
    let space = vm.create_space().unwrap();
    map_at(space, AT, MapRequest::anonymous(900, RW));
    map_at(space, AT + 1000, MapRequest::anonymous(50, RW));
    for page in 0..50 {
        put(space, AT + 1000 + page, 5);
    }
    set(space, (0, 900), bind(&[2])).unwrap();
    for page in 0..900 {
        put(space, AT + page, page as u8);
        assert_eq!(node_at(space, page), 2, "{design}");
    }
    let stats = space.stats().unwrap();
    assert!(stats.swapped > 300, "{stats:?} {design}");
    for page in 0..50 {
        assert_eq!(node_at(space, 1000 + page), 0, "others stay: {design}");
    }
    for page in 0..900 {
        assert_eq!(get(space, AT + page), Ok(page as u8), "{design}");
        assert_eq!(node_at(space, page), 2, "{design}");
    }
    finish(&vm, &[space]);
}

fn refused<F: Format, R: ReverseMap>(design: &str) {
    let vm = machine::<F, R>(design, 256);
    let space = vm.create_space().unwrap();
    map_at(space, AT, MapRequest::anonymous(8, RW));
    let shared = vm.memory_pages(2).unwrap();
    let no_home = Some(NodePolicy::Prefer {
        nodes: nodes(&[1]),
        home: Some(NodeId(NODES)),
    });
    let empty = Some(NodePolicy::Interleave(NodeSet::default()));
    for policy in [bind(&[]), bind(&[1, NODES]), no_home, empty] {
        assert_eq!(set(space, (0, 8), policy), Err(MapError::BadNodes));
        let all = space.set_node_policy(None, policy);
        assert_eq!(all, Err(MapError::BadNodes), "{policy:?}");
        let of_file = vm.file(shared).set_node_policy(policy);
        assert_eq!(of_file, Err(FileError::BadNodes));
    }
    assert_eq!(policy_at(space, 0), None);
    assert!(!vm.memory().set_node_weight(NodeId(1), 0));
    assert!(!vm.memory().set_node_weight(NodeId(NODES), 1));
    for (after, site) in [(0, Site::Region), (1, Site::Region)] {
        vm.memory().inject(Some(FailAt { site, after }));
        let cut = set(space, (2, 2), bind(&[1]));
        assert_eq!(cut, Err(MapError::OutOfMemory), "{design}");
        assert_eq!(ranges(space), [(AT, AT + 8)], "{design}");
    }
    vm.memory().inject(None);
    let limits = Limits {
        regions: 2,
        ..Limits::default()
    };
    space.set_limits(limits).unwrap();
    assert_eq!(set(space, (2, 2), bind(&[1])), Err(MapError::Limit));
    assert_eq!(set(space, (0, 8), bind(&[1])), Ok(()));
    // A planned failure is one, whichever node was to be used.
    vm.memory().inject(Some(FailAt {
        site: Site::AnonymousPage,
        after: 0,
    }));
    let fault = space.fault(AT << 12, Access::Write);
    assert_eq!(fault, Err(FaultError::OutOfMemory), "{design}");
    vm.memory().inject(None);
    vm.file(shared).release().unwrap();
    finish(&vm, &[space]);
}

fn in_groups<F: Format, R: ReverseMap>(design: &str) {
    let vm = machine::<F, R>(&std::format!("{design},reclaim=on,groups=on"), 512);
    let space = vm.create_space().unwrap();
    map_at(space, AT, MapRequest::anonymous(9, RW));
    set(space, (0, 9), bind(&[2])).unwrap();
    let group = vm.create_group(8).unwrap();
    space.set_group(group.id()).unwrap();
    assert_eq!(store(space, 8), [2; 8], "{design}");
    assert_eq!(group.stats().unwrap().usage, 8, "{design}");
    let fault = space.fault((AT + 8) << 12, Access::Write);
    assert_eq!(fault, Err(FaultError::GroupLimit(group.id())), "{design}");
    space.set_group(crate::platform::GroupId::ROOT).unwrap();
    put(space, AT + 8, 1);
    assert_eq!(node_at(space, 8), 2, "{design}");
    finish(&vm, &[space]);
    group.end().unwrap();
}

fn larger<F: Format, R: ReverseMap>(design: &str) {
    let options = [
        "superpage=eager",
        "superpage=reserve",
        "folio=64k",
        "huge=always",
        "superpage=eager,folio=64k,huge=always",
    ];
    for option in options {
        let vm = machine::<F, R>(&std::format!("{design},{option}"), 2048);
        let space = vm.create_space().unwrap();
        map_at(space, AT, MapRequest::anonymous(1024, RW));
        let file = vm.memory_pages(1024).unwrap();
        map_at(
            space,
            AT + 1024,
            MapRequest::object(file, 0, 512, RW).shared(),
        );
        map_at(
            space,
            AT + 1536,
            MapRequest::object(file, 512, 512, RW).shared(),
        );
        set(space, (0, 1024), bind(&[1, 3])).unwrap();
        set(space, (1024, 512), bind(&[2])).unwrap();
        vm.file(file).set_node_policy(bind(&[3])).unwrap();
        for (page, wanted) in [(0, 1), (700, 1), (1030, 2), (1540, 3)] {
            put(space, AT + page, 1);
            assert_eq!(node_at(space, page), wanted, "{page} {option} {design}");
        }
        for page in 0..2048 {
            let wanted = [1, 1, 2, 3][page as usize / 512];
            put(space, AT + page, 1);
            assert_eq!(node_at(space, page), wanted, "{page} {option} {design}");
        }
        space.collapse(Vpn(AT), 1024, 1).unwrap();
        assert_eq!(node_at(space, 3), 1, "{option} {design}");
        vm.file(file).release().unwrap();
        finish(&vm, &[space]);
    }
}

/// Random calls beside a model that says of each page which policy it has and where it lies.
fn at_random<F: Format, R: ReverseMap>(design: &str) {
    const PAGES: u64 = 48;
    let vm = machine::<F, R>(design, 1024);
    vm.swap_on(SwapArea::new(SWAP, 400)).unwrap();
    for node in 0..NODES {
        assert!(vm.memory().set_node_weight(NodeId(node), node as u8 + 1));
    }
    for seed in 0..12 {
        let mut rng = Rng::new(seed);
        let mut spaces = std::vec![vm.create_space().unwrap()];
        map_at(spaces[0], AT, MapRequest::anonymous(PAGES, RW));
        // Of each space: the space's policy, that of each page, and where that lies.
        let mut models = std::vec![(None, [None; PAGES as usize], [None; PAGES as usize])];
        for step in 0..60 {
            let cpu = rng.below(usize::from(NODES)) as u16;
            run_on(cpu);
            let at = rng.below(spaces.len());
            let (space, first) = (spaces[at], rng.below(PAGES as usize) as u64);
            let pages = 1 + rng.below((PAGES - first).min(9) as usize) as u64;
            let range = first as usize..(first + pages) as usize;
            match rng.below(14) {
                12 => {
                    let to = Some(rng.below(usize::from(NODES)) as u16);
                    let moved = move_to(space, (first, pages), to).unwrap();
                    let here = |&page: &usize| space.translate(Vpn(AT + page as u64)).is_ok();
                    let all = range.clone().filter(here).count() as u64;
                    let counted = moved.moved + moved.in_place + moved.shared;
                    assert_eq!(counted, all, "{moved:?} {seed} {design}");
                    let mut elsewhere = 0;
                    for page in range.filter(here) {
                        let node = node_at(space, page as u64);
                        models[at].2[page] = Some(node);
                        elsewhere += u64::from(Some(node) != to);
                        assert_eq!(get(space, AT + page as u64), Ok(page as u8), "{design}");
                    }
                    assert!(elsewhere <= moved.shared, "{moved:?} {seed} {design}");
                }
                13 => {
                    let moved = move_to(space, (first, pages), None).unwrap();
                    assert_eq!((moved.busy, moved.no_memory), (0, 0), "{seed} {design}");
                    for page in range {
                        let (own, policies, lies) = &mut models[at];
                        let policy = policies[page].or(*own).unwrap_or(NodePolicy::Local);
                        if space.translate(Vpn(AT + page as u64)).is_err() {
                            continue;
                        }
                        let node = node_at(space, page as u64);
                        let wanted = may_lie_on(policy, AT + page as u64);
                        let is_right = wanted.is_none_or(|nodes| nodes.0 >> node & 1 != 0);
                        assert!(is_right || moved.shared > 0, "{policy:?} {seed} {design}");
                        lies[page] = Some(node);
                        assert_eq!(get(space, AT + page as u64), Ok(page as u8), "{design}");
                    }
                }
                0 => {
                    models[at].0 = any_policy(&mut rng);
                    space.set_node_policy(None, models[at].0).unwrap();
                }
                1..=3 => {
                    let policy = any_policy(&mut rng);
                    set(space, (first, pages), policy).unwrap();
                    models[at].1[range].fill(policy);
                }
                4 => {
                    advise(space, (first, pages), Advice::DontNeed).unwrap();
                    models[at].2[range].fill(None);
                }
                5 if spaces.len() < 3 => {
                    spaces.push(space.fork().unwrap());
                    let mut model = models[at];
                    // Which of them copies is the next store's to say.
                    model.2 = [None; PAGES as usize];
                    models[at].2 = [None; PAGES as usize];
                    models.push(model);
                }
                _ => {
                    for page in range {
                        let (own, policies, lies) = &mut models[at];
                        let before = space.translate(Vpn(AT + page as u64)).ok();
                        put(space, AT + page as u64, page as u8);
                        let node = node_at(space, page as u64);
                        let after = space.translate(Vpn(AT + page as u64)).ok();
                        let is_new = before.map(|found| found.0) != after.map(|found| found.0);
                        let policy = policies[page].or(*own).unwrap_or(NodePolicy::Local);
                        if is_new {
                            let wanted = wanted_node(policy, cpu, AT + page as u64);
                            assert_eq!(node, wanted, "{policy:?} {page} {seed} {design}");
                        } else if let Some(lay) = lies[page] {
                            assert_eq!(node, lay, "{page} {seed} {design}");
                        }
                        lies[page] = Some(node);
                    }
                }
            }
            for page in 0..PAGES {
                assert_eq!(
                    policy_at(space, page),
                    models[at].1[page as usize],
                    "{design}"
                );
            }
            if step % 4 == 3 {
                vm.audit().unwrap();
            }
        }
        run_on(0);
        finish(&vm, &spaces);
    }
}

fn any_policy(rng: &mut Rng) -> Option<NodePolicy> {
    let nodes = NodeSet(1 + rng.below((1 << NODES) - 1) as u64);
    let home = [None, Some(NodeId(rng.below(usize::from(NODES)) as u16))][rng.below(2)];
    Some(match rng.below(6) {
        0 => return None,
        1 => NodePolicy::Local,
        2 => NodePolicy::Bind { nodes, home },
        3 => NodePolicy::Prefer { nodes, home },
        4 => NodePolicy::Interleave(nodes),
        _ => NodePolicy::WeightedInterleave(nodes),
    })
}

/// The nodes that a policy wants a page to be on one of; `None` if it may be anywhere.
fn may_lie_on(policy: NodePolicy, index: u64) -> Option<NodeSet> {
    match policy {
        NodePolicy::Local => None,
        NodePolicy::Bind { nodes, .. } | NodePolicy::Prefer { nodes, .. } => Some(nodes),
        _ => Some(nodes(&[wanted_node(policy, 0, index)])),
    }
}

/// Where a page comes to lie while there is memory everywhere, by the manual's sentences. Of two
/// nodes as near, the lower.
fn wanted_node(policy: NodePolicy, cpu: u16, index: u64) -> u16 {
    let all = |nodes: NodeSet| (0..NODES).filter(move |node| nodes.0 >> node & 1 != 0);
    match policy {
        NodePolicy::Local => cpu,
        NodePolicy::Bind { nodes, home } | NodePolicy::Prefer { nodes, home } => {
            let home = home.map_or(cpu, |home| home.0);
            all(nodes).min_by_key(|node| node.abs_diff(home)).unwrap()
        }
        NodePolicy::Interleave(nodes) => {
            let all: Vec<_> = all(nodes).collect();
            all[index as usize % all.len()]
        }
        NodePolicy::WeightedInterleave(nodes) => {
            let turns: Vec<_> = all(nodes)
                .flat_map(|node| std::iter::repeat_n(node, usize::from(node) + 1))
                .collect();
            turns[index as usize % turns.len()]
        }
    }
}

with_each_design_and_format! {
    private_pages_move_with_what_they_hold => moved;
    pages_that_others_need_stay_and_are_counted => stayed;
    pages_of_objects_move_for_all_who_map_them => moved_of_objects;
    pages_move_to_where_their_policies_say => moved_by_policy;
    superpages_move_whole_or_in_parts => moved_larger;
    a_page_that_moves_keeps_what_its_entry_says => moved_with_marks;
    a_move_for_which_there_is_no_memory_leaves_pages_where_they_are => moved_without_memory;
    pages_move_beside_those_who_store_to_them => moved_beside_stores;
}

fn move_to<F: Format, R: ReverseMap>(
    space: AnySpace<'_, F, R>,
    (first, pages): (u64, u64),
    to: Option<u16>,
) -> Result<PagesMoved, MapError> {
    let range = PageRange::new(Vpn(AT + first), pages);
    space.move_pages(range, to.map(NodeId))
}

fn moved<F: Format, R: ReverseMap>(design: &str) {
    let vm = machine::<F, R>(design, 512);
    let space = with_pages(&vm, MapRequest::anonymous(16, RW));
    space.protect(Vpn(AT), 2, Prot::READ).unwrap();
    // A zero page, and pages that were never touched.
    assert_eq!(get(space, AT + 9), Ok(0));
    let before = space.stats().unwrap().rss;
    let moved = move_to(space, (0, 16), Some(2)).unwrap();
    assert_eq!((moved.moved, moved.in_place), (8, 0), "{moved:?} {design}");
    assert_eq!(space.stats().unwrap().rss, before, "{design}");
    for page in 0..8 {
        assert_eq!(node_at(space, page), 2, "{design}");
        assert_eq!(get(space, AT + page), Ok(page as u8 + 1), "{design}");
    }
    let store = space.fault(AT << 12, Access::Write);
    assert_eq!(store, Err(FaultError::Protection), "{design}");
    vm.audit().unwrap();
    put(space, AT + 3, 77);
    let again = move_to(space, (0, 4), Some(2)).unwrap();
    assert_eq!((again.moved, again.in_place), (0, 4), "{design}");
    let back = move_to(space, (2, 2), Some(0)).unwrap();
    assert_eq!(back.moved, 2, "{design}");
    assert_eq!(get(space, AT + 3), Ok(77), "{design}");
    assert_eq!(move_to(space, (0, 17), Some(1)), Err(MapError::NotMapped));
    assert_eq!(move_to(space, (0, 8), Some(NODES)), Err(MapError::BadNodes));
    finish(&vm, &[space]);
}

fn stayed<F: Format, R: ReverseMap>(design: &str) {
    let vm = machine::<F, R>(design, 512);
    let space = with_pages(&vm, MapRequest::anonymous(8, RW));
    let mut frames = [Pfn(0)];
    let pins = space
        .pin_pages(Vpn(AT), Access::Write, &mut frames)
        .unwrap();
    let child = space.fork().unwrap();
    put(child, AT + 7, 9);
    let moved = move_to(space, (0, 8), Some(1)).unwrap();
    // The pinned one was copied for the child, and the last is the parent's alone.
    let found = (moved.moved, moved.busy, moved.shared);
    assert_eq!(found, (1, 1, 6), "{moved:?} {design}");
    assert_eq!(get(space, AT + 7), Ok(8), "{design}");
    assert_eq!(get(child, AT + 7), Ok(9), "{design}");
    vm.audit().unwrap();
    drop(pins);
    assert_eq!(child.exit(), Ok(true));
    let moved = move_to(space, (0, 8), Some(1)).unwrap();
    assert_eq!((moved.moved, moved.in_place), (7, 1), "{moved:?} {design}");
    for page in 0..8 {
        assert_eq!(get(space, AT + page), Ok(page as u8 + 1), "{design}");
    }
    finish(&vm, &[space]);
}

fn moved_of_objects<F: Format, R: ReverseMap>(design: &str) {
    let vm = machine::<F, R>(&std::format!("{design},reclaim=on"), 512);
    let space = vm.create_space().unwrap();
    let id = vm.memory_pages(8).unwrap();
    map_at(space, AT, MapRequest::object(id, 0, 8, RW).shared());
    map_at(space, AT + 20, MapRequest::object(id, 0, 8, RW));
    for page in 0..8 {
        put(space, AT + page, page as u8 + 1);
        assert_eq!(get(space, AT + 20 + page), Ok(page as u8 + 1));
    }
    put(space, AT + 21, 50);
    let child = space.fork().unwrap();
    assert_eq!(get(child, AT + 1), Ok(2));
    space.lock(Vpn(AT + 7), 1).unwrap();
    let moved = move_to(space, (0, 8), Some(3)).unwrap();
    assert_eq!((moved.moved, moved.busy), (7, 1), "{moved:?} {design}");
    vm.audit().unwrap();
    for page in 0..7 {
        assert_eq!(get(child, AT + page), Ok(page as u8 + 1), "{design}");
        put(child, AT + page, 60);
        assert_eq!(get(space, AT + page), Ok(60), "{design}");
        assert_eq!(node_at(space, page), 3, "{design}");
    }
    assert_eq!(get(space, AT + 21), Ok(50), "a copy is a page of its own");
    // A file, of which a page was stored to.
    let file = vm.create_file(FileRequest::stored(5, 4 << 12)).unwrap();
    map_at(
        space,
        AT + 40,
        MapRequest::object(file.id(), 0, 4, RW).shared(),
    );
    put(space, AT + 40, 7);
    get(space, AT + 42).unwrap();
    let moved = move_to(space, (40, 4), Some(1)).unwrap();
    assert!(moved.moved >= 2, "{moved:?} {design}");
    assert_eq!((moved.busy, moved.no_memory), (0, 0), "{moved:?} {design}");
    assert_eq!(get(space, AT + 40), Ok(7), "{design}");
    assert!(vm.platform().stored_pages(5) > 0, "{design}");
    assert_eq!(node_at(space, 40), 1, "{design}");
    space.unlock(Vpn(AT + 7), 1).unwrap();
    file.release().unwrap();
    vm.file(id).release().unwrap();
    finish(&vm, &[space, child]);
}

fn moved_larger<F: Format, R: ReverseMap>(design: &str) {
    let options = [
        "superpage=eager",
        "superpage=reserve",
        "folio=64k,contiguous=on",
        "huge=always",
    ];
    for option in options {
        let vm = machine::<F, R>(&std::format!("{design},{option}"), 2048);
        let space = vm.create_space().unwrap();
        map_at(space, AT, MapRequest::anonymous(1024, RW));
        let file = vm.memory_pages(512).unwrap();
        let shown = MapRequest::object(file, 0, 512, RW).shared();
        map_at(space, AT + 1024, shown);
        for page in 0..1536 {
            put(space, AT + page, page as u8);
        }
        let check = |first: u64, pages: u64, node: u16| {
            for page in (first..first + pages).step_by(7) {
                let byte = get(space, AT + page);
                assert_eq!(byte, Ok(page as u8), "{page} {option} {design}");
                assert_eq!(node_at(space, page), node, "{page} {option} {design}");
            }
            vm.audit().unwrap();
        };
        let splits = || vm.stats().events.superpage_demotions;
        let before = splits();
        let moved = move_to(space, (0, 1536), Some(2)).unwrap();
        assert_eq!(moved.moved, 1536, "{moved:?} {option} {design}");
        check(0, 1536, 2);
        if option == "superpage=eager" {
            assert_eq!(splits(), before, "{design}");
            // Others map it.
            let child = space.fork().unwrap();
            let moved = move_to(space, (0, 512), Some(1)).unwrap();
            assert_eq!((moved.moved, moved.shared), (0, 512), "{moved:?} {design}");
            check(0, 512, 2);
            assert_eq!(child.exit(), Ok(true));
            // Without a block of frames, and in part.
            let fails = FailAt {
                site: Site::MovedPage,
                after: 0,
            };
            vm.memory().inject(Some(fails));
            let moved = move_to(space, (0, 512), Some(3)).unwrap();
            vm.memory().inject(None);
            assert_eq!((moved.moved, splits()), (512, before + 1), "{moved:?}");
            check(0, 512, 3);
            let moved = move_to(space, (700, 20), Some(1)).unwrap();
            assert_eq!((moved.moved, splits()), (20, before + 2), "{moved:?}");
            check(700, 20, 1);
            check(720, 300, 2);
        }
        vm.file(file).release().unwrap();
        finish(&vm, &[space]);
    }
}

fn moved_with_marks<F: Format, R: ReverseMap>(design: &str) {
    let vm = machine::<F, R>(&std::format!("{design},reclaim=on,format={}", F::NAME), 512);
    let space = with_pages(&vm, MapRequest::anonymous(8, RW));
    let hooks = space.hooks(Vpn(AT), 4);
    hooks.register(Traits::HOOK_STORES).unwrap();
    hooks.protect().unwrap();
    space.lock(Vpn(AT + 4), 2).unwrap();
    // May be dropped, and is not by a move.
    advise(space, (6, 2), Advice::Free).unwrap();
    let moved = move_to(space, (0, 8), Some(1)).unwrap();
    assert_eq!((moved.moved, moved.busy), (8, 0), "{moved:?} {design}");
    assert_eq!(
        all(space, 8),
        (1..9).map(Some).collect::<Vec<_>>(),
        "{design}"
    );
    for page in 0..4 {
        let store = space.write((AT + page) << 12, &[9]);
        let caught = FaultError::Hooked(crate::platform::HookKind::Store);
        assert_eq!(store, Err(caught), "{design}");
    }
    hooks.unprotect().unwrap();
    vm.audit().unwrap();
    for page in 0..8 {
        put(space, AT + page, 20);
    }
    assert_eq!(space.stats().unwrap().locked, 2, "{design}");
    finish(&vm, &[space]);
}

fn moved_by_policy<F: Format, R: ReverseMap>(design: &str) {
    let vm = machine::<F, R>(design, 512);
    let space = with_pages(&vm, MapRequest::anonymous(8, RW));
    let id = vm.memory_pages(4).unwrap();
    map_at(space, AT + 8, MapRequest::object(id, 0, 4, RW).shared());
    for page in 8..12 {
        put(space, AT + page, page as u8 + 1);
    }
    let turns = Some(NodePolicy::Interleave(nodes(&[0, 2])));
    set(space, (0, 4), turns).unwrap();
    set(space, (4, 2), bind(&[3])).unwrap();
    vm.file(id).set_node_policy(bind(&[1])).unwrap();
    let moved = move_to(space, (0, 12), None).unwrap();
    assert_eq!((moved.moved, moved.in_place), (8, 4), "{moved:?} {design}");
    let found: Vec<_> = (0..8).map(|page| node_at(space, page)).collect();
    assert_eq!(found, [0, 2, 0, 2, 3, 3, 0, 0], "{design}");
    for page in 0..12 {
        assert_eq!(get(space, AT + page), Ok(page as u8 + 1), "{design}");
    }
    assert_eq!(node_at(space, 9), 1, "{design}");
    vm.file(id).release().unwrap();
    finish(&vm, &[space]);
}

fn moved_without_memory<F: Format, R: ReverseMap>(design: &str) {
    let vm = machine::<F, R>(design, 512);
    let space = with_pages(&vm, MapRequest::anonymous(8, RW));
    let id = vm.memory_pages(2).unwrap();
    map_at(space, AT + 8, MapRequest::object(id, 0, 2, RW).shared());
    put(space, AT + 8, 9);
    for after in 0..9 {
        vm.memory().inject(Some(FailAt {
            site: Site::MovedPage,
            after,
        }));
        let to = 1 + after as u16 % 2;
        let moved = move_to(space, (0, 10), Some(to)).unwrap();
        vm.memory().inject(None);
        assert_eq!((moved.moved, moved.no_memory), (8, 1), "{moved:?} {design}");
        vm.audit().unwrap();
        for page in 0..9 {
            assert_eq!(get(space, AT + page), Ok(page as u8 + 1), "{design}");
        }
        let rest = move_to(space, (0, 10), Some(to)).unwrap();
        assert_eq!((rest.moved, rest.in_place), (1, 8), "{rest:?} {design}");
        assert_eq!(get(space, AT + 8), Ok(9), "{design}");
    }
    for (step, &site) in Site::ALL.iter().enumerate() {
        for after in 0..3 {
            vm.memory().inject(Some(FailAt { site, after }));
            let to = Some((step as u16 + after as u16) % NODES);
            let moved = move_to(space, (0, 10), to).unwrap();
            vm.memory().inject(None);
            let counted = moved.moved + moved.in_place + moved.no_memory;
            assert_eq!(counted, 9, "{moved:?} {site:?} {design}");
            for page in 0..9 {
                assert_eq!(
                    get(space, AT + page),
                    Ok(page as u8 + 1),
                    "{site:?} {design}"
                );
            }
        }
        if step % 8 == 0 {
            vm.audit().unwrap();
        }
    }
    vm.audit().unwrap();
    let _ = move_to(space, (0, 10), Some(0)).unwrap();
    // A node that is full.
    map_at(space, AT + 100, MapRequest::anonymous(600, RW));
    set(space, (100, 600), bind(&[3])).unwrap();
    let full = (0..600).find(|page| space.fault((AT + 100 + page) << 12, Access::Write).is_err());
    assert!(full.is_some());
    let moved = move_to(space, (0, 8), Some(3)).unwrap();
    assert_eq!((moved.moved, moved.no_memory), (0, 8), "{moved:?} {design}");
    vm.file(id).release().unwrap();
    finish(&vm, &[space]);
}

fn moved_beside_stores<F: Format, R: ReverseMap>(design: &str) {
    let vm = machine::<F, R>(design, 512);
    let space = vm.create_space().unwrap();
    map_at(space, AT, MapRequest::anonymous(2, RW));
    let id = vm.memory_pages(2).unwrap();
    map_at(space, AT + 2, MapRequest::object(id, 0, 2, RW).shared());
    std::thread::scope(|scope| {
        for cpu in 0..2 {
            scope.spawn(move || {
                run_on(cpu);
                for step in 0..400 {
                    let place = ((AT + step % 4) << 12) + 8 * u64::from(cpu);
                    let word = space.update_word(place, |now| Some(now + 1));
                    word.unwrap().unwrap();
                }
            });
        }
        scope.spawn(move || {
            run_on(3);
            for step in 0..60 {
                move_to(space, (0, 4), Some(step % NODES)).unwrap();
            }
        });
    });
    run_on(0);
    for page in 0..4 {
        let mut words = [0; 16];
        space.read((AT + page) << 12, &mut words).unwrap();
        let word = |at: usize| u32::from_ne_bytes(words[at..at + 4].try_into().unwrap());
        assert_eq!((word(0), word(8)), (100, 100), "{page} {design}");
    }
    vm.file(id).release().unwrap();
    finish(&vm, &[space]);
}
