//! A space with a file mapped twice.

use vellum::ObjectId;
use vellum::platform::CpuId;
use vellum::rmap::ReverseMap;
use vellum::space::{FaultError, SpaceId};

use super::{World, at, pristine};

const ZERO: CpuId = CpuId(0);
/// Where the file is shared.
pub const SHARED: u64 = 0x1000;
/// Where it is private.
pub const PRIVATE: u64 = 0x1010;
/// Its length.
pub const PAGES: u64 = 6;

pub struct Files<R: ReverseMap> {
    pub world: World<R>,
    pub space: SpaceId,
    pub file: ObjectId,
}

/// A space with a file of [`PAGES`] pages, shared at [`SHARED`] and private at
/// [`PRIVATE`].
pub fn files<R: ReverseMap>(cpus: usize, design: &str) -> Files<R> {
    let world = World::<R>::new(cpus, 300, design);
    let (space, file) = world.alone(|| {
        let space = world.space();
        let file = world.stored(3, PAGES);
        world.object(space, file, 0, SHARED, PAGES, true);
        world.object(space, file, 0, PRIVATE, PAGES, false);
        (space, file)
    });
    Files { world, space, file }
}

impl<R: ReverseMap> Files<R> {
    /// Loads and stores in both mappings; what lies past the end may fail.
    pub fn use_pages(&self, cpu: CpuId, pages: std::ops::Range<u64>) {
        let word = 1 + u64::from(cpu.0);
        for page in pages {
            for base in [SHARED, PRIVATE] {
                for done in [
                    self.world
                        .load(cpu, self.space, at(base + page, 0))
                        .map(|seen| assert_eq!(seen, pristine(3, page))),
                    self.world
                        .store(cpu, self.space, at(base + page, word), page),
                ] {
                    assert!(
                        matches!(
                            done,
                            Ok(()) | Err(FaultError::PastEnd | FaultError::NoRegion)
                        ),
                        "{done:?}"
                    );
                }
            }
        }
    }

    /// After a truncation to `end` and everything else: pages past it are gone
    /// from the mappings of `space` at both places.
    pub fn check_end(&self, space: SpaceId, end: u64, bases: &[u64]) {
        let world = &self.world;
        world.alone(|| {
            for page in 0..PAGES {
                for &base in bases {
                    let seen = world.load(ZERO, space, at(base + page, 0));
                    if page >= end {
                        assert_eq!(seen, Err(FaultError::PastEnd), "page {page} at {base:#x}");
                    } else {
                        assert_eq!(seen, Ok(pristine(3, page)), "page {page} at {base:#x}");
                    }
                }
            }
        });
    }

    pub fn finish(&self, more: &[SpaceId]) {
        self.world.audit();
        self.world
            .finish(&[&[self.space], more].concat(), &[self.file]);
    }

    /// A word of the file as it is in the backing store.
    pub fn stored(&self, page: u64, word: u64) -> u64 {
        self.world
            .machine()
            .store()
            .stored_word(3, page << 12 | word << 3)
            .unwrap()
    }
}
