//! Which tool printed a text.

use crate::packed::Packing;
use crate::{
    HEAD, ImportError, Input, damon, drmemtrace, foreign, lackey, perf_script, smaps, strace,
};

/// A kind of text that can be imported.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
pub enum Format {
    /// Lines of `perf script`
    PerfScript,
    /// Lines of ftrace: `trace`, `trace_pipe`, `trace-cmd report`
    Ftrace,
    /// Lines of `strace -f -ttt`
    Strace,
    /// Lines of `valgrind --tool=lackey --trace-mem=yes`
    Lackey,
    /// Records of DynamoRIO's drmemtrace, or lines of its view tool
    Drmemtrace,
    /// What DAMON saw: `damo record`, `damo report raw`, or its events in text of perf or ftrace
    Damon,
    /// A dump of `/proc/PID/smaps`
    Smaps,
}

impl Format {
    /// The tool, for messages.
    pub fn name(self) -> &'static str {
        match self {
            Format::PerfScript => "perf script",
            Format::Ftrace => "ftrace",
            Format::Strace => "strace",
            Format::Lackey => "lackey",
            Format::Drmemtrace => "drmemtrace",
            Format::Damon => "DAMON",
            Format::Smaps => "smaps",
        }
    }
}

/// What each kind looks like.
const LOOKS: &str = "\
  perf-script  make  4711 [001]  12.345678: exceptions:page_fault_user: address=0x7f… ip=0x… error_code=0x6
  ftrace       make-4711 [001] d....  12.345678: page_fault_user: address=0x7f… ip=0x… error_code=0x6
  strace       4711  1700000000.123456 munmap(0x7f…, 4096) = 0
  lackey        S 1ffeffe7e,8
  drmemtrace   14  3:  4711 write  8 byte(s) @ 0x7f… by PC 0x…
  damon        7f…000-7f…000 (   3.949 MiB)           0    -1
  smaps        7f…000-7f…000 r-xp 00002000 fe:00 325835   /usr/bin/make";

/// Binary files that are taken for text by mistake, and what to do.
const BINARY: [(&[u8], &str); 8] = [
    (
        b"PERFILE2",
        "it is perf's own data; make text of it with: perf script --show-task-events \
         --show-mmap-events -i FILE",
    ),
    (b"\x89VLM", "it is a Vellum trace already"),
    (b"\x7fELF", "it is a program"),
    (
        b"\x04\x22\x4d\x18",
        "it is compressed with lz4, which is not read: lz4 -dc FILE | vellum import -",
    ),
    (
        b"\xfd7zXZ\0",
        "it is compressed with xz, which is not read: xzcat FILE | vellum import -",
    ),
    (
        b"BZh",
        "it is compressed with bzip2, which is not read: bzcat FILE | vellum import -",
    ),
    (
        b"\xff\x06\x00\x00sNaPpY",
        "it is compressed with snappy, which is not read",
    ),
    (
        b"damon_recfmt_ver",
        "it is a binary recording of an old damo; make text of it: damo report raw -i FILE",
    ),
];

/// Which format the inputs have: the one that was `asked` for, or the one that
/// all of them look like.
pub fn settle(inputs: &mut [Input], asked: Option<Format>) -> Result<Format, ImportError> {
    let mut found: Option<(Format, String)> = None;
    for input in inputs {
        let name = input.name.clone();
        let read = |source| ImportError::Read {
            name: name.clone(),
            source,
        };
        let packing = input.unpack().map_err(read)?;
        let head = input.head(HEAD).map_err(read)?;
        let is_records =
            drmemtrace::begins(&head) && asked.is_none_or(|format| format == Format::Drmemtrace);
        if !is_records {
            check_text(&name, &head, packing)?;
        }
        if asked.is_some() {
            continue;
        }
        let format = match is_records {
            true => Format::Drmemtrace,
            false => guess(&name, &head)?,
        };
        match &found {
            Some((other, first)) if *other != format => {
                return Err(ImportError::Format(format!(
                    "{first} is {} text and {name} is {} text: import them one by one",
                    other.name(),
                    format.name()
                )));
            }
            _ => found = Some((format, name)),
        }
    }
    asked
        .or(found.map(|(format, _)| format))
        .ok_or_else(|| ImportError::Format("there is nothing to import".to_owned()))
}

fn check_text(name: &str, head: &[u8], packing: Option<Packing>) -> Result<(), ImportError> {
    let refuse = |why: &str| Err(ImportError::Format(format!("{name}: not text: {why}")));
    if head.is_empty() {
        return Err(ImportError::Format(format!("{name}: it is empty")));
    }
    for (magic, why) in BINARY {
        if head.starts_with(magic) {
            return refuse(why);
        }
    }
    if drmemtrace::is_raw(head) {
        return refuse(
            "it is a raw recording of drmemtrace, which the tool converts when it is first used: \
             drrun -t drmemtrace -indir DIRECTORY; then import the files in its directory trace",
        );
    }
    if Packing::of(head).is_some() && packing.is_some() {
        return refuse("it is compressed twice");
    }
    match head.iter().position(|byte| *byte == 0) {
        Some(at) => refuse(&format!("byte {at} is zero")),
        None => Ok(()),
    }
}

/// The format of which most lines are.
fn guess(name: &str, head: &[u8]) -> Result<Format, ImportError> {
    let text = String::from_utf8_lossy(head);
    let mut counts = [
        (Format::PerfScript, 0),
        (Format::Ftrace, 0),
        (Format::Strace, 0),
        (Format::Lackey, 0),
        (Format::Drmemtrace, 0),
        (Format::Damon, 0),
        (Format::Smaps, 0),
    ];
    if damon::looks_like_json(&text) {
        return Ok(Format::Damon);
    }
    for line in text.lines() {
        for (format, count) in &mut counts {
            let looks = match format {
                Format::PerfScript => perf_script::looks_like(line),
                Format::Ftrace => perf_script::looks_like_ftrace(line),
                Format::Strace => strace::looks_like(line),
                Format::Lackey => lackey::looks_like(line),
                Format::Drmemtrace => drmemtrace::looks_like(line),
                Format::Damon => damon::looks_like(line),
                Format::Smaps => smaps::looks_like(line),
            };
            *count += u32::from(looks);
        }
    }
    counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let [(best, most), (_, second), ..] = counts;
    if let Some((kind, lines)) = foreign::kind(&text)
        && lines > most as usize
    {
        return Err(ImportError::Format(format!(
            "{name}: it is {}",
            kind.what()
        )));
    }
    if most > second {
        return Ok(best);
    }
    Err(ImportError::Unknown {
        name: name.to_owned(),
        looks: LOOKS,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settled(text: &str) -> Result<Format, String> {
        let reader = Box::new(std::io::Cursor::new(text.as_bytes().to_vec()));
        settle(&mut [Input::new("x", reader)], None).map_err(|error| error.to_string())
    }

    #[test]
    fn each_kind_of_line_is_recognised() {
        for (line, format) in [
            (
                "  make  4711 [001]  12.345678: exceptions:page_fault_user: address=0x1000 ip=0x2 error_code=0x6",
                Format::PerfScript,
            ),
            (
                "my prog (x) 4711/4712  12.345678: PERF_RECORD_EXIT(1:2):(3:4)",
                Format::PerfScript,
            ),
            (
                "  demo-930   [003] d...  6288.896762: page_fault_user: address=0x1 ip=0x2 error_code=0x7\n",
                Format::Ftrace,
            ),
            (
                "cpus=4\n  my demo-930   [003]  6288.896762: sys_enter_brk: brk: 0x0\n",
                Format::Ftrace,
            ),
            ("4711  1700000000.123456 brk(NULL) = 0x1000", Format::Strace),
            (
                "[pid  4711] 12:00:01.5 +++ exited with 0 +++",
                Format::Strace,
            ),
            ("munmap(0x7f0000000000, 4096) = 0", Format::Strace),
            (
                "          10           1:     1671643 ifetch       3 byte(s) @ 0x00007f non-branch",
                Format::Drmemtrace,
            ),
            (
                "     2: T1671643 read  8 byte(s) @ 0x1 by PC 0x2",
                Format::Drmemtrace,
            ),
            (
                "1000-3000 rw-p 00000000 00:00 0\nRss:       4 kB",
                Format::Smaps,
            ),
            (
                "monitoring_start: 0 ns\ntarget_id: 0\nnr_regions: 1\n563ebaa00000-563ebc99e000(  31.617 MiB): 1\n",
                Format::Damon,
            ),
            ("[{\"kdamond_idx\": 0, \"snapshots\": []}]", Format::Damon),
            (
                "kdamond.0 4597 [005] 1307.2: damon:damon_aggregated: target_id=0 nr_regions=11 122509119488-135708762112: 0 864",
                Format::Damon,
            ),
            ("I  0401ab70,3", Format::Lackey),
            (" S 1fff000748,8", Format::Lackey),
        ] {
            assert_eq!(settled(line), Ok(format), "{line}");
        }
    }

    #[test]
    fn what_cannot_be_told_is_said_with_an_example_of_each() {
        let error = settled("hello\nworld\n").unwrap_err();
        for format in ["perf-script", "strace", "lackey", "--from"] {
            assert!(error.contains(format), "{error}");
        }
        assert!(settled("").unwrap_err().contains("empty"));
        assert!(settled("PERFILE2…").unwrap_err().contains("perf script"));
        assert!(settled("a\0b").unwrap_err().contains("byte 1"));
    }

    #[test]
    fn kinds_that_are_not_read_are_named() {
        for (text, name) in [
            (
                "0x1a8 [0x28]: event: 79\n.\n. ... raw event: size 40 bytes\n0 1105900999 0x1f0 [0x38]: PERF_RECORD_COMM exec: demo:7/7\n0 1105901045 0x228 [0x60]: PERF_RECORD_SAMPLE(IP, 0x1): 7/7: 0x0 period: 1 addr: 0\n",
                "perf script -D",
            ),
            (
                "     0.000 ( 0.003 ms): demo/100 brk() = 0x5555\n     0.010 ( 0.001 ms): demo/100 close(fd: 3) = 0\n",
                "perf trace",
            ),
        ] {
            let error = settled(text).unwrap_err();
            assert!(error.contains(name), "{name}: {error}");
        }
        for (bytes, name) in [
            ("damon_recfmt_ver\x02", "damo report raw"),
            ("\x04\x22\x4d\x18", "lz4 -dc"),
        ] {
            assert!(settled(bytes).unwrap_err().contains(name), "{name}");
        }
    }
}
