//! What a command writes never replaces what it reads, nor what else it writes.

use std::any::TypeId;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use clap::builder::ValueHint;
use clap::{Command as Parser, CommandFactory};
use vellum_lab::cli::Cli;
use vellum_testing::by_hand::{self, PAGE, map, write};
use vellum_trace::EventKind;

use crate::command::{Scratch, printed, vellum};

const FOLDED: &str = "main;work 3\n";

/// A directory with a trace, a profile, a result and texts to import, and copies of them
/// under other names: hard links (`hard-…`), symbolic links (`soft-…`), paths through
/// another directory (`below/../…`).
fn inputs(test: &str) -> Scratch {
    let scratch = Scratch::new(test);
    let start = 0x1000_0000;
    let mut events = vec![(0, map(start, 64))];
    events.extend((0..64).map(|page| (0, write(start + page * PAGE, false))));
    events.push((0, EventKind::Exit));
    by_hand::write_trace(&scratch.path("t.vellum"), 0, &events);
    fs::write(scratch.path("p.folded"), FOLDED).unwrap();
    fs::write(scratch.path("q.folded"), FOLDED).unwrap();
    fs::write(scratch.path("s.txt"), "1 brk(NULL) = 0x1000\n").unwrap();
    fs::write(scratch.path("m.toml"), "cpus = 1\n").unwrap();
    fs::write(scratch.path("prog"), "#!/bin/sh\n").unwrap();
    let json = scratch.path("r.json");
    let output = vellum(&[
        "replay",
        &scratch.path("t.vellum"),
        "--quiet",
        "--json",
        &json,
    ]);
    assert!(output.status.success(), "{}", printed(&output));
    fs::create_dir(scratch.path("below")).unwrap();
    for name in scratch.files() {
        let path = scratch.path(&name);
        if Path::new(&path).is_file() {
            fs::hard_link(&path, scratch.path(&format!("hard-{name}"))).unwrap();
            symlink(&name, scratch.path(&format!("soft-{name}"))).unwrap();
        }
    }
    scratch
}

/// The files of a directory and what is in them.
fn contents(scratch: &Scratch) -> Vec<(String, Vec<u8>)> {
    let files = scratch.files().into_iter();
    let pairs = files.map(|name| {
        let bytes = fs::read(scratch.path(&name)).unwrap_or_default();
        (name, bytes)
    });
    pairs.collect()
}

/// Runs a command in the directory; it must refuse its arguments and change nothing.
fn refused(scratch: &Scratch, arguments: &str, stdin: Option<&str>) -> String {
    let before = contents(scratch);
    let mut command = Command::new(env!("CARGO_BIN_EXE_vellum"));
    command
        .args(arguments.split(' '))
        .current_dir(scratch.directory())
        .stdin(Stdio::null());
    if let Some(name) = stdin {
        command.stdin(fs::File::open(scratch.path(name)).unwrap());
    }
    let output = command.output().unwrap();
    let text = printed(&output);
    assert_eq!(output.status.code(), Some(2), "{arguments}: {text}");
    assert!(before == contents(scratch), "{arguments} changed a file");
    text
}

/// Commands whose output names an input; the word after `>` is the file.
const OVERWRITING: [&str; 28] = [
    "compare t.vellum --a rmap=chains --b rmap=partial -n 2 --json >t.vellum",
    "compare t.vellum --a rmap=chains --b rmap=partial -n 2 --html >t.vellum",
    "compare t.vellum -n 2 --against r.json --json >r.json",
    "compare --a linux:r.json --b linux:q.json --html >r.json",
    "compare t.vellum --on sim --machine m.toml --json >m.toml",
    "compare t.vellum --keep --db r.json --json >r.json",
    "replay t.vellum --json >t.vellum",
    "replay t.vellum --html >t.vellum",
    "replay t.vellum --on linux --save >t.vellum",
    "report r.json -o >r.json",
    "report r.json --svg >r.json",
    "report q.json r.json -o >r.json",
    "diffprofile p.folded q.folded --svg >p.folded",
    "diffprofile p.folded q.folded --folded >p.folded",
    "diffprofile p.folded q.folded --folded >q.folded",
    "cut t.vellum --from 0 --to 0.001 -o >t.vellum",
    "export t.vellum -f csv -o >t.vellum",
    "export t.vellum -f parquet -o >t.vellum",
    "import s.txt -o >s.txt",
    "import q.txt s.txt -o >s.txt",
    "record -o >prog -- ./prog",
    "bench fork-family --trace t.vellum --json >t.vellum",
    "scale ./t.vellum --svg >t.vellum",
    "scale faults --machine m.toml --resume >m.toml",
    "plan memory t.vellum --svg >t.vellum",
    "plan userpte t.vellum --json >t.vellum",
    "history --db r.json export -o >r.json",
    "sweep m.toml --json >m.toml",
];

#[test]
fn an_output_that_names_an_input_is_refused() {
    let scratch = inputs("outputs-inputs");
    for line in OVERWRITING {
        let (before, after) = line.split_once('>').expect("a marked file");
        let (name, rest) = after.split_at(after.find(' ').unwrap_or(after.len()));
        for path in [
            name.to_owned(),
            format!("below/../{name}"),
            format!("hard-{name}"),
            format!("soft-{name}"),
        ] {
            let arguments = format!("{before}{path}{rest}");
            let text = refused(&scratch, &arguments, None);
            assert!(text.contains("would replace"), "{arguments}: {text}");
        }
    }
}

#[test]
fn an_output_that_names_what_standard_input_is_read_from_is_refused() {
    let scratch = inputs("outputs-stdin");
    for (arguments, name) in [
        ("report - -o soft-r.json", "r.json"),
        ("diffprofile - q.folded --folded p.folded", "p.folded"),
        ("import - -o hard-s.txt", "s.txt"),
    ] {
        let text = refused(&scratch, arguments, Some(name));
        assert!(text.contains("would replace"), "{arguments}: {text}");
    }
}

#[test]
fn standard_output_that_is_an_input_is_refused() {
    let scratch = inputs("outputs-stdout");
    let path = scratch.path("t.vellum");
    let before = fs::read(&path).unwrap();
    let append = fs::OpenOptions::new().append(true).open(&path).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_vellum"));
    let output = command.args(["dump", &path]).stdout(append).output();
    let output = output.unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", printed(&output));
    assert_eq!(fs::read(&path).unwrap(), before);
}

#[test]
fn two_outputs_that_name_the_same_file_are_refused() {
    let scratch = inputs("outputs-twice");
    symlink("new", scratch.path("soft-new")).unwrap();
    for arguments in [
        "compare t.vellum -n 2 --json new --html new",
        "compare t.vellum -n 2 --json new --html ./new",
        "replay t.vellum --json new --html soft-new",
        "replay t.vellum --on linux --save new --json below/../new",
        "diffprofile p.folded q.folded --svg new --folded soft-new",
        "report r.json -o new --svg new",
        "plan memory t.vellum --svg new --json new",
        "scale faults --svg new --resume new",
        "compare t.vellum -n 2 --keep --db new --json new",
    ] {
        let text = refused(&scratch, arguments, None);
        let is_named = text.contains("same file") || text.contains("would replace");
        assert!(is_named, "{arguments}: {text}");
    }
}

#[test]
fn an_output_that_is_no_regular_file_is_refused() {
    let scratch = inputs("outputs-devices");
    symlink("/dev/null", scratch.path("null")).unwrap();
    for path in ["/dev/null", "null", "below", "new/"] {
        for arguments in [
            "compare t.vellum -n 2 --json",
            "replay t.vellum --html",
            "cut t.vellum -o",
            "export t.vellum -f csv -o",
            "import s.txt -o",
            "diffprofile p.folded q.folded --svg",
            "report r.json -o",
            "history --db new.db export -o",
        ] {
            refused(&scratch, &format!("{arguments} {path}"), None);
        }
    }
    let null = fs::metadata("/dev/null").unwrap();
    assert!(!null.is_file());
}

#[test]
fn a_dash_is_standard_output_or_refused() {
    let scratch = inputs("outputs-dash");
    for arguments in [
        "replay t.vellum --html -",
        "replay t.vellum --on linux --save -",
        "cut t.vellum -o -",
        "import s.txt -o -",
        "record -o - -- true",
        "diffprofile p.folded q.folded --svg -",
        "diffprofile p.folded q.folded --folded -",
        "report r.json --svg -",
        "plan memory t.vellum --svg -",
        "scale faults --resume -",
    ] {
        refused(&scratch, arguments, None);
    }
    for arguments in [
        "replay t.vellum --quiet --json -",
        "report r.json -o -",
        "export t.vellum --quiet -f csv -o -",
        "history --db new.db add r.json",
        "history --db new.db export -o -",
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_vellum"));
        let command = command.args(arguments.split(' '));
        let output = command.current_dir(scratch.directory()).output().unwrap();
        assert!(output.status.success(), "{arguments}: {}", printed(&output));
    }
    assert!(!scratch.files().contains(&"-".to_owned()));
}

#[test]
fn a_symbolic_link_as_an_output_is_followed() {
    let scratch = inputs("outputs-links");
    symlink("below/new.json", scratch.path("link")).unwrap();
    let output = vellum(&[
        "replay",
        &scratch.path("t.vellum"),
        "--quiet",
        "--json",
        &scratch.path("link"),
    ]);
    assert!(output.status.success(), "{}", printed(&output));
    let link = fs::symlink_metadata(scratch.path("link")).unwrap();
    assert!(link.is_symlink());
    assert!(Path::new(&scratch.path("below/new.json")).is_file());
}

#[test]
fn inputs_that_the_command_line_does_not_name_are_spared() {
    let scratch = inputs("outputs-implied");
    let spec = "[[grid]]\nrun = \"verify\"\ntraces = [\"t.vellum\"]\n";
    fs::write(scratch.path("spec.toml"), spec).unwrap();
    fs::create_dir(scratch.path("traces")).unwrap();
    fs::hard_link(
        scratch.path("t.vellum"),
        scratch.path("traces/kernel-build.vellum"),
    )
    .unwrap();
    for arguments in [
        "sweep spec.toml --json t.vellum",
        "reproduce 1 --traces traces --json t.vellum",
        "reproduce 1 --traces traces --html traces/kernel-build.vellum",
    ] {
        let text = refused(&scratch, arguments, None);
        assert!(text.contains("would replace"), "{arguments}: {text}");
    }
}

#[test]
fn a_file_that_is_added_to_loses_no_line_that_is_not_its_own() {
    let scratch = Scratch::new("outputs-resume");
    let notes = scratch.write("notes", "one line without an end");
    let output = vellum(&["scale", "faults", "--cpus", "1", "--resume", &notes]);
    assert_eq!(output.status.code(), Some(2), "{}", printed(&output));
    assert_eq!(
        fs::read_to_string(&notes).unwrap(),
        "one line without an end"
    );
}

#[test]
fn an_export_to_a_full_disk_names_the_file() {
    let scratch = inputs("outputs-full");
    let full = fs::OpenOptions::new()
        .write(true)
        .open("/dev/full")
        .unwrap();
    let trace = scratch.path("t.vellum");
    let mut command = Command::new(env!("CARGO_BIN_EXE_vellum"));
    let command = command.args(["export", &trace, "-f", "csv", "-o", "-"]);
    let output = command.stdout(full).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", printed(&output));
    assert!(printed(&output).contains("standard output: cannot write"));
    // SAFETY: takes nothing and cannot fail.
    if unsafe { libc::geteuid() } != 0 {
        eprintln!("SKIPPED: only root can mount a small file system");
        return;
    }
    for format in ["csv", "parquet", "libcachesim"] {
        let script = "mount -t tmpfs -o size=4k tmpfs below && head -c 4096 /dev/zero > below/full && \
             exec \"$0\" export t.vellum -f \"$1\" -o below/out";
        let mut unshare = Command::new("unshare");
        let program = env!("CARGO_BIN_EXE_vellum");
        let unshare = unshare.args(["-m", "sh", "-c", script, program, format]);
        let output = unshare.current_dir(scratch.directory()).output().unwrap();
        let text = printed(&output);
        assert_eq!(output.status.code(), Some(1), "{format}: {text}");
        assert!(text.contains("below/out: cannot write"), "{format}: {text}");
    }
}

/// All commands, however deep.
fn every(command: &Parser) -> Vec<&Parser> {
    let below = command.get_subcommands().flat_map(every);
    std::iter::once(command).chain(below).collect()
}

#[test]
fn every_argument_that_is_a_path_says_so() {
    let cli = Cli::command();
    for command in every(&cli) {
        for argument in command.get_arguments() {
            let is_path = argument.get_value_parser().type_id() == TypeId::of::<PathBuf>();
            let hint = argument.get_value_hint();
            let says_so = matches!(hint, ValueHint::FilePath | ValueHint::DirPath);
            let name = (command.get_name(), argument.get_id());
            assert!(says_so || !is_path, "{name:?} would not be spared");
        }
    }
}

#[test]
fn files_are_written_through_the_one_place_that_checks_them() {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/cli");
    let mut directories = vec![sources];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                directories.push(path);
            } else if path.file_name().is_some_and(|name| name != "outputs.rs") {
                let text = fs::read_to_string(&path).unwrap();
                for creation in ["PartialFile::create", "File::create", "fs::write"] {
                    assert!(!text.contains(creation), "{}: {creation}", path.display());
                }
            }
        }
    }
}
