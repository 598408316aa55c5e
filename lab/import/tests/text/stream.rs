//! Accesses one by one.

use std::io::Cursor;

use crate::common::fixture;
use crate::drmemtrace::recording;
use vellum_import::{AccessKind, Format, ImportError, Input, Report, Streamed, stream};
use vellum_terminal::progress::{Interrupt, Progress, Style};

type Found = Result<(Format, Report, Vec<Streamed>), ImportError>;

fn streamed(inputs: &[&[u8]]) -> Found {
    let inputs = inputs.iter().enumerate().map(|(number, bytes)| {
        let name = format!("input {number}");
        Input::new(name, Box::new(Cursor::new(bytes.to_vec())))
    });
    let mut progress = Progress::new(Style::Quiet, "streaming", 0, "bytes");
    let mut found = Vec::new();
    let mut each = |access| found.push(access);
    let inputs = inputs.collect();
    let (format, report) = stream(inputs, None, &mut progress, &Interrupt::manual(), &mut each)?;
    Ok((format, report, found))
}

fn access((process, thread): (u64, u32), kind: AccessKind, address: u64, size: u64) -> Streamed {
    Streamed {
        process,
        thread,
        kind,
        address,
        size,
    }
}

#[test]
fn every_access_of_lackey_is_handed_on_in_order() {
    let text = b"==7== Lackey\nI  1000,3\n L 2ffc,8\n S 3000,4\n M 3008,4\n";
    let (format, report, found) = streamed(&[text, b"I  1000,3\n"]).expect("it is right");
    assert_eq!((format, report.skips()), (Format::Lackey, 0));
    use AccessKind::{Execute, Read, Write};
    let first = (0, 0);
    assert_eq!(
        found,
        [
            access(first, Execute, 0x1000, 3),
            access(first, Read, 0x2ffc, 8),
            access(first, Write, 0x3000, 4),
            access(first, Write, 0x3008, 4),
            access((1, 0), Execute, 0x1000, 3),
        ]
    );
    let text = fixture("lackey.txt");
    let lines = String::from_utf8_lossy(&text);
    let told = lines.lines().filter(|line| !line.starts_with("=="));
    let (_, _, found) = streamed(&[&text]).expect("it is right");
    assert_eq!(found.len(), told.count());
}

#[test]
fn drmemtrace_hands_on_what_programs_do_and_not_the_kernel() {
    let text = "\
           1           0:        4711 <marker: version 6>
           4           1:        4711 ifetch       8 byte(s) @ 0x0000000000401012 48 8d 34 25 lea
           5           2:        4712 read         8 byte(s) @ 0x00007fff8044fffc by PC 0x0000000000401016
           6           2:        4711 <marker: trace start for system call number 39>
           6           2:        4711 read         8 byte(s) @ 0x00000000deadbe00 by PC 0x00000000deadbe00
           6           2:        4711 <marker: trace end for system call number 39>
";
    let (format, report, found) = streamed(&[text.as_bytes()]).expect("it is right");
    assert_eq!((format, report.skips()), (Format::Drmemtrace, 0));
    assert_eq!(
        found,
        [
            access((0, 4711), AccessKind::Execute, 0x40_1012, 8),
            access((0, 4712), AccessKind::Read, 0x7fff_8044_fffc, 8),
        ]
    );
    let (_, _, found) = streamed(&[&recording()]).expect("it is right");
    let of = (4711, 4711);
    assert_eq!(
        found,
        [
            access(of, AccessKind::Execute, 0x40_1ffe, 3),
            access(of, AccessKind::Read, 0x7fff_8044_f000, 8),
            // The instructions of a bundle follow the last one.
            access(of, AccessKind::Execute, 0x40_2001, 3),
            access(of, AccessKind::Execute, 0x40_2004, 16),
            access(of, AccessKind::Write, 0x7fff_8044_f010, 4),
        ]
    );
}

#[test]
fn what_is_no_stream_or_a_damaged_one_is_refused() {
    let refused = |inputs: &[&[u8]]| match streamed(inputs) {
        Ok((format, _, found)) => panic!("{format:?}: {} accesses", found.len()),
        Err(error) => error.to_string(),
    };
    let told = refused(&[&fixture("strace.txt")]);
    assert!(told.contains("strace does not tell every access"), "{told}");
    let whole = recording();
    let told = refused(&[&whole[..whole.len() - 5]]);
    assert!(told.contains("it is cut off"), "{told}");
    let told = refused(&[&whole[..whole.len() - 12]]);
    assert!(told.contains("without a footer"), "{told}");
    let damaged = "I  1000,3\n".repeat(20) + &" L zzzz,8\n".repeat(10);
    let told = refused(&[damaged.as_bytes()]);
    assert!(told.contains("10 of the 30 lines"), "{told}");
    let told = refused(&[b"==7== Lackey, an example Valgrind tool\n"]);
    assert!(told.contains("nothing to import"), "{told}");
}
