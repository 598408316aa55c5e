//! Where a trace knows too little to be replayed, and what is done about it.

/// How often each kind of repair was needed. [`Repairs::list`] describes them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Repairs {
    /// Faults where the trace has no mapping.
    pub unmapped_touch: u64,
    /// Accesses past the known end of a file.
    pub lengthened: u64,
    /// Mappings that only repeat a stack's growth.
    pub stack_regrown: u64,
    /// Calls on ranges that the trace does not know to be mapped.
    pub unknown_range: u64,
    /// Tasks whose creation the trace does not have.
    pub unknown_task: u64,
    /// Events that say nothing about user memory.
    pub meaningless: u64,
}

impl Repairs {
    /// Name, count and explanation of every kind.
    pub fn list(&self) -> [(&'static str, u64, &'static str); 6] {
        [
            (
                "unmapped-touch",
                self.unmapped_touch,
                "a fault where the trace has no mapping: one anonymous page was mapped",
            ),
            (
                "lengthened",
                self.lengthened,
                "an access past the known end of a file: the file was lengthened",
            ),
            (
                "stack-regrown",
                self.stack_regrown,
                "a mapping that repeats a stack's growth: left out",
            ),
            (
                "unknown-range",
                self.unknown_range,
                "a call on a range with no known mapping: left out or cut down",
            ),
            (
                "unknown-task",
                self.unknown_task,
                "a task of unknown origin: started with an empty space",
            ),
            (
                "meaningless",
                self.meaningless,
                "an event that says nothing about user memory: left out",
            ),
        ]
    }

    /// All repairs together.
    pub fn total(&self) -> u64 {
        self.list().iter().map(|(_, count, _)| count).sum()
    }
}
