//! The rows of one run: measured as they are asked for, kept for the report.

use vellum_terminal::progress::{Interrupt, Progress, Style};

use crate::Failure;
use crate::measure::{self, Arm, Figure, Plan};

/// One operation under every arm.
#[derive(serde::Serialize)]
pub struct Row {
    pub group: &'static str,
    pub name: &'static str,
    /// Ours first, then ours again, then the others.
    pub figures: Vec<Figure>,
}

/// Measures rows until the user stops it.
pub struct Rows<'a> {
    plan: Plan,
    interrupt: &'a Interrupt,
    progress: Progress,
    group: &'static str,
    done: Vec<Row>,
}

impl<'a> Rows<'a> {
    pub fn new(plan: Plan, style: Style, count: usize, interrupt: &'a Interrupt) -> Self {
        Rows {
            plan,
            interrupt,
            progress: Progress::new(style, "peers", count as u64, "rows"),
            group: "",
            done: Vec::new(),
        }
    }

    /// What follows belongs to this group.
    pub fn group(&mut self, group: &'static str) -> &mut Self {
        self.group = group;
        self
    }

    /// Whether the user wants no more.
    pub fn interrupted(&self) -> bool {
        self.interrupt.requested()
    }

    /// Measures the arms that `build` adds.
    pub fn row(
        &mut self,
        name: &'static str,
        build: impl FnOnce(&mut Vec<Arm>) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        if self.interrupted() {
            return Ok(());
        }
        self.progress.relabel(name);
        let mut arms = Vec::new();
        build(&mut arms)?;
        if let Some(figures) = measure::measure(&mut arms, self.plan, self.interrupt)? {
            self.done.push(Row {
                group: self.group,
                name,
                figures,
            });
        }
        self.progress.advance(1);
        Ok(())
    }

    /// What was measured.
    pub fn finish(self) -> Vec<Row> {
        self.progress.finish();
        self.done
    }
}
