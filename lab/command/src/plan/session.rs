//! Replays of one workload: one on a machine that may be too small for it ([`once`]), and
//! those with several values of `userpte=` and sizes of low memory ([`Session`]).

use vellum_engine::{Engine, EngineError};

use super::FORMAT;
use crate::compare::{Arenas, Builder};
use crate::failure::Failure;
use crate::replay::ram::Starved;
use crate::replay::run::{CLOSE_OPS, slice_ops};
use crate::replay::{Replayed, Workload, run_slice};
use vellum_terminal::progress::{Interrupt, Progress, Style};

/// Share of the operations that may diverge without explanation, as in a replay.
const UNEXPLAINED_LIMIT: f64 = 0.01;

/// A workload and the machine that it is replayed on.
pub struct Session<'w> {
    /// The workload, with pages of [`FORMAT`].
    workload: &'w Workload,
    /// Options beside `format=` and `userpte=`.
    options: String,
    /// Memory of the machine in bytes.
    ram_bytes: u64,
    arenas: Arenas,
    style: Style,
    interrupt: &'w Interrupt,
}

/// One replay.
pub struct Replay {
    /// How it went.
    pub replayed: Replayed,
    /// Where there was no memory, if there was none.
    pub starved: Option<Starved>,
    /// The engine as it was left; none if not even an empty one fits.
    engine: Option<Box<dyn Engine>>,
    /// Why there is none.
    refused: Option<String>,
}

impl Replay {
    /// The counter called `name`.
    pub fn counter(&self, name: &str) -> u64 {
        let counters = self.engine.iter().flat_map(|engine| engine.counters());
        let mut found = counters.filter(|counter| counter.0 == name);
        found.next().map_or(0, |counter| counter.1)
    }

    /// Memory at its peak, by what it holds.
    pub fn peaks(&self) -> Vec<(&'static str, u64)> {
        let memory = self.engine.iter().flat_map(|engine| engine.memory());
        memory.map(|(name, _, peak)| (name, peak)).collect()
    }

    /// The design, complete.
    pub fn design(&self) -> String {
        self.engine
            .as_ref()
            .map_or_else(String::new, |engine| engine.design())
    }

    /// Where it had no memory, in words, if it failed.
    pub fn failed(&self, workload: &Workload) -> Option<String> {
        match (&self.engine, self.starved) {
            (None, _) => Some("the beginning".to_owned()),
            (_, Some(starved)) => Some(starved.place(workload, std::iter::empty())),
            _ => None,
        }
    }

    /// Refuses what was another workload than the recorded one.
    ///
    /// # Errors
    /// Too much went otherwise than recorded without an explanation.
    pub fn trusted(&self) -> Result<(), Failure> {
        let Replayed {
            ops, divergences, ..
        } = &self.replayed;
        let unexplained = divergences.unexplained() as f64;
        match unexplained > UNEXPLAINED_LIMIT * *ops as f64 {
            false => Ok(()),
            true => Err(Failure::refuted(format!(
                "{unexplained} of {ops} operations went otherwise than recorded and nothing in \
                 the trace explains it; `vellum replay` shows them"
            ))),
        }
    }

    /// Whether it had all the memory that it needed.
    pub fn is_whole(&self) -> bool {
        self.engine.is_some() && self.starved.is_none()
    }
}

/// The design with a value of `userpte=` and more options.
pub fn design(userpte: &str, options: &str) -> String {
    let more = if options.is_empty() { "" } else { "," };
    format!("format={FORMAT},userpte={userpte}{more}{options}")
}

impl<'w> Session<'w> {
    /// Replays of `workload` on a machine of `ram_bytes`, with `options` in the design.
    pub fn new(
        workload: &'w Workload,
        options: &str,
        ram_bytes: u64,
        style: Style,
        interrupt: &'w Interrupt,
    ) -> Self {
        Self {
            workload,
            options: options.to_owned(),
            ram_bytes,
            arenas: Arenas::new(1, workload.cpus(), ram_bytes),
            style,
            interrupt,
        }
    }

    /// The workload.
    pub fn workload(&self) -> &Workload {
        self.workload
    }

    /// Memory of the machine in bytes.
    pub fn ram_bytes(&self) -> u64 {
        self.ram_bytes
    }

    /// Replays once with `low_bytes` of low memory. A machine that runs out of memory
    /// is a result.
    ///
    /// # Errors
    /// The design is refused, or the user interrupted.
    pub fn replay(&mut self, userpte: &str, low_bytes: u64) -> Result<Replay, Failure> {
        let arenas = std::mem::replace(&mut self.arenas, Arenas::new(0, 1, 0));
        self.arenas = arenas.with_low(Some(low_bytes));
        let label = format!("{userpte}, {} KiB of low memory", low_bytes >> 10);
        let replay = once(
            self.workload,
            &self.arenas,
            &design(userpte, &self.options),
            label,
            (self.style, self.interrupt),
        )?;
        match &replay.refused {
            Some(text) if low_bytes >= self.ram_bytes => Err(Failure::failed(text.clone())),
            _ => Ok(replay),
        }
    }
}

/// Replays `workload` once in the first of `arenas`. A machine that runs out of memory, or is
/// too small for a manager, is a result.
///
/// # Errors
/// The design is refused, or the user interrupted.
pub fn once(
    workload: &Workload,
    arenas: &Arenas,
    design: &str,
    label: String,
    (style, interrupt): (Style, &Interrupt),
) -> Result<Replay, Failure> {
    let mut replay = Replay {
        replayed: Replayed::default(),
        starved: None,
        engine: None,
        refused: None,
    };
    let engine = match arenas.build(design, 0) {
        Ok(engine) => engine,
        Err(EngineError::Design(text)) => return Err(Failure::usage(text)),
        // The manager's own first frames do not fit.
        Err(EngineError::Machine(text)) => {
            replay.refused = Some(text);
            return Ok(replay);
        }
    };
    let mut progress = Progress::new(style, label, workload.ops(), "operations");
    for slice in workload.slices(slice_ops(workload, CLOSE_OPS)) {
        run_slice(workload, engine.as_ref(), &slice, &mut replay.replayed);
        progress.advance(slice.len() as u64);
        if interrupt.requested() {
            return Err(Failure::interrupted("interrupted"));
        }
        replay.starved = replay.replayed.divergences.starved;
        if replay.starved.is_some() {
            break;
        }
    }
    progress.finish();
    replay.engine = Some(engine);
    Ok(replay)
}
