//! Progress on standard error, and Ctrl-C.
//!
//! On a terminal progress is a bar; elsewhere (a log, a pipe) it is a plain line
//! every few seconds; with `--quiet` it is nothing. Ctrl-C sets a flag that long
//! loops poll, so that a command can print what it has finished; a second Ctrl-C
//! ends the process at once, without its unfinished files.

use std::ffi::c_int;
use std::io::{self, IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use signal_hook::consts::{SIGHUP, SIGINT, SIGPIPE, SIGQUIT, SIGTERM};
use signal_hook::low_level;

use vellum_output::unfinished;

/// How long a log stays silent at most while work goes on.
const PLAIN_INTERVAL: Duration = Duration::from_secs(5);

/// How often the display is told about steps in the course of a work, about.
const TELLINGS: u64 = 1000;

/// Where progress goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Style {
    /// A bar that redraws itself.
    Bar,
    /// A line every few seconds.
    Plain,
    /// Nothing.
    Quiet,
}

impl Style {
    /// A bar if standard error is a terminal, plain lines otherwise; nothing if
    /// the user asked for quiet.
    pub fn detect(quiet: bool) -> Self {
        match (quiet, io::stderr().is_terminal()) {
            (true, _) => Style::Quiet,
            (false, true) => Style::Bar,
            (false, false) => Style::Plain,
        }
    }
}

/// Progress of one piece of work that has a known length.
#[derive(Debug)]
pub struct Progress {
    style: Style,
    label: String,
    unit: &'static str,
    total: u64,
    done: u64,
    /// What `done` was when the display was last told, which asks the time.
    told: u64,
    bar: ProgressBar,
    begun: Instant,
    spoken: Instant,
    /// An estimate that is better than one by what is done, where steps differ.
    left: Option<Duration>,
}

impl Progress {
    /// Starts showing `label`, which will take `total` steps named `unit`
    /// ("events", "slices").
    pub fn new(style: Style, label: impl Into<String>, total: u64, unit: &'static str) -> Self {
        let label = label.into();
        let bar = match style {
            Style::Bar => ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::stderr()),
            Style::Plain | Style::Quiet => ProgressBar::hidden(),
        };
        let template =
            "{msg:24} {bar:30} {percent:>3}% {human_pos}/{human_len} {prefix}, {eta} left";
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        bar.set_prefix(unit);
        bar.set_message(label.clone());
        let now = Instant::now();
        Self {
            style,
            label,
            unit,
            total,
            done: 0,
            told: 0,
            bar,
            begun: now,
            spoken: now,
            left: None,
        }
    }

    /// Says how long the rest will take, where steps are too different for an estimate by
    /// how many are done.
    pub fn expect(&mut self, left: Duration) {
        let template = "{msg:24} {bar:30} {percent:>3}% {human_pos}/{human_len} {prefix}";
        if let (None, Ok(style)) = (self.left, ProgressStyle::with_template(template)) {
            self.bar.set_style(style);
        }
        self.left = Some(left);
        self.bar
            .set_prefix(format!("{}, {} left", self.unit, about(left)));
    }

    /// `steps` more are done.
    pub fn advance(&mut self, steps: u64) {
        self.done += steps;
        if self.done - self.told < self.total / TELLINGS {
            return;
        }
        self.told = self.done;
        self.bar.set_position(self.done);
        if self.style == Style::Plain && self.spoken.elapsed() >= PLAIN_INTERVAL {
            self.spoken = Instant::now();
            say(&self.line());
        }
    }

    /// Renames the work, keeping its position ("pass 3 of 12").
    pub fn relabel(&mut self, label: impl Into<String>) {
        self.label = label.into();
        self.bar.set_message(self.label.clone());
    }

    /// Prints a line for the user above the bar; nothing with `--quiet`.
    pub fn note(&self, text: &str) {
        match self.style {
            Style::Bar => self.bar.println(text),
            Style::Plain => say(text),
            Style::Quiet => {}
        }
    }

    /// Ends the display. A bar vanishes; a log gets a closing line if it has
    /// heard of this work before.
    pub fn finish(self) {
        if self.style == Style::Plain && self.spoken > self.begun {
            say(&self.line());
        }
    }

    fn line(&self) -> String {
        format!(
            "{}: {} of {} {} ({} %) after {:.0} s{}",
            self.label,
            self.done,
            self.total,
            self.unit,
            (self.done * 100).checked_div(self.total).unwrap_or(100),
            self.begun.elapsed().as_secs_f64(),
            self.left
                .map_or_else(String::new, |left| format!(", {} left", about(left))),
        )
    }
}

/// A time as one says it of an estimate.
fn about(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0..=90 => format!("about {seconds} s"),
        91..=5400 => format!("about {} min", (seconds + 30) / 60),
        5401..=172_800 => format!("about {} h", (seconds + 1800) / 3600),
        _ => format!("about {} days", (seconds + 43_200) / 86_400),
    }
}

impl Drop for Progress {
    /// No bar stays behind, whatever ended the work.
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// Prints a line to standard error. Work is not lost because nobody reads it any more.
pub fn say(line: &str) {
    let _ = writeln!(io::stderr().lock(), "{line}");
}

/// Says whether the user asked the command to stop. It holds the signal that asked last;
/// 0 if none did.
#[derive(Clone, Debug, Default)]
pub struct Interrupt(Arc<AtomicI32>);

impl Interrupt {
    /// Catches SIGINT (Ctrl-C) and SIGTERM from here on. A second one while the
    /// first is still being obeyed ends the process with exit code 130.
    ///
    /// # Errors
    /// The operating system refused the handler.
    pub fn on_ctrl_c() -> io::Result<Self> {
        let this = Self::default();
        for signal in [SIGINT, SIGTERM] {
            this.obey(signal)?;
        }
        Ok(this)
    }

    /// Catches also the other signals with which terminals, shells and systems end programs,
    /// for a command that must not lose what it has: SIGHUP and SIGQUIT, unless the program
    /// was started to ignore them, and SIGPIPE. However often these come, they ask.
    ///
    /// # Errors
    /// The operating system refused a handler.
    pub fn on_any_end() -> io::Result<Self> {
        let this = Self::on_ctrl_c()?;
        for signal in [SIGHUP, SIGQUIT, SIGPIPE] {
            // Rust ignores SIGPIPE itself.
            if signal == SIGPIPE || !unfinished::is_ignored(signal)? {
                this.obey(signal)?;
            }
        }
        Ok(this)
    }

    fn obey(&self, signal: c_int) -> io::Result<()> {
        let asked = Arc::clone(&self.0);
        let ends_at_once = matches!(signal, SIGINT | SIGTERM);
        let obey = move || {
            if asked.swap(signal, Ordering::Relaxed) != 0 && ends_at_once {
                unfinished::remove_all();
                low_level::exit(130);
            }
        };
        // SAFETY: what the handler does (an atomic exchange, `remove_all`, `_exit`) is
        // safe in one.
        unsafe { low_level::register(signal, obey) }?;
        unfinished::obeyed(signal);
        Ok(())
    }

    /// One that only [`Interrupt::request`] sets.
    pub fn manual() -> Self {
        Self::default()
    }

    /// Asks the work to stop.
    pub fn request(&self) {
        self.0.store(SIGINT, Ordering::Relaxed);
    }

    /// Whether the work should stop at the next point where it can.
    pub fn requested(&self) -> bool {
        self.signal().is_some()
    }

    /// The signal that asked last.
    pub fn signal(&self) -> Option<c_int> {
        Some(self.0.load(Ordering::Relaxed)).filter(|signal| *signal != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_reaches_every_clone() {
        let interrupt = Interrupt::manual();
        let seen_by_loop = interrupt.clone();
        assert!(!seen_by_loop.requested());
        interrupt.request();
        assert!(seen_by_loop.requested());
    }

    #[test]
    fn ctrl_c_is_a_request_and_does_not_end_the_process() {
        let interrupt = Interrupt::on_ctrl_c().expect("handlers can be installed");
        assert!(!interrupt.requested());
        signal_hook::low_level::raise(SIGINT).expect("the signal can be raised");
        assert!(interrupt.requested());
    }

    #[test]
    fn a_plain_line_says_how_far_the_work_is() {
        let mut progress = Progress::new(Style::Quiet, "pass 1 of 4", 8, "slices");
        progress.advance(2);
        assert!(
            progress
                .line()
                .starts_with("pass 1 of 4: 2 of 8 slices (25 %) after "),
            "{}",
            progress.line()
        );
    }

    #[test]
    fn an_estimate_stands_at_the_end_of_the_line() {
        let mut progress = Progress::new(Style::Quiet, "sweep", 8, "cells");
        for (seconds, said) in [
            (44, "44 s"),
            (600, "10 min"),
            (9000, "3 h"),
            (864_000, "10 days"),
        ] {
            progress.expect(Duration::from_secs(seconds));
            let end = format!(", about {said} left");
            assert!(progress.line().ends_with(&end), "{}", progress.line());
        }
    }

    #[test]
    fn work_of_length_zero_is_complete() {
        let progress = Progress::new(Style::Quiet, "nothing", 0, "slices");
        assert!(progress.line().contains("(100 %)"));
    }
}
