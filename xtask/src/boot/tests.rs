//! What slices expect of pages.

use vellum_testing::Scratch;
use vellum_testing::by_hand::{PAGE, fork, map, write, write_trace};
use vellum_trace::{EventKind, TaskId};

use vellum_engine::Pages;

use super::protocol::{SLICE_HEAD, SLICE_MAGIC, op, word};
use super::slice::{Slice, make};

const AT: u64 = 0x7000_0000;

/// The words of a task: operation, flags, page, and what follows.
fn stream(slice: &Slice, task: usize) -> Vec<(u8, u64, u64, Vec<u64>)> {
    let words = &slice.words;
    let mut at = words[SLICE_HEAD as usize + task] as usize;
    let mut stream = Vec::new();
    loop {
        let first = words[at];
        let what = first as u8;
        let more = match what {
            op::MAP | op::REMAP => 3,
            op::CHECK_FILE | op::STORE_FILE | op::FILE_READ | op::FILE_WRITE => 2,
            op::LOAD | op::FETCH | op::REFUSED | op::FORK | op::SHARE => 0,
            op::EXEC | op::EXIT | op::PROGRESS => 0,
            _ => 1,
        };
        let behind = words[at + 1..=at + more].to_vec();
        stream.push((what, first >> 8 & 0xff, first >> 16, behind));
        at += 1 + more;
        if what == op::EXIT {
            return stream;
        }
    }
}

/// The values that checks of `page` expect of its watched words, one check after the other.
fn checks(slice: &Slice, task: usize, page: u64) -> Vec<(u64, u64)> {
    let stream = stream(slice, task).into_iter();
    let checks = stream.filter(|(what, _, at, _)| *what == op::CHECK && *at == page);
    checks
        .map(|(_, which, _, value)| (which, value[0]))
        .collect()
}

fn slice_of(test: &str, children: u32, events: &[(u32, EventKind)]) -> Slice {
    let scratch = Scratch::new(test);
    let trace = scratch.path("trace.vellum");
    write_trace(&trace, children, events);
    let cut = scratch.path("cut.vellum");
    make(trace.as_ref(), cut.as_ref(), (0, u64::MAX), Pages::X86_64).expect("a slice")
}

#[test]
fn both_sides_of_a_fork_go_on_with_what_there_was() {
    let slice = slice_of(
        "boot-slice-fork",
        1,
        &[
            (0, map(AT, 4)),
            (0, write(AT, false)),
            (0, fork(1)),
            (1, write(AT, true)),
            (1, EventKind::Exit),
            (0, write(AT, true)),
            (0, EventKind::Exit),
        ],
    );
    assert_eq!(slice.words[0], SLICE_MAGIC);
    assert_eq!((slice.tasks, slice.words[1]), (2, 2));
    // Stores alternate between the words: the first is to the last word.
    let page = AT / PAGE;
    let before = [(0, 0), (1, 1)];
    let child = checks(&slice, 1, page);
    assert_eq!(child[..2], before, "inherited");
    let stores = [2, 3];
    let own = |checks: &[(u64, u64)]| {
        checks
            .iter()
            .find(|check| stores.contains(&check.1))
            .copied()
    };
    let (mine, yours) = (
        own(&child).expect("stored"),
        own(&checks(&slice, 0, page)).expect("stored"),
    );
    assert_ne!(mine.1, yours.1, "each stored its own");
    let parent = checks(&slice, 0, page);
    assert!(!parent.contains(&mine), "the child's store is not seen");
    assert!(!child.contains(&yours), "nor the parent's");
    assert_eq!(parent[2..4], before, "read back after the fork");
}

#[test]
fn what_a_vfork_child_stored_is_there_when_it_has_left() {
    const VM_VFORK: u64 = 0x4100;
    let vfork = EventKind::Create {
        child: TaskId(1),
        clone_flags: VM_VFORK,
    };
    let slice = slice_of(
        "boot-slice-vfork",
        1,
        &[
            (0, map(AT, 4)),
            (0, vfork),
            (1, write(AT, false)),
            (1, EventKind::Exit),
            (0, EventKind::Exit),
        ],
    );
    let parent = stream(&slice, 0);
    let awaited = parent.iter().position(|(what, ..)| *what == op::AWAIT);
    let checked = parent.iter().position(|(what, ..)| *what == op::CHECK);
    assert!(awaited.expect("it waits") < checked.expect("and looks then"));
    assert!(checks(&slice, 0, AT / PAGE).contains(&(1, 1)));
}

#[test]
fn an_access_without_a_right_must_be_refused() {
    let slice = slice_of(
        "boot-slice-refusal",
        0,
        &[
            (0, map(AT, 4)),
            (
                0,
                EventKind::Protect {
                    address: AT,
                    length: PAGE,
                    prot: vellum_trace::Prot(1),
                },
            ),
            (0, write(AT, false)),
            (0, EventKind::Exit),
        ],
    );
    let page = AT / PAGE;
    assert!(slice.words.contains(&word(op::REFUSED, 1, page)));
    assert!(checks(&slice, 0, page).is_empty());
}

/// Lines of a file that are neither blank nor comments.
fn lines_of(path: &std::path::Path) -> usize {
    let text = std::fs::read_to_string(path).expect("readable");
    let is_assembly = path.extension().is_some_and(|extension| extension == "s");
    let comment = if is_assembly { "#" } else { "//" };
    let lines = text.lines().map(str::trim);
    lines
        .filter(|line| !line.is_empty() && !line.starts_with(comment))
        .count()
}

/// Lines of what lies in a directory, but for the names in `without`.
fn lines_below(directory: &std::path::Path, without: &[&str]) -> usize {
    let entries = std::fs::read_dir(directory).expect("the kernel is there");
    entries
        .map(|entry| entry.expect("readable").path())
        .filter(|path| !without.iter().any(|name| path.ends_with(name)))
        .map(|path| match path.is_dir() {
            true => lines_below(&path, without),
            false => lines_of(&path),
        })
        .sum()
}

/// What docs/embedding.md says of it.
#[test]
fn the_kernel_for_x86_64_can_be_read_in_an_evening() {
    let source = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../embed/boot/src");
    let others = [
        "aarch64",
        "check",
        "protocol.rs",
        "multiboot2.rs",
        "builtins.s",
        "kernel.ld",
    ];
    let lines = lines_below(&source, &others);
    assert!((1000..2000).contains(&lines), "{lines} lines");
}

#[test]
fn the_files_of_the_tutorial_are_found_on_its_page() {
    let page = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/embedding.md");
    let page = std::fs::read_to_string(page).expect("the page");
    let files = super::tutorial::files_of(&page);
    let names: Vec<&str> = files.iter().map(|(name, _)| name.as_str()).collect();
    let expected = [
        "Cargo.toml",
        "build.rs",
        "kernel.ld",
        "src/boot.s",
        "src/main.rs",
    ];
    assert_eq!(names, expected);
    let ends = ["[workspace]\n", "}\n", "}\n", "stack_end:\n", "}\n"];
    for ((name, text), end) in files.iter().zip(ends) {
        assert!(text.ends_with(end), "{name} is cut short");
    }
}
