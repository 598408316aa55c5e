//! What engines have in common that only execute operations, for tests of what is
//! measured: there is no page in them, and nothing to count.
#![allow(
    unused_macros,
    unused_imports,
    reason = "each test uses its own part of this"
)]

/// The calls of an engine that are about pages and files.
macro_rules! has_no_pages {
    () => {
        fn store(
            &self,
            _: usize,
            _: vellum_engine::SpaceSlot,
            _: u64,
            _: u64,
        ) -> Result<(), vellum_engine::OpError> {
            Err(vellum_engine::OpError::BadSpace)
        }

        fn load(
            &self,
            _: usize,
            _: vellum_engine::SpaceSlot,
            _: u64,
            _: vellum_engine::Access,
        ) -> Result<u64, vellum_engine::OpError> {
            Err(vellum_engine::OpError::BadSpace)
        }

        fn peek(&self, _: usize, _: vellum_engine::SpaceSlot, _: u64) -> Option<u64> {
            None
        }

        fn leaves(&self, _: vellum_engine::SpaceSlot, _: &mut dyn FnMut(vellum_engine::Leaf)) {}

        fn sync(&self, _: usize) -> Result<(), vellum_engine::OpError> {
            Ok(())
        }

        fn stored_word(&self, _: vellum_engine::FileSlot, _: u64) -> Option<u64> {
            None
        }

        fn clear(&self, _: usize) {}

        fn audit(&self) -> Result<(), String> {
            Ok(())
        }

        fn mapping_histogram(&self) -> Vec<u64> {
            Vec::new()
        }
    };
}

/// The calls of an engine that are about what it counted.
macro_rules! counts_nothing {
    () => {
        fn counters(&self) -> Vec<(&'static str, u64)> {
            Vec::new()
        }

        fn memory(&self) -> Vec<(&'static str, u64, u64)> {
            Vec::new()
        }
    };
}

pub(crate) use {counts_nothing, has_no_pages};
