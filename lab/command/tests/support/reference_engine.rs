//! The reference memory manager as an [`Engine`].

use std::collections::HashMap;

use vellum_engine::{
    Access, Divergence, Engine, FileSlot, Leaf, Op, OpError, Outcome, Prot, SpaceSlot,
    pristine_word,
};

use super::reference::{Moment, Reference};
use super::reference_state::{Object, State};

impl Engine for Reference {
    fn design(&self) -> String {
        match self.defect {
            None => "reference".into(),
            Some(defect) => format!("reference,defect={defect:?}"),
        }
    }

    fn cpus(&self) -> usize {
        self.cpus
    }

    fn run(&self, _cpu: usize, ops: &[Op], outcome: &mut Outcome) {
        for (index, op) in ops.iter().enumerate() {
            self.reached(Moment::Before(op));
            let divergence = self.with(|machine| match machine.run(op) {
                Ok(divergence) => divergence,
                Err(error) => Some(Divergence::Failed(error)),
            });
            if let Some(divergence) = divergence {
                outcome.divergences.push((index as u32, divergence));
            }
            self.reached(Moment::After(op));
        }
    }

    fn store(
        &self,
        _cpu: usize,
        space: SpaceSlot,
        address: u64,
        value: u64,
    ) -> Result<(), OpError> {
        self.with(|machine| machine.store(space, address, value))
    }

    fn load(
        &self,
        _cpu: usize,
        space: SpaceSlot,
        address: u64,
        access: Access,
    ) -> Result<u64, OpError> {
        let loaded = self.with(|machine| machine.load(space, address, access));
        self.reached(Moment::Looked);
        loaded
    }

    fn peek(&self, _cpu: usize, space: SpaceSlot, address: u64) -> Option<u64> {
        let word = self.with(|machine| machine.peek(space, address));
        self.reached(Moment::Looked);
        word
    }

    fn leaves(&self, space: SpaceSlot, leaf: &mut dyn FnMut(Leaf)) {
        let pages: Vec<u64> = self.with(|machine| match machine.space(space) {
            Ok(space) => space.entries.keys().copied().collect(),
            Err(_) => Vec::new(),
        });
        // It has no frames.
        pages.into_iter().for_each(|page| {
            leaf(Leaf {
                page,
                pages: 1,
                frame: page,
                prot: Prot::default(),
            });
        });
    }

    fn sync(&self, _cpu: usize) -> Result<(), OpError> {
        self.with(|machine| machine.sync());
        Ok(())
    }

    fn stored_word(&self, file: FileSlot, offset: u64) -> Option<u64> {
        self.with(|machine| {
            let content = machine.state.objects.get(&Object::File(file.0))?;
            let page = offset >> 12;
            if content.length.is_some_and(|length| page >= length) {
                return None;
            }
            match content.stored.get(&page) {
                Some(frame) => Some(frame.word(offset & 4095)),
                None if page < content.holes_from => Some(pristine_word(u64::from(file.0), page)),
                None => Some(0),
            }
        })
    }

    fn clear(&self, _cpu: usize) {
        self.with(|machine| *machine.state = State::default());
    }

    fn audit(&self) -> Result<(), String> {
        self.with(|machine| machine.audit())
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        self.with(|machine| vec![("faults", machine.state.faults)])
    }

    fn memory(&self) -> Vec<(&'static str, u64, u64)> {
        let bytes = self.with(|machine| machine.state.frames.len() as u64 * 4096);
        vec![("frames", bytes, bytes)]
    }

    fn mapping_histogram(&self) -> Vec<u64> {
        self.with(|machine| {
            let mut mappings: HashMap<usize, usize> = HashMap::new();
            for entry in machine
                .state
                .spaces
                .values()
                .flat_map(|s| s.entries.values())
            {
                *mappings.entry(entry.frame).or_default() += 1;
            }
            let longest = mappings.values().max().copied().unwrap_or(0);
            let mut histogram = vec![0; longest];
            for count in mappings.into_values() {
                histogram[count - 1] += 1;
            }
            histogram
        })
    }
}
