//! The engine executes a workload and passes its audit, under every design.

mod needless;

use vellum_engine::{
    Access, Advice, Arena, Backing, Call, Config, Divergence, Engine, FileSlot, Op, OpError,
    Outcome, Prot, Sharing, SpaceSlot, build, pristine_word, written_word,
};

const READ_WRITE: Prot = Prot {
    read: true,
    write: true,
    execute: false,
};

fn engines() -> Vec<Box<dyn Engine>> {
    [
        "rmap=chains",
        "rmap=chains,direct=off",
        "rmap=partial",
        "rmap=chains,forkcopy=all",
        "format=x86-pae",
        "format=x86-pae,rmap=chains",
    ]
    .map(engine_of)
    .into()
}

/// An engine of two CPUs with memory for runs of frames.
fn engine_of(design: &str) -> Box<dyn Engine> {
    let config = Config::new(design, 2, 64 << 20);
    build(&config, Arena::new(96 << 20).unwrap()).unwrap()
}

fn map(space: SpaceSlot, page: u64, pages: u64, sharing: Sharing, backing: Backing) -> Op {
    Op::Map {
        space,
        page,
        pages,
        prot: READ_WRITE,
        sharing,
        backing,
        grows_down: false,
    }
}

fn touch(space: SpaceSlot, page: u64, access: Access) -> Op {
    Op::Touch {
        space,
        page,
        access,
    }
}

fn run(engine: &dyn Engine, ops: &[Op]) -> Vec<(u32, Divergence)> {
    let mut outcome = Outcome::default();
    engine.run(0, ops, &mut outcome);
    outcome.divergences
}

const A: SpaceSlot = SpaceSlot(1);
const B: SpaceSlot = SpaceSlot(2);
const FILE: FileSlot = FileSlot(7);

#[test]
fn private_pages_are_copied_on_write_and_all_memory_comes_back() {
    for engine in engines() {
        let engine = &*engine;
        let design = engine.design();
        let anonymous = map(A, 100, 64, Sharing::Private, Backing::Anonymous);
        assert_eq!(run(engine, &[Op::Create { space: A }, anonymous]), []);
        for page in 100..164 {
            engine.store(0, A, page << 12, page).unwrap();
        }
        assert_eq!(
            run(
                engine,
                &[Op::Fork {
                    parent: A,
                    child: B
                }]
            ),
            []
        );
        for page in (100..164).step_by(2) {
            engine.store(1, B, page << 12, page + 1000).unwrap();
        }
        for page in 100..164 {
            let child = if page % 2 == 0 { page + 1000 } else { page };
            assert_eq!(
                engine.load(0, A, page << 12, Access::Read),
                Ok(page),
                "{design}"
            );
            assert_eq!(
                engine.load(1, B, page << 12, Access::Read),
                Ok(child),
                "{design}"
            );
        }
        engine
            .audit()
            .unwrap_or_else(|error| panic!("{design}: {error}"));
        assert_eq!(run(engine, &[Op::Exit { space: A }]), []);
        engine
            .audit()
            .unwrap_or_else(|error| panic!("{design}: {error}"));
        for page in (100..164).rev() {
            engine.store(0, B, page << 12, 5).unwrap();
        }
        engine.clear(0);
        engine
            .audit()
            .unwrap_or_else(|error| panic!("{design}: {error}"));
    }
}

/// Tables in use, in KiB, as engines report them.
fn tables(engine: &dyn Engine) -> u64 {
    let memory = engine.memory();
    let found = memory.iter().find(|(name, ..)| *name == "page tables");
    found.expect("there is such a row").1 >> 10
}

#[test]
fn tables_that_spaces_have_from_their_beginning_are_reported() {
    for (design, empty, one_page) in [("", 4, 16), ("format=x86-pae", 16, 20)] {
        let config = Config::new(design, 1, 64 << 20);
        let engine = build(&config, Arena::new(64 << 20).unwrap()).unwrap();
        let engine = engine.as_ref();
        assert_eq!(tables(engine), 0);
        let anonymous = map(A, 100, 1, Sharing::Private, Backing::Anonymous);
        assert_eq!(run(engine, &[Op::Create { space: A }, anonymous]), []);
        assert_eq!(tables(engine), empty, "{design}");
        engine.store(0, A, 100 << 12, 1).unwrap();
        assert_eq!(tables(engine), one_page, "{design}");
        assert_eq!(run(engine, &[Op::Exit { space: A }]), []);
        assert_eq!(tables(engine), 0, "{design}");
    }
}

#[test]
fn files_are_shared_truncated_and_written_back() {
    for engine in engines() {
        let engine = &*engine;
        let design = engine.design();
        let file = Backing::File {
            file: FILE,
            page: 2,
        };
        let ops = [
            Op::FileOpen {
                file: FILE,
                pages: 40,
            },
            Op::Create { space: A },
            map(A, 0x1000, 30, Sharing::Shared, file),
            map(A, 0x2000, 30, Sharing::Private, file),
            Op::FileRead {
                file: FILE,
                page: 0,
                pages: 40,
            },
        ];
        assert_eq!(run(engine, &ops), [], "{design}");
        let key = u64::from(FILE.0);
        assert_eq!(
            engine.load(0, A, 0x1000 << 12, Access::Read),
            Ok(pristine_word(key, 2))
        );
        engine.store(0, A, 0x1001 << 12, 77).unwrap();
        assert_eq!(
            engine.load(0, A, 0x2001 << 12, Access::Read),
            Ok(77),
            "{design}"
        );
        engine.store(0, A, 0x2001 << 12, 78).unwrap();
        assert_eq!(
            engine.load(0, A, 0x1001 << 12, Access::Read),
            Ok(77),
            "{design}"
        );
        assert_eq!(
            run(
                engine,
                &[Op::Fork {
                    parent: A,
                    child: B
                }]
            ),
            []
        );
        assert_eq!(
            engine.load(1, B, 0x1001 << 12, Access::Read),
            Ok(77),
            "{design}"
        );
        engine.store(1, B, 0x2010 << 12, 5).unwrap();
        assert_eq!(
            run(
                engine,
                &[Op::FileWrite {
                    file: FILE,
                    page: 4,
                    pages: 2
                }]
            ),
            []
        );
        assert_eq!(
            engine.load(1, B, 0x1002 << 12, Access::Read),
            Ok(written_word(key, 4))
        );
        engine
            .audit()
            .unwrap_or_else(|error| panic!("{design}: {error}"));
        engine.sync(0).unwrap();
        assert_eq!(engine.stored_word(FILE, 3 << 12), Some(77), "{design}");
        assert_eq!(
            engine.stored_word(FILE, 4 << 12),
            Some(written_word(key, 4))
        );
        assert_eq!(
            run(
                engine,
                &[Op::Truncate {
                    file: FILE,
                    pages: 10
                }]
            ),
            []
        );
        assert_eq!(
            engine.load(0, A, 0x1008 << 12, Access::Read),
            Err(OpError::PastEnd)
        );
        assert_eq!(
            engine.load(1, B, 0x2010 << 12, Access::Read),
            Err(OpError::PastEnd)
        );
        engine
            .audit()
            .unwrap_or_else(|error| panic!("{design}: {error}"));
        engine.clear(0);
        engine
            .audit()
            .unwrap_or_else(|error| panic!("{design}: {error}"));
    }
}

#[test]
fn regions_split_merge_move_and_shrink() {
    for engine in engines() {
        let engine = &*engine;
        let design = engine.design();
        let none = Prot::default();
        let ops = [
            Op::Create { space: A },
            map(A, 1000, 100, Sharing::Private, Backing::Anonymous),
            Op::Touch {
                space: A,
                page: 1050,
                access: Access::Write,
            },
            Op::Touch {
                space: A,
                page: 1049,
                access: Access::Read,
            },
            Op::Protect {
                space: A,
                page: 1040,
                pages: 20,
                prot: none,
            },
            Op::Protect {
                space: A,
                page: 1040,
                pages: 20,
                prot: READ_WRITE,
            },
            Op::Remap {
                space: A,
                page: 1050,
                pages: 50,
                new_page: 5000,
                new_pages: 80,
            },
            Op::Touch {
                space: A,
                page: 5001,
                access: Access::Write,
            },
            Op::Unmap {
                space: A,
                page: 5010,
                pages: 10,
            },
            Op::Advise {
                space: A,
                page: 5000,
                pages: 5,
                advice: Advice::Free,
            },
            Op::Brk {
                space: A,
                start: 300,
                end: 310,
            },
            Op::Touch {
                space: A,
                page: 305,
                access: Access::Write,
            },
            Op::Brk {
                space: A,
                start: 300,
                end: 304,
            },
            Op::Brk {
                space: A,
                start: 300,
                end: 320,
            },
            Op::Exec { old: A, new: B },
        ];
        assert_eq!(run(engine, &ops), [], "{design}");
        engine
            .audit()
            .unwrap_or_else(|error| panic!("{design}: {error}"));
        engine.clear(0);
        engine
            .audit()
            .unwrap_or_else(|error| panic!("{design}: {error}"));
    }
}

#[test]
fn calls_move_bytes_of_files_in_memory_and_give_all_memory_back() {
    let (at, block, bytes) = (1000, 3000, 10_000);
    let file = FILE;
    for engine in engines() {
        let engine = &*engine;
        let calls = [
            Call::NewFile { file },
            Call::Write {
                file,
                at,
                block,
                bytes,
            },
            Call::WriteZeroes {
                file,
                at: at + bytes,
                block,
                bytes: block,
            },
            Call::Read {
                file,
                at: 0,
                block: 512,
                bytes: at + bytes + block,
            },
            Call::ReadThrough { file, block },
            Call::Sync { file },
            Call::Frames {
                order: 3,
                blocks: 5,
                rounds: 2,
            },
        ];
        assert_eq!(run(engine, &calls.map(Op::Call)), []);
        let frames = || {
            let rows = engine.memory();
            let all = rows.iter().find(|row| row.0 == "all frames");
            all.map_or(0, |row| row.1)
        };
        let held = frames();
        let end = [Call::SetSize { file, bytes: 1 }, Call::Close { file }];
        assert_eq!(run(engine, &end.map(Op::Call)), []);
        let pages = (at + bytes + block).div_ceil(4096);
        assert!(frames() + pages * 4096 <= held, "{held} bytes before");
        engine.audit().unwrap();
    }
}

/// Accesses of a program fault where a page is not there, and where it is they do not, unlike
/// the faults of a trace, which happened.
/// A recording's kernel decided what its programs may map.
#[test]
fn a_recorded_program_maps_what_null_pointers_lead_to() {
    for engine in engines() {
        let space = SpaceSlot(0);
        let ops = [
            Op::Create { space },
            map(space, 100, 2, Sharing::Private, Backing::Anonymous),
            Op::Remap {
                space,
                page: 100,
                pages: 2,
                new_page: 3,
                new_pages: 2,
            },
            map(space, 0, 1, Sharing::Private, Backing::Anonymous),
            touch(space, 0, Access::Write),
            touch(space, 4, Access::Write),
            Op::Exit { space },
        ];
        assert_eq!(run(&*engine, &ops), []);
    }
}

#[test]
fn accesses_fault_only_where_a_page_is_not_there() {
    let space = SpaceSlot(3);
    let accesses = |page, pages, access| {
        Op::Call(Call::Access {
            space,
            page,
            pages,
            access,
        })
    };
    for engine in engines() {
        let engine = &*engine;
        let count = |name: &str| {
            let counters = engine.counters();
            let found = counters.iter().find(|counter| counter.0 == name);
            found.expect("counted").1
        };
        let begin = [
            Op::Create { space },
            map(space, 0x400, 8, Sharing::Private, Backing::Anonymous),
            accesses(0x400, 6, Access::Write),
        ];
        assert_eq!(run(engine, &begin), []);
        let faults = count("faults");
        assert_eq!(faults, 6);
        assert_eq!(run(engine, &[accesses(0x400, 6, Access::Read)]), []);
        assert_eq!(count("faults"), faults, "{}", engine.design());
        let word = |page: u64| engine.load(0, space, page << 12, Access::Read);
        assert_eq!(word(0x405), Ok(0x405));
        assert_eq!(word(0x406), Ok(0), "nobody stored there");
        let failed = |page, pages| match run(engine, &[accesses(page, pages, Access::Write)])[..] {
            [(0, Divergence::Failed(error))] => Some(error),
            _ => None,
        };
        assert_eq!(failed(0x406, 3), Some(OpError::NoRegion));
        assert_eq!(word(0x407), Ok(0x407), "as far as it goes");
        assert_eq!(failed(u64::MAX, 2), Some(OpError::Invalid));
        assert_eq!(failed(engine.pages().user_end, 1), Some(OpError::Invalid));
        engine.audit().unwrap();
    }
}

#[test]
fn calls_that_make_no_sense_are_refused() {
    let engine = &*engines()[0];
    let file = FILE;
    let failed = |call: Call| match run(engine, &[Op::Call(call)])[..] {
        [(0, Divergence::Failed(error))] => Some(error),
        _ => None,
    };
    let read = |at: u64, block: u64| Call::Read {
        file,
        at,
        block,
        bytes: 4096,
    };
    assert_eq!(failed(read(0, 4096)), Some(OpError::BadFile));
    assert_eq!(failed(Call::Close { file }), Some(OpError::BadFile));
    assert_eq!(failed(Call::NewFile { file }), None);
    assert_eq!(failed(Call::NewFile { file }), Some(OpError::BadFile));
    assert_eq!(failed(read(0, 4096)), Some(OpError::PastEnd), "it is empty");
    assert_eq!(failed(read(0, 0)), Some(OpError::Invalid));
    assert_eq!(failed(read(0, 1 << 40)), Some(OpError::Invalid));
    let frames = |order: u32, blocks: u32| Call::Frames {
        order,
        blocks,
        rounds: 1,
    };
    assert_eq!(failed(frames(99, 1)), Some(OpError::Invalid));
    let all = failed(frames(0, 1 << 20));
    assert_eq!(all, Some(OpError::OutOfMemory), "64 MiB have fewer pages");
    assert_eq!(failed(frames(0, 1)), None, "they were given back");
    engine.audit().unwrap();
}
