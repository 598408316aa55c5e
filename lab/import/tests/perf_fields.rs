//! Whatever fields `perf script` was told to print, its text is read, or refused with the option
//! that would help. Lines are in the form of perf 6.1.

use vellum_import::{Format, ImportError, Imported, Options, Report, import_text};
use vellum_trace::{Access, EventKind, MapOrigin};

/// Who and when, and what: the lines of a program that maps two pages and stores to them.
const LINES: [(&str, &str); 9] = [
    ("10.000001", "PERF_RECORD_COMM exec: demo:100/100"),
    (
        "10.000002",
        "PERF_RECORD_MMAP2 100/100: [0x400000(0x2000) @ 0 fe:00 325835 0]: r-xp /usr/bin/demo",
    ),
    (
        "10.000003",
        "exceptions:page_fault_user: address=0x401000 ip=0x401000 error_code=0x14",
    ),
    (
        "10.000004",
        "syscalls:sys_enter_mmap: addr: 0x00000000, len: 0x00002000, prot: 0x00000003, flags: 0x00000022, fd: 0xffffffffffffffff, off: 0x00000000",
    ),
    ("10.000005", "syscalls:sys_exit_mmap: 0x7f0000000000"),
    (
        "10.000006",
        "exceptions:page_fault_user: address=0x7f0000000000 ip=0x401030 error_code=0x6",
    ),
    (
        "10.000007",
        "raw_syscalls:sys_enter: NR 11 (7f0000000000, 2000, 0, 0, 0, 0)",
    ),
    ("10.000008", "raw_syscalls:sys_exit: NR 11 = 0"),
    ("10.000009", "PERF_RECORD_EXIT(100:100):(1:1)"),
];

fn is_sample(what: &str) -> bool {
    !what.starts_with("PERF_RECORD_")
}

/// The text with each line made by `line` of the time and the rest.
fn text(line: impl Fn(&str, &str) -> String) -> String {
    LINES.map(|(time, what)| line(time, what) + "\n").concat()
}

/// The text with its samples changed by `change`.
fn samples(change: impl Fn(&str) -> String) -> String {
    text(|time, what| {
        let what = if is_sample(what) {
            change(what)
        } else {
            what.to_owned()
        };
        format!("            demo   100 [001]    {time}: {what}")
    })
}

fn import(text: &str) -> Result<(Imported, Report), ImportError> {
    let (format, imported, report) = import_text(text.as_bytes(), &Options::default())?;
    assert_eq!(format, Format::PerfScript);
    Ok((imported, report))
}

fn read_whole(name: &str, text: &str) -> Vec<EventKind> {
    let (imported, report) = import(text).unwrap_or_else(|error| panic!("{name}: {error}\n{text}"));
    assert_eq!(report.skipped, [], "{name}\n{text}");
    imported.events().iter().map(|event| event.kind).collect()
}

fn refusal(text: &str) -> String {
    match import(text) {
        Err(error) => error.to_string(),
        Ok((imported, report)) => panic!("{:?} {:?}", imported.events(), report),
    }
}

#[test]
fn every_field_that_perf_adds_is_read_over() {
    let plain = read_whole("plain", &samples(str::to_owned));
    assert_eq!(plain.len(), 7, "{plain:?}");
    let after = |added: &str| samples(|what| format!("{what}{added}"));
    let before = |added: &str| samples(|what| format!("{added}{what}"));
    let named = |added: &str| {
        samples(|what| {
            let (event, fields) = what.split_once(": ").unwrap();
            format!("{event}: {added}{fields}")
        })
    };
    let who = |who: &str| text(|time, what| format!("{who}    {time}: {what}"));
    let misc = text(|time, what| {
        let mode = match what {
            _ if what.starts_with("PERF_RECORD_COMM") => "E     ",
            _ if what.starts_with("PERF_RECORD_MMAP2") => "UM    ",
            _ if what.starts_with("exceptions") => "K     ",
            _ if is_sample(what) => "U     ",
            _ => "      ",
        };
        format!("            demo   100 [001] {mode}    {time}: {what}")
    });
    let data_src = "     1e05080021 |OP N/A|LVL N/A or N/A|SNP N/A|TLB N/A|LCK N/A|BLK  N/A";
    let regs = " ABI:2    AX:0x0    BX:0x7f0000000000    IP:0xffffffff821f5340 FLAGS:0x0 ";
    let chain =
        "\n\t            1050 _start+0x50 (/usr/bin/demo)\n\t          401050 [unknown] (x)\n";
    let texts = [
        ("-cpu", who("            demo   100 ")),
        ("+pid", who("            demo     100/100     [001] ")),
        ("-comm", who("    100 [001] ")),
        ("-comm,-cpu,+pid", who("    100/100    ")),
        ("-tid,+pid", who("            demo     100 [001] ")),
        ("+misc", misc),
        (
            "+tod",
            who("            demo   100 [001] 2026-11-29 07:02:12.600650 "),
        ),
        (
            "--ns",
            text(|time, what| format!("            demo   100 [001]    {time}000: {what}")),
        ),
        ("+period", before("         1 ")),
        ("+period, large", before("4294967296000 ")),
        ("event:u", samples(|what| what.replacen(": ", ":u: ", 1))),
        ("+flags", named("                        ")),
        ("+flags, set", named("  tr strt jmp           ")),
        ("+addr", after("               0")),
        (
            "+addr,sym,dso",
            after("               0 [unknown] ([unknown])"),
        ),
        ("+data_src", after(data_src)),
        ("+weight", after("               0")),
        (
            "+ins_lat,retire_lat",
            after("               0               0"),
        ),
        ("+cgroup", after(" /user.slice/a b")),
        (
            "+ip,sym,dso",
            after(" ffffffff821f5340 asm_exc_page_fault+0x0 ([kernel.kallsyms])"),
        ),
        ("+ip, chains", after(chain)),
        (
            "+ip,srcline",
            after(" 401050 _start+0x50 (/usr/bin/demo)\n  demo.c:12"),
        ),
        ("+ip,srccode", after(" 401050\n|12       area[0] = 1;")),
        ("+iregs", after(regs)),
        ("+uregs", after(regs)),
        (
            "+brstack",
            after(" 0x7f0000000010/0x401000/P/-/-/0  0x401030/0x7f0000000000/M/-/-/0 "),
        ),
        ("+brstacksym", after(" main+0x10/_start+0x0/P/-/-/0 ")),
        (
            "+brstackoff",
            after(" 0x1030(/usr/bin/demo)/0x1000(/usr/bin/demo)/P/-/-/0 "),
        ),
        (
            "+brstackinsn",
            after("\n\t_start:\n\t0000000000401000\tinsn: b8 e7 00 00 00 \t# PRED"),
        ),
        (
            "+bpf-output",
            after("\n      BPF output: 0000: 61 62 63 64  abcd"),
        ),
        ("+insn,insnlen", after(" ilen: 5 insn: b8 e7 00 00 00")),
        ("+callindent", after("")),
        ("+synth", after("")),
        ("+phys_addr", after("               0")),
        ("+data_page_size", after(" N/A")),
        ("+code_page_size", after(" 4K")),
        ("+ipc", after(" \t IPC: 0.50 (1/2)")),
        (
            "+metric",
            after("\n            demo   100 [001]    10.000009: \tmetric:    0.50  insn per cycle"),
        ),
        (
            "--reltime",
            text(|time, what| {
                format!(
                    "            demo   100 [001]     {}: {what}",
                    time.replace("10.", "1.")
                )
            }),
        ),
        (
            "everything",
            text(|time, what| {
                let who = "            demo     100/100     [001] U     ";
                let (period, end) = if is_sample(what) {
                    ("         1 ", regs)
                } else {
                    ("", "")
                };
                format!("{who}2026-11-29 07:02:12.600650    {time}: {period}{what}{end}")
            }),
        ),
    ];
    for (fields, text) in &texts {
        assert_eq!(read_whole(fields, text), plain, "{fields}");
    }
}

#[test]
fn fields_without_which_nothing_can_be_read_are_named() {
    let without_event = |what: &str| what.split_once(": ").unwrap().1.to_owned();
    for (text, option) in [
        (
            text(|time, what| format!("            demo [001]    {time}: {what}")),
            "+tid",
        ),
        (
            text(|_, what| format!("            demo   100 [001] {what}")),
            "+time",
        ),
        (samples(without_event), "+event"),
        (
            samples(|what| format!("         1 {}", without_event(what))),
            "+event",
        ),
        (
            samples(|what| format!("{}: ", what.split_once(": ").unwrap().0)),
            "+trace",
        ),
        (
            text(|time, what| format!("    demo     100   1 {time}: {what}")),
            "--Latency",
        ),
        (
            text(|time, what| format!("VM: 1234 VCPU:003             demo   100 {time}: {what}")),
            "+machine_pid",
        ),
        (
            samples(|what| format!("something {what}")),
            "before the event",
        ),
    ] {
        let error = refusal(&text);
        assert!(error.contains(option), "{option}: {error}");
    }
}

#[test]
fn an_exec_names_its_program_where_lines_do_not() {
    let text = "\
    100 1.000001: syscalls:sys_enter_execve: filename: 0x1, argv: 0x2, envp: 0x3
    100 1.000002: sched:sched_process_exec: filename=/usr/bin/a-rather-long-name pid=100 old_pid=100
    100 1.000003: exceptions:page_fault_user: address=0x401000 ip=0x401000 error_code=0x14
";
    let (imported, _) = import(text).unwrap();
    assert_eq!(imported.header().strings, ["a-rather-long-n"]);
}

#[test]
fn a_text_of_perf_with_periods_is_read() {
    let text = "\
            demo   100 [001]    10.000001: PERF_RECORD_COMM exec: demo:100/100
            demo   100 [001]    10.000002: PERF_RECORD_MMAP2 100/100: [0x400000(0x2000) @ 0 fe:00 325835 0]: r-xp /usr/bin/demo
            demo   100 [001]    10.000003:          1           syscalls:sys_enter_mmap: addr: 0x00000000, len: 0x00002000, prot: 0x00000003, flags: 0x00000022, fd: 0xffffffff, off: 0x00000000
            demo   100 [001]    10.000004:          1            syscalls:sys_exit_mmap: 0x7f0000000000
            demo   100 [001]    10.000005:          1        exceptions:page_fault_user: address=0x7f0000000000 ip=0x401000 error_code=0x6
            demo   100 [001]    10.000006: PERF_RECORD_EXIT(100:100):(1:1)
";
    let kinds = read_whole("periods", text);
    assert!(
        matches!(
            kinds[..],
            [
                EventKind::Exec { .. },
                EventKind::Map {
                    address: 0x40_0000,
                    origin: MapOrigin::Exec,
                    ..
                },
                EventKind::Map {
                    address: 0x7f00_0000_0000,
                    length: 0x2000,
                    ..
                },
                EventKind::Fault {
                    address: 0x7f00_0000_0000,
                    access: Access::Write,
                    ..
                },
                EventKind::Exit,
            ]
        ),
        "{kinds:?}"
    );
}

#[test]
fn differences_are_not_taken_for_times() {
    let text = "\
            demo   100 [001]     0.000000: syscalls:sys_enter_brk: brk: 0x00000000
            demo   100 [001]     2.000000: syscalls:sys_exit_brk: 0x1000000
            demo   100 [001]     1.000000: syscalls:sys_enter_brk: brk: 0x1001000
            demo   100 [001]     1.000000: syscalls:sys_exit_brk: 0x1001000
";
    let error = refusal(text);
    assert!(error.contains("leave out --deltatime"), "{error}");
    // From the middle of such a text, too.
    let line = |index: u64| {
        let call = [
            "syscalls:sys_enter_brk: brk: 0x0",
            "syscalls:sys_exit_brk: 0x1000",
        ];
        let (time, call) = (1 + index * 7 % 5, call[index as usize % 2]);
        format!("demo 100 [001] 0.00000{time}: {call}\n")
    };
    let error = refusal(&(0..3000).map(line).collect::<String>());
    assert!(error.contains("leave out --deltatime"), "{error}");
}

#[test]
fn calls_without_their_ends_are_an_error_that_names_the_events() {
    let calls = |half: &str, count: usize| {
        let mut text = samples(str::to_owned);
        for call in 0..count {
            text += &format!("demo 200 [001] 11.{call:06}: {half}\n");
        }
        text
    };
    let enter = "syscalls:sys_enter_munmap: addr: 0x7f0000000000, len: 0x00002000";
    let error = refusal(&calls(enter, 20));
    assert!(error.contains("sys_exit_munmap"), "{error}");
    let error = refusal(&calls(
        "raw_syscalls:sys_enter: NR 11 (0, 1000, 0, 0, 0, 0)",
        20,
    ));
    assert!(error.contains("raw_syscalls:sys_exit"), "{error}");
    let error = refusal(&calls("syscalls:sys_exit_munmap: 0x0", 20));
    assert!(error.contains("sys_enter_munmap"), "{error}");
}

#[test]
fn software_faults_are_an_error_alone_and_passed_over_beside_the_others() {
    let line = "demo 100 [001] 10.000010:          1 page-faults:     7f0000001000          401033 _start+0x33 (/usr/bin/demo)\n";
    let plain = samples(str::to_owned);
    let (_, report) = import(&(plain + line)).unwrap();
    assert_eq!(report.skipped, []);
    let lines = LINES
        .iter()
        .filter(|(_, what)| !what.starts_with("exceptions"));
    let alone: String = lines
        .map(|(time, what)| format!("demo 100 [001] {time}: {what}\n"))
        .collect();
    let error = refusal(&(alone + &line.repeat(10)));
    assert!(error.contains("exceptions:page_fault_user"), "{error}");
}

#[test]
fn where_nothing_is_an_event_the_reasons_are_told() {
    let error =
        refusal("make 7/7 1.0: sched:sched_switch: x\nmake 7/7 1.0: sched:sched_wakeup: x\n");
    for part in [
        "nothing to import",
        "sched:sched_switch (line 1)",
        "sched:sched_wakeup",
    ] {
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn a_share_of_damaged_lines_that_cannot_be_innocent_is_an_error() {
    let text = |damaged: usize| {
        let fault = "demo 100 [001] 10.000001: exceptions:page_fault_user: address=0x";
        let line = |line| {
            let rest = if line < damaged {
                ""
            } else {
                "401000 ip=0x1 error_code=0x4"
            };
            format!("{fault}{rest}\n")
        };
        (0..200).map(line).collect::<String>()
    };
    let (_, report) = import(&text(20)).unwrap();
    assert_eq!(report.skips(), 20);
    let error = refusal(&text(21));
    for part in [
        "21 of the 200 lines",
        "nothing was written",
        "skipped 21 lines",
    ] {
        assert!(error.contains(part), "{error}");
    }
}
