//! How a command fails: an exit code and a message.
//!
//! Every command returns [`Failure`], and any [`std::error::Error`] becomes one
//! with `?`. The message is the error and its causes, joined by `: `.

use std::error::Error;
use std::io;

use vellum_engine::EngineError;

/// A command's end other than success.
///
/// It deliberately does not implement [`std::error::Error`]: that is what lets
/// `?` convert every error into it.
#[derive(Debug)]
pub struct Failure {
    code: u8,
    message: String,
}

impl Failure {
    /// Exit code of a command that could not do its work.
    pub const FAILED: u8 = 1;
    /// Exit code for arguments or input that cannot be used. `clap` uses the same.
    pub const USAGE: u8 = 2;
    /// Exit code of a check that was carried out and did not hold: a replay that
    /// diverged, failed its verification or its audit.
    pub const REFUTED: u8 = 3;
    /// Exit code of a comparison with a saved result that found a slow-down.
    pub const SLOWER: u8 = 4;
    /// Exit code after Ctrl-C (128 + SIGINT), as shells report it.
    pub const INTERRUPTED: u8 = 130;

    /// The work could not be done (exit code 1).
    pub fn failed(message: impl Into<String>) -> Self {
        Self::with_code(Self::FAILED, message)
    }

    /// The arguments or the input cannot be used (exit code 2).
    pub fn usage(message: impl Into<String>) -> Self {
        Self::with_code(Self::USAGE, message)
    }

    /// An engine could not be made: a design that is refused is an argument.
    pub fn of_engine(error: EngineError) -> Self {
        match error {
            EngineError::Design(text) => Self::usage(text),
            EngineError::Machine(text) => Self::failed(text),
        }
    }

    /// A check was carried out and did not hold (exit code 3).
    pub fn refuted(message: impl Into<String>) -> Self {
        Self::with_code(Self::REFUTED, message)
    }

    /// What was measured is slower than what was saved (exit code 4).
    pub fn slower(message: impl Into<String>) -> Self {
        Self::with_code(Self::SLOWER, message)
    }

    /// The user pressed Ctrl-C (exit code 130).
    pub fn interrupted(message: impl Into<String>) -> Self {
        Self::with_code(Self::INTERRUPTED, message)
    }

    /// Ends the command with `code` and without a message.
    pub fn silent(code: u8) -> Self {
        Self::with_code(code, "")
    }

    fn with_code(code: u8, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
        }
    }

    /// The exit code.
    pub fn code(&self) -> u8 {
        self.code
    }

    /// What to tell the user; empty if there is nothing to say.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Says what was being done: `what: message`.
    #[must_use]
    pub fn context(mut self, what: impl AsRef<str>) -> Self {
        if !self.message.is_empty() {
            self.message = format!("{}: {}", what.as_ref(), self.message);
        }
        self
    }
}

impl<E: Error + 'static> From<E> for Failure {
    fn from(error: E) -> Self {
        // `vellum dump … | head` closes the pipe early: that is no failure.
        if is_broken_pipe(&error) {
            return Self::silent(0);
        }
        let mut message = error.to_string();
        let mut cause = error.source();
        while let Some(inner) = cause {
            let text = inner.to_string();
            if !message.ends_with(&text) {
                message.push_str(": ");
                message.push_str(&text);
            }
            cause = inner.source();
        }
        Self::failed(message)
    }
}

fn is_broken_pipe(error: &(dyn Error + 'static)) -> bool {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(io) = error.downcast_ref::<io::Error>()
            && io.kind() == io::ErrorKind::BrokenPipe
        {
            return true;
        }
        next = error.source();
    }
    false
}

/// Adds what was being done, or another exit code, to an error on its way to
/// [`Failure`].
pub trait OrFail<T> {
    /// Prefixes the message with `what: `.
    fn doing<S: AsRef<str>>(self, what: impl FnOnce() -> S) -> Result<T, Failure>;

    /// The error is the input's or the arguments' fault: exit code 2.
    fn blame_input(self) -> Result<T, Failure>;
}

impl<T, E: Into<Failure>> OrFail<T> for Result<T, E> {
    fn doing<S: AsRef<str>>(self, what: impl FnOnce() -> S) -> Result<T, Failure> {
        self.map_err(|error| error.into().context(what()))
    }

    fn blame_input(self) -> Result<T, Failure> {
        self.map_err(|error| {
            let failure = error.into();
            match failure.message.is_empty() {
                true => failure,
                false => Failure::usage(failure.message),
            }
        })
    }
}

/// Refuses the options that are given, saying `why`.
///
/// # Errors
/// One is.
pub fn refuse(options: &[(bool, &str)], why: &str) -> Result<(), Failure> {
    let given = options.iter().filter(|(given, _)| *given);
    let names: Vec<&str> = given.map(|(_, name)| *name).collect();
    match names.is_empty() {
        true => Ok(()),
        false => Err(Failure::usage(format!("{} {why}", names.join(", ")))),
    }
}
