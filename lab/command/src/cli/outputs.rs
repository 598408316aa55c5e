//! What commands write, and the one place that decides where that may go.
//!
//! An option that names a file to be written has the type [`OutputPath`], or
//! [`OutputOrStdout`] where `-` is standard output. [`check`] looks at the options of all
//! commands before any of them begins: an output must be a regular file, and may be neither
//! an input nor another output, by whatever path or link. An input is every other option
//! whose value hint is a path.

use std::fmt;
use std::fs;
use std::io;
use std::ops::Deref;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use clap::builder::{PathBufValueParser, TypedValueParser, ValueParserFactory};
use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Command, ValueHint};
use vellum_output::PartialFile;
use vellum_output::target::{Identity, Target};

use super::{Failure, OrFail};

/// A file that a command writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutputPath(PathBuf);

/// A file that a command writes, or standard output (`-`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OutputOrStdout {
    /// Standard output.
    Stdout,
    /// A file.
    File(OutputPath),
}

impl From<PathBuf> for OutputPath {
    fn from(path: PathBuf) -> Self {
        Self(path)
    }
}

impl From<PathBuf> for OutputOrStdout {
    fn from(path: PathBuf) -> Self {
        match is_dash(&path) {
            true => Self::Stdout,
            false => Self::File(path.into()),
        }
    }
}

/// What parses the paths of options.
type PathParser<T> = clap::builder::MapValueParser<PathBufValueParser, fn(PathBuf) -> T>;

impl ValueParserFactory for OutputPath {
    type Parser = PathParser<Self>;

    fn value_parser() -> Self::Parser {
        PathBufValueParser::new().map(Self::from as fn(PathBuf) -> Self)
    }
}

impl ValueParserFactory for OutputOrStdout {
    type Parser = PathParser<Self>;

    fn value_parser() -> Self::Parser {
        PathBufValueParser::new().map(Self::from as fn(PathBuf) -> Self)
    }
}

impl Deref for OutputPath {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.0
    }
}

impl fmt::Display for OutputOrStdout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stdout => f.write_str("standard output"),
            Self::File(path) => path.display().fmt(f),
        }
    }
}

impl OutputOrStdout {
    /// The file, if it is one.
    pub fn file(&self) -> Option<&OutputPath> {
        match self {
            Self::Stdout => None,
            Self::File(path) => Some(path),
        }
    }
}

impl OutputPath {
    /// Begins the file, which appears when it is complete.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn create(&self) -> Result<OutputFile, Failure> {
        let create = || {
            let identity = Target::of(self)?.identity().clone();
            PartialFile::create(self).map(|file| (identity, file))
        };
        let (identity, file) = create().doing(|| writing(self))?;
        Ok(OutputFile {
            path: self.0.clone(),
            identity,
            file,
        })
    }
}

/// A file that is written at the end.
#[derive(Debug)]
pub struct OutputFile {
    path: PathBuf,
    identity: Identity,
    file: PartialFile,
}

impl OutputFile {
    /// Writes `text`, which is the whole file.
    ///
    /// # Errors
    /// It cannot be written; the message names the file.
    pub fn commit(self, text: &str) -> Result<(), Failure> {
        self.file.commit(text).doing(|| writing(&self.path))
    }

    /// Refuses to replace one of `inputs`, which the command line does not name.
    ///
    /// # Errors
    /// The file is one of them.
    pub fn spares(&self, inputs: &[PathBuf]) -> Result<(), Failure> {
        let is_this =
            |input: &&PathBuf| Identity::at(input).is_ok_and(|identity| identity == self.identity);
        match inputs.iter().find(is_this) {
            None => Ok(()),
            Some(input) => Err(Failure::usage(format!(
                "{}: it would replace {}, which is read",
                self.path.display(),
                input.display()
            ))),
        }
    }
}

fn writing(path: &Path) -> String {
    format!("writing {}", path.display())
}

fn is_dash(path: &Path) -> bool {
    path == Path::new("-")
}

/// What a command does with a file.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    Reads,
    Writes,
}

/// A file that a command line names.
struct Named {
    /// The option or argument that names it.
    option: String,
    /// As it stands there.
    path: PathBuf,
    role: Role,
    identity: Identity,
}

/// Refuses outputs that are no regular files, that are inputs, or that are each other's.
///
/// # Errors
/// The message says which options are at fault.
pub fn check(command: &Command, matches: &ArgMatches) -> Result<(), Failure> {
    let mut files = Vec::new();
    let (mut command, mut matches) = (command, matches);
    loop {
        for argument in command.get_arguments() {
            collect(argument, matches, &mut files)?;
        }
        let Some((name, below)) = matches.subcommand() else {
            break;
        };
        let Some(found) = command.find_subcommand(name) else {
            break;
        };
        (command, matches) = (found, below);
    }
    files.extend(stream(io::stdout(), "standard output", Role::Writes));
    let conflict = (0..files.len()).find_map(|place| {
        let (one, earlier) = (&files[place], &files[..place]);
        let is_conflict = |other: &&Named| {
            let writes = one.role == Role::Writes || other.role == Role::Writes;
            writes && one.identity == other.identity
        };
        earlier.iter().find(is_conflict).map(|other| (other, one))
    });
    match conflict {
        None => Ok(()),
        Some((one, other)) => Err(Failure::usage(conflict_text(one, other))),
    }
}

fn conflict_text(one: &Named, other: &Named) -> String {
    let (output, input) = match (one.role, other.role) {
        (Role::Writes, Role::Writes) => {
            let (path, first, second) = (one.path.display(), &one.option, &other.option);
            return format!("{path}: {first} and {second} are the same file");
        }
        (Role::Writes, Role::Reads) => (one, other),
        (Role::Reads, _) => (other, one),
    };
    format!(
        "{}: {} would replace the file that {} names",
        output.path.display(),
        output.option,
        input.option
    )
}

/// Adds the files that an argument names.
fn collect(argument: &Arg, matches: &ArgMatches, files: &mut Vec<Named>) -> Result<(), Failure> {
    let id = argument.get_id().as_str();
    let Ok(Some(values)) = matches.try_get_raw(id) else {
        return Ok(());
    };
    let option = match argument.get_long() {
        Some(long) => format!("--{long}"),
        None => id.to_uppercase(),
    };
    let kind = argument.get_value_parser().type_id();
    let may_print = kind == std::any::TypeId::of::<OutputOrStdout>();
    if may_print || kind == std::any::TypeId::of::<OutputPath>() {
        for path in values.map(PathBuf::from) {
            if may_print && is_dash(&path) {
                continue;
            }
            match Target::of(&path) {
                Ok(target) => files.push(Named {
                    option: option.clone(),
                    role: Role::Writes,
                    identity: target.identity().clone(),
                    path,
                }),
                Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
                    let path = path.display();
                    return Err(Failure::usage(format!("{option} {path}: {error}")));
                }
                // The command says what is wrong where it writes.
                Err(_) => {}
            }
        }
        return Ok(());
    }
    if matches.value_source(id) == Some(ValueSource::DefaultValue) {
        return Ok(());
    }
    let is_path = is_path(argument);
    let is_command = argument.get_value_hint() == ValueHint::CommandWithArguments;
    for (place, value) in values.enumerate() {
        let text = value.to_string_lossy();
        let path = match text.strip_prefix("linux:") {
            Some(saved) => Path::new(saved),
            None if is_path => Path::new(value),
            None if is_command && place == 0 && text.contains('/') => Path::new(value),
            None => continue,
        };
        if is_dash(path) {
            files.extend(stream(io::stdin(), &option, Role::Reads));
        } else if let Ok(identity) = Identity::at(path) {
            files.push(Named {
                option: option.clone(),
                path: path.to_owned(),
                role: Role::Reads,
                identity,
            });
        }
    }
    Ok(())
}

/// Whether an argument names a file or a directory.
fn is_path(argument: &Arg) -> bool {
    matches!(
        argument.get_value_hint(),
        ValueHint::AnyPath | ValueHint::FilePath | ValueHint::DirPath | ValueHint::ExecutablePath
    )
}

/// A stream of this process, if it is a regular file.
fn stream(stream: impl AsFd, option: &str, role: Role) -> Option<Named> {
    let file = fs::File::from(stream.as_fd().try_clone_to_owned().ok()?);
    let metadata = file.metadata().ok().filter(fs::Metadata::is_file)?;
    Some(Named {
        option: option.to_owned(),
        path: PathBuf::from("-"),
        role,
        identity: Identity::of(&metadata),
    })
}
