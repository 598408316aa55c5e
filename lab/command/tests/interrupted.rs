//! A command that a signal ends in the middle of its work leaves nothing of it.
//!
//! What a command writes goes through a FIFO that lies where its temporary file
//! would: once bytes came out of it, and as long as nobody reads on, the command is
//! in the middle.

mod command;

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};

use command::Scratch;
use vellum_lab::bench::host::sdet;
use vellum_lab::host::tools;

fn send(child: &Child, signal: libc::c_int) {
    let pid = child.id() as libc::pid_t;
    // SAFETY: our own child, which has not been waited for.
    assert_eq!(unsafe { libc::kill(pid, signal) }, 0);
}

/// Waits until `ready`, before which the command must not end.
fn wait_until(child: &mut Child, mut ready: impl FnMut() -> bool) {
    while !ready() {
        let ended = child.try_wait().expect("it can be waited for");
        assert_eq!(ended, None, "it ended before it was in the middle");
        std::thread::yield_now();
    }
}

/// A shell with a script that heeds all signals: what the tests ignore (a
/// hang-up, under `nohup`) their children would ignore, too.
fn shell(script: &str) -> Command {
    let heed_all = || {
        for signal in [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM] {
            // SAFETY: the default action is no function.
            unsafe { libc::signal(signal, libc::SIG_DFL) };
        }
        Ok(())
    };
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", script]);
    // SAFETY: `signal` may be called between fork and exec.
    unsafe { shell.pre_exec(heed_all) };
    shell
}

/// Starts a command that writes `output`, and returns when it has begun to write
/// and cannot go on. What it wrote comes out of the file.
fn in_the_middle(output: &str, arguments: &[&str]) -> (Child, File) {
    let script = r#"ulimit -c 0; mkfifo "$0.$$.partial" && echo && read -r line && exec "$@""#;
    let mut child = shell(script)
        .args([output, env!("CARGO_BIN_EXE_vellum")])
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("a shell can be started");
    let mut made = [0];
    let stdout = child.stdout.as_mut().expect("a pipe");
    stdout.read_exact(&mut made).expect("the FIFO was made");
    let fifo = format!("{output}.{}.partial", child.id());
    let mut options = OpenOptions::new();
    let options = options.read(true).custom_flags(libc::O_NONBLOCK);
    let mut fifo = options.open(fifo).expect("the FIFO is there");
    let mut stdin = child.stdin.take().expect("a pipe");
    stdin.write_all(b"\n").expect("the shell listens");
    let mut byte = [0];
    wait_until(&mut child, || match fifo.read(&mut byte) {
        Ok(read) => read > 0,
        Err(error) if error.kind() == ErrorKind::WouldBlock => false,
        Err(error) => panic!("{error}"),
    });
    (child, fifo)
}

/// Reads what the command still writes, until it has ended.
fn drain(mut child: Child, mut fifo: File) -> ExitStatus {
    let mut bytes = [0; 1 << 16];
    loop {
        match fifo.read(&mut bytes) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => std::thread::yield_now(),
            Ok(0) => return child.wait().expect("it ends"),
            Ok(_) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

/// A shipped trace of several blocks, each larger than what a FIFO holds.
const TRACE: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../traces/snapshot-server.vellum"
);

/// A shipped trace that is soon simulated.
const SHORT: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../traces/sdet-like-1.vellum"
);

#[test]
fn a_cut_that_is_interrupted_stops_and_leaves_nothing() {
    for signal in [libc::SIGINT, libc::SIGTERM] {
        let scratch = Scratch::new(&format!("interrupted-cut-{signal}"));
        let output = scratch.path("part.vellum");
        let (child, fifo) = in_the_middle(&output, &["cut", TRACE, "-o", &output, "--level", "1"]);
        send(&child, signal);
        let status = drain(child, fifo);
        assert_eq!(status.code(), Some(130), "{status}");
        assert_eq!(scratch.files(), Vec::<String>::new());
    }
}

#[test]
fn signals_that_no_command_obeys_leave_nothing_either() {
    let old: String = (0..40_000).map(|n| format!("main;f{n} 5\n")).collect();
    let new = old.replace(" 5\n", " 7\n");
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT] {
        let inputs = Scratch::new(&format!("interrupted-profiles-{signal}"));
        let (old, new) = (inputs.write("old", &old), inputs.write("new", &new));
        let scratch = Scratch::new(&format!("interrupted-diff-{signal}"));
        let output = scratch.path("both.folded");
        let (mut child, _fifo) =
            in_the_middle(&output, &["diffprofile", &old, &new, "--folded", &output]);
        send(&child, signal);
        let status = child.wait().expect("it ends");
        assert_eq!(status.signal(), Some(signal), "{status}");
        assert_eq!(scratch.files(), Vec::<String>::new());
    }
}

#[test]
fn a_simulation_that_is_interrupted_leaves_nothing_or_whole_seeds() {
    let scratch = Scratch::new("interrupted-simulation");
    let output = scratch.path("out.json");
    let mut child = shell(r#"exec "$0" "$@""#)
        .args([env!("CARGO_BIN_EXE_vellum"), "replay", SHORT, "--on", "sim"])
        .args(["--machine", "numa-q-16", "--seeds", "1000", "--jobs", "1"])
        .args(["--json", &output])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("a shell can be started");
    wait_until(&mut child, || !scratch.files().is_empty());
    send(&child, libc::SIGINT);
    let status = child.wait().expect("it ends");
    assert_eq!(status.code(), Some(130), "{status}");
    if scratch.files() != Vec::<String>::new() {
        let written = std::fs::read(output).expect("nothing else is left");
        let found: serde_json::Value = serde_json::from_slice(&written).expect("whole JSON");
        assert_eq!(found["interrupted"], true);
    }
}

/// An import that has begun and waits for text.
fn waiting_import(scratch: &Scratch, script: &str) -> Child {
    let mut child = shell(script)
        .args([env!("CARGO_BIN_EXE_vellum"), "import", "-"])
        .args(["--from", "lackey", "-o", &scratch.path("out.vellum")])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("a shell can be started");
    wait_until(&mut child, || !scratch.files().is_empty());
    child
}

#[test]
fn a_second_ctrl_c_ends_what_does_not_come_to_an_end_and_leaves_nothing() {
    let scratch = Scratch::new("interrupted-import");
    let mut child = waiting_import(&scratch, r#"exec "$0" "$@""#);
    let status = loop {
        // Of two that come at a time the second is lost.
        if let Some(status) = child.try_wait().expect("it can be waited for") {
            break status;
        }
        send(&child, libc::SIGINT);
        std::thread::yield_now();
    };
    assert_eq!(status.code(), Some(130), "{status}");
    assert_eq!(scratch.files(), Vec::<String>::new());
}

#[test]
fn a_closed_terminal_ends_an_import_but_not_under_nohup() {
    let scratch = Scratch::new("hung-up-import");
    let mut child = waiting_import(&scratch, r#"exec "$0" "$@""#);
    send(&child, libc::SIGHUP);
    let status = child.wait().expect("it ends");
    assert_eq!(status.signal(), Some(libc::SIGHUP), "{status}");
    assert_eq!(scratch.files(), Vec::<String>::new());

    let mut child = waiting_import(&scratch, r#"trap '' HUP; exec "$0" "$@""#);
    send(&child, libc::SIGHUP);
    let mut stdin = child.stdin.take().expect("a pipe");
    stdin.write_all(b" S 1000,4\n").expect("it still reads");
    drop(stdin);
    let status = child.wait().expect("it ends");
    assert!(status.success(), "{status}");
    assert_eq!(scratch.files(), ["out.vellum"]);
}

/// Whether a process works in `directory`, or has its name among its arguments.
fn somebody_is_in(directory: &str) -> bool {
    let processes = std::fs::read_dir("/proc").expect("processes");
    processes.filter_map(Result::ok).any(|process| {
        let at = std::fs::read_link(process.path().join("cwd")).unwrap_or_default();
        let line = std::fs::read(process.path().join("cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).into_owned();
        at.to_string_lossy().contains(directory) || line.contains(directory)
    })
}

#[test]
fn a_second_ctrl_c_ends_programs_on_the_host_and_leaves_nothing() {
    if let Err(missing) = tools::require(sdet::script::TOOLS) {
        eprintln!("SKIPPED: {missing}");
        return;
    }
    for signal in [libc::SIGINT, libc::SIGHUP] {
        let scratch = Scratch::new(&format!("interrupted-sdet-{signal}"));
        let mut child = shell(r#"exec "$0" "$@""#)
            .args([env!("CARGO_BIN_EXE_vellum"), "bench", "sdet"])
            .args(["--on", "linux", "--size", "most=4", "-n", "50"])
            .env("TMPDIR", scratch.directory())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("a shell can be started");
        let entered = || {
            let sdet = scratch.files().first().map(|name| scratch.path(name));
            sdet.is_some_and(|sdet| somebody_is_in(&format!("{sdet}/vellum-run")))
        };
        wait_until(&mut child, entered);
        while child.try_wait().expect("it can be waited for").is_none() {
            send(&child, signal);
            std::thread::yield_now();
        }
        let status = child.wait().expect("it ended");
        match signal {
            libc::SIGINT => assert_eq!(status.code(), Some(130), "{status}"),
            _ => assert_eq!(status.signal(), Some(signal), "{status}"),
        }
        while somebody_is_in(scratch.directory()) {
            std::thread::yield_now();
        }
        assert_eq!(scratch.files(), Vec::<String>::new());
    }
}
