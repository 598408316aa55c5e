//! Machines whose every figure is round, for tests that compute what must come out.

#![allow(dead_code, reason = "each test program uses a part of it")]

use vellum_sim::Description;

/// Nanoseconds of the machines here.
pub const HIT: u64 = 1;
pub const UPDATE: u64 = 5;
pub const CLUSTER: u64 = 40;
pub const SLOT: u64 = 4;
pub const MEMORY: u64 = 100;

/// A machine of one cluster, with nothing to pay between accesses.
pub fn flat(cores: usize) -> Description {
    parse(&text(1, cores, 1, ""))
}

/// The text of a machine of `sockets` sockets, each one cluster of `cores` cores with
/// `threads` threads. `line_extra` goes to the table of lines.
pub fn text(threads: usize, cores: usize, sockets: usize, line_extra: &str) -> String {
    let sibling = match threads {
        1 => "",
        _ => "sibling = { ns = 8, source = \"assumed: test\" }",
    };
    let cluster = match cores {
        1 => "",
        _ => "cluster = { ns = 40, source = \"assumed: test\" }",
    };
    let (board, far) = match sockets {
        1 => ("", ""),
        _ => (
            "board = { ns = 200, source = \"assumed: test\" }",
            "board = { ns = 300, source = \"assumed: test\" }",
        ),
    };
    let shared = match threads {
        1 => "",
        _ => "shared_speed = { share = 0.5, source = \"assumed: test\" }",
    };
    format!(
        r#"title = "A machine for tests"
notes = ""

[topology]
threads_per_core = {threads}
cores_per_cluster = {cores}
clusters_per_socket = 1
sockets_per_board = {sockets}
boards = 1
nodes_per_socket = 1
source = "assumed: test"

[lines]
hit = {{ ns = 1, source = "assumed: test" }}
update = {{ ns = 5, source = "assumed: test" }}
slot = {{ ns = 4, source = "assumed: test" }}
{sibling}
{cluster}
{board}
{line_extra}

[memory]
own = {{ ns = 100, source = "assumed: test" }}
{far}

[bandwidth]
zero = {{ gb_per_s = 10, source = "assumed: test" }}
copy = {{ gb_per_s = 5, source = "assumed: test" }}
node = {{ gb_per_s = 40, source = "assumed: test" }}

[processor]
work = {{ ns = 0, source = "assumed: test" }}
store_buffer = {{ count = 40, source = "assumed: test" }}
{shared}

[flush]
send = {{ ns = 100, source = "assumed: test" }}
arrive = {{ ns = 1000, source = "assumed: test" }}
handle = {{ ns = 300, source = "assumed: test" }}
page = {{ ns = 50, source = "assumed: test" }}
full = {{ ns = 700, source = "assumed: test" }}
full_from = {{ count = 34, source = "assumed: test" }}

[system]
trap = {{ ns = 250, source = "assumed: test" }}
syscall = {{ ns = 50, source = "assumed: test" }}
sleep = {{ ns = 1000, source = "assumed: test" }}
wake = {{ ns = 500, source = "assumed: test" }}
wake_latency = {{ ns = 1500, source = "assumed: test" }}
"#
    )
}

/// The description in a text that is right.
pub fn parse(text: &str) -> Description {
    match Description::parse(text, "test.toml") {
        Ok(description) => description,
        Err(error) => panic!("{error}\n{text}"),
    }
}

/// Asserts that `found` is within `percent` percent of `expected`.
#[track_caller]
pub fn assert_near(what: &str, found: f64, expected: f64, percent: f64) {
    let off = 100.0 * (found / expected - 1.0);
    assert!(
        off.abs() <= percent,
        "{what}: {found:.1}, expected {expected:.1} ({off:+.1} %, allowed {percent} %)"
    );
}
