//! Accesses one by one, as lackey and drmemtrace tell them: nothing of them is kept.

use crate::accesses::{Access, Process};
use crate::report::Report;
use crate::{Format, ImportError, Input, Watch, detect, drmemtrace, each_as, judge, lackey};
use vellum_terminal::progress::{Interrupt, Progress};

pub use vellum_trace::Access as AccessKind;

/// An access of a program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Streamed {
    /// Of which process: the number of the input from 0, or in records of drmemtrace its id.
    pub process: u64,
    /// Of which thread of it, by a number of its own; 0 in lackey's text, which has no threads.
    pub thread: u32,
    /// Load, store or fetch.
    pub kind: AccessKind,
    /// The first byte.
    pub address: u64,
    /// Bytes, one at least and 65536 at the most.
    pub size: u64,
}

impl Streamed {
    pub(crate) fn new(process: u64, thread: u32, access: Access) -> Streamed {
        Streamed {
            process,
            thread,
            kind: access.kind,
            address: access.address,
            size: access.size,
        }
    }
}

/// What is told of each access.
pub type Each<'e> = dyn FnMut(Streamed) + 'e;

/// Hands every access of the inputs to `each`, in their order.
///
/// # Errors
/// The inputs cannot be read, are of no tool that tells accesses, or are damaged; what was handed
/// on before says nothing then. The user interrupted.
pub fn stream(
    mut inputs: Vec<Input>,
    asked: Option<Format>,
    progress: &mut Progress,
    interrupt: &Interrupt,
    each: &mut Each<'_>,
) -> Result<(Format, Report), ImportError> {
    let mut watch = Watch {
        progress,
        interrupt,
        lines: 0,
    };
    let format = detect::settle(&mut inputs, asked)?;
    let names: Vec<String> = inputs.iter().map(|input| input.name.clone()).collect();
    let mut accesses = 0;
    let mut counted = |access: Streamed| {
        accesses += 1;
        each(access);
    };
    let report = match format {
        Format::Lackey => of_lackey(inputs, &mut watch, &mut counted),
        Format::Drmemtrace => drmemtrace::stream(inputs, &mut watch, &mut counted),
        other => Err(ImportError::Format(format!(
            "{}: {} does not tell every access; a stream of accesses is text of `valgrind \
             --tool=lackey --trace-mem=yes`, or drmemtrace's records or text",
            names.join(", "),
            other.name()
        ))),
    }?;
    judge(&names, format, accesses, &report)?;
    Ok((format, report))
}

fn of_lackey(
    inputs: Vec<Input>,
    watch: &mut Watch<'_>,
    each: &mut Each<'_>,
) -> Result<Report, ImportError> {
    let mut report = Report::default();
    each_as(
        inputs,
        watch,
        &mut report,
        |process: &mut Process, place, text, report| match lackey::parse(text) {
            Some(access) => each(Streamed::new(place.input as u64, 0, access)),
            None => lackey::take(process, place, text, report),
        },
    )?;
    Ok(report)
}
