//! Reading what other profilers print.
//!
//! Four formats, recognised by their first lines unless the caller names one. A
//! line that is not of the format is refused with its place: a profile that
//! lost lines compares as a gain.

mod folded;
mod oprofile;
mod perf;
mod readprofile;

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use crate::Profile;

/// A text format of profiles.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
pub enum Format {
    /// Folded stacks: `outermost;…;innermost ticks`
    Folded,
    /// Output of `perf script`, with call chains or without
    Perf,
    /// Lines of opreport: `samples percent [image] [application] symbol`
    Oprofile,
    /// Output of readprofile: `ticks symbol [load]`
    Readprofile,
}

/// How to read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Options {
    /// The format, if it is not to be recognised.
    pub format: Option<Format>,
    /// Whether a sample of `perf script` counts as many ticks as its period says
    /// instead of one.
    pub periods: bool,
}

/// A profile could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The operating system refused.
    #[error("{path}: cannot be read: {source}", path = path.display())]
    Io {
        /// What was being read.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// No format has such lines.
    #[error(
        "{path}:{line}: this is a line of no known profile: {text:?}; folded stacks, perf script, \
         opreport and readprofile are read, and --format forces one of them",
        path = path.display()
    )]
    Unknown {
        /// The file.
        path: PathBuf,
        /// Number of the line, from 1.
        line: usize,
        /// The line's beginning.
        text: String,
    },
    /// A line is not of the file's format.
    #[error("{path}:{line}: expected {expected}, found {text:?}", path = path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Number of the line, from 1.
        line: usize,
        /// What belongs there.
        expected: &'static str,
        /// The line's beginning.
        text: String,
    },
    /// There are no ticks in the file.
    #[error("{path}: there is not one sample in it; was the profiler running?", path = path.display())]
    Empty {
        /// The file.
        path: PathBuf,
    },
}

/// What a format's reader says of a line it cannot use: what belongs there.
type Refused = &'static str;

/// A format's reader, fed line by line.
trait Reader {
    /// Takes one line, without its line end.
    fn line(&mut self, line: &str, profile: &mut Profile) -> Result<(), Refused>;

    /// The last line has been read.
    fn end(&mut self, _profile: &mut Profile) -> Result<(), Refused> {
        Ok(())
    }
}

impl Format {
    fn reader(self, options: Options) -> Box<dyn Reader> {
        match self {
            Format::Folded => Box::new(folded::Folded),
            Format::Perf => Box::new(perf::Perf::new(options.periods)),
            Format::Oprofile => Box::new(oprofile::Oprofile::default()),
            Format::Readprofile => Box::new(readprofile::Readprofile),
        }
    }

    /// The format that `line`, the first that says anything, belongs to. The
    /// order matters: each test refuses what those after it accept.
    fn of(line: &str) -> Option<Format> {
        type BeginsWith = fn(&str) -> bool;
        let tests: [(Format, BeginsWith); 4] = [
            (Format::Oprofile, oprofile::begins_with),
            (Format::Perf, perf::begins_with),
            (Format::Readprofile, readprofile::begins_with),
            (Format::Folded, folded::begins_with),
        ];
        let found = tests.iter().find(|(_, begins_with)| begins_with(line));
        found.map(|(format, _)| *format)
    }
}

/// Reads the profile at `path`; `-` is standard input.
///
/// # Errors
/// The file cannot be read, a line of it is damaged, or it holds no sample.
pub fn file(path: &Path, options: Options) -> Result<Profile, ReadError> {
    let failed = |source| ReadError::Io {
        path: path.to_owned(),
        source,
    };
    let input: Box<dyn Read> = match path == Path::new("-") {
        true => Box::new(io::stdin()),
        false => Box::new(File::open(path).map_err(failed)?),
    };
    text(BufReader::new(input), path, options)
}

/// Reads a profile from `input`, which errors call `path`.
///
/// # Errors
/// As [`file()`].
pub fn text(mut input: impl BufRead, path: &Path, options: Options) -> Result<Profile, ReadError> {
    let mut profile = Profile::new(path.display().to_string());
    let mut reader = options.format.map(|format| format.reader(options));
    let (mut bytes, mut number) = (Vec::new(), 0);
    loop {
        bytes.clear();
        let read = input.read_until(b'\n', &mut bytes);
        let read = read.map_err(|source| ReadError::Io {
            path: path.to_owned(),
            source,
        })?;
        if read == 0 {
            break;
        }
        number += 1;
        let line = String::from_utf8_lossy(&bytes);
        let line = line.trim_end_matches(['\n', '\r']);
        let damaged = |expected| ReadError::Damaged {
            path: path.to_owned(),
            line: number,
            expected,
            text: beginning(line),
        };
        if reader.is_none() && says_something(line) {
            let format = Format::of(line).ok_or_else(|| ReadError::Unknown {
                path: path.to_owned(),
                line: number,
                text: beginning(line),
            })?;
            reader = Some(format.reader(options));
        }
        if let Some(reader) = &mut reader {
            reader.line(line, &mut profile).map_err(damaged)?;
        }
    }
    if let Some(reader) = &mut reader {
        reader
            .end(&mut profile)
            .map_err(|expected| ReadError::Damaged {
                path: path.to_owned(),
                line: number,
                expected,
                text: "the end of the file".to_owned(),
            })?;
    }
    match profile.is_empty() {
        true => Err(ReadError::Empty {
            path: path.to_owned(),
        }),
        false => Ok(profile),
    }
}

/// Neither blank nor a comment.
fn says_something(line: &str) -> bool {
    let line = line.trim_start();
    !line.is_empty() && !line.starts_with('#')
}

/// As much of a line as an error message has room for.
fn beginning(line: &str) -> String {
    const ROOM: usize = 60;
    match line.char_indices().nth(ROOM) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn read(text: &str) -> Result<Profile, ReadError> {
        super::text(text.as_bytes(), Path::new("in.txt"), Options::default())
    }

    #[test]
    fn formats_are_recognised_by_their_first_line() {
        for (line, format) in [
            ("main;fork;add 12", Some(Format::Folded)),
            ("main 12", Some(Format::Folded)),
            (
                "CPU: P4 / Xeon, speed 2806.58 MHz (estimated)",
                Some(Format::Oprofile),
            ),
            ("samples  %        symbol name", Some(Format::Oprofile)),
            (
                "vma      samples  %           symbol name",
                Some(Format::Oprofile),
            ),
            ("12345    12.3456  default_idle", Some(Format::Oprofile)),
            (
                "  3521 default_idle                 55.0156",
                Some(Format::Readprofile),
            ),
            ("  3521 default_idle", Some(Format::Readprofile)),
            (
                "sh 24565  1701.744405:     250000 cpu-clock: ",
                Some(Format::Perf),
            ),
            (
                "   sh 24565 [001]  1701.7: 250000 cpu-clock:  7f0a7a65 main+0x3 (/bin/sh)",
                Some(Format::Perf),
            ),
            ("Dear list,", None),
            ("12", None),
        ] {
            assert_eq!(Format::of(line), format, "{line}");
        }
    }

    #[test]
    fn errors_name_file_line_and_what_belongs_there() {
        let error = read("main;fork 12\nmain;fork twelve\n").unwrap_err();
        let message = error.to_string();
        assert!(message.starts_with("in.txt:2: expected "), "{message}");
        assert!(message.contains("main;fork twelve"), "{message}");
        let error = read("\n# a comment\nDear list,\n").unwrap_err();
        assert!(error.to_string().starts_with("in.txt:3: "), "{error}");
        let long = format!("a;b 1\n{}\n", "x".repeat(1000));
        assert!(read(&long).unwrap_err().to_string().len() < 300);
    }

    #[test]
    fn a_profile_without_samples_is_refused() {
        for text in [
            "",
            "\n\n",
            "# only a comment\n",
            "main 0\n",
            "samples  %  symbol name\n",
        ] {
            assert!(
                matches!(read(text), Err(ReadError::Empty { .. })),
                "{text:?}"
            );
        }
    }

    #[test]
    fn line_ends_of_other_systems_and_foreign_bytes_are_read() {
        let options = Options::default();
        let text = b"a;b 1\r\na;\xff 2\r\n";
        let profile = super::text(&text[..], Path::new("p"), options).unwrap();
        assert_eq!(profile.total(), 3);
        assert_eq!(profile.flat()["b"], 1);
    }

    #[test]
    fn a_named_format_is_not_questioned() {
        let options = Options {
            format: Some(Format::Folded),
            periods: false,
        };
        let text = "12 default_idle 7\n";
        let profile = super::text(text.as_bytes(), Path::new("p"), options).unwrap();
        assert_eq!(profile.flat()["12 default_idle"], 7);
    }
}
