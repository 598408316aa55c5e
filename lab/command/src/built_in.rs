//! Which parts of the command are built in, and what brings the others.
//!
//! A part is a feature of this package. What needs one says so here, so that a user who asks for a
//! part that is left out learns how to get it; nothing else tells features apart, but for
//! the declarations of the modules that are left out.

use vellum_engine::{ALL, EngineError, is_built_in};

use crate::failure::Failure;

/// A part that can be left out.
#[derive(Debug)]
pub struct Part {
    /// The feature that builds it in; `full` is all of them.
    pub feature: &'static str,
    /// What it brings, as `vellum --help` says it.
    pub brings: &'static str,
    /// Whether this program has it.
    pub built_in: bool,
}

/// Engines that count atomic operations.
pub const ATOMICS: Part = Part {
    feature: "atomics",
    brings: "compare: counts of atomic operations",
    built_in: cfg!(feature = "atomics"),
};

/// Named workloads, on the core and on the host's kernel.
pub const BENCH: Part = Part {
    feature: "bench",
    brings: "bench",
    built_in: cfg!(feature = "bench"),
};

/// Engines of the other reverse mappings, and of other formats than x86-64.
pub const DESIGNS: Part = Part {
    feature: "designs",
    brings: "four more values of rmap=, format= other than x86-64, plan userpte TRACE",
    built_in: ALL,
};

/// The database of results.
pub const HISTORY: Part = Part {
    feature: "history",
    brings: "history, and --keep",
    built_in: cfg!(feature = "history"),
};

/// Traces as Parquet.
pub const PARQUET: Part = Part {
    feature: "parquet",
    brings: "export --format parquet",
    built_in: cfg!(feature = "parquet"),
};

/// The core on simulated machines, and what is measured there.
pub const SIMULATION: Part = Part {
    feature: "simulation",
    brings: "--on sim, scale, calibrate, reproduce",
    built_in: cfg!(feature = "simulation"),
};

/// Grids of measurements.
pub const SWEEP: Part = Part {
    feature: "sweep",
    brings: "sweep",
    built_in: cfg!(feature = "sweep"),
};

/// All parts.
pub const PARTS: [Part; 7] = [ATOMICS, BENCH, DESIGNS, HISTORY, PARQUET, SIMULATION, SWEEP];

/// The command that builds everything in, in the source tree.
pub const FULL: &str = "cargo install --path lab/command --features full";

impl Part {
    /// Refuses `what`, which needs this part.
    ///
    /// # Errors
    /// It is not built in: the message names the command that brings it.
    pub fn require(&self, what: &str) -> Result<(), Failure> {
        match self.built_in {
            true => Ok(()),
            false => Err(Failure::usage(self.missing(what))),
        }
    }

    /// That `what` is not there, and what brings it.
    pub fn missing(&self, what: &str) -> String {
        format!(
            "{what} is not built in: install with `{FULL}` (`--features {}` is enough for it)",
            self.feature
        )
    }
}

/// Refuses a design that has no engines here.
///
/// # Errors
/// It has none, or it is no design.
pub fn has_engines(design: &str) -> Result<(), EngineError> {
    match is_built_in(design)? {
        true => Ok(()),
        false => Err(EngineError::Design(DESIGNS.missing(&format!("`{design}`")))),
    }
}

/// What `vellum --help` says of the parts; nothing if all are there.
pub fn help() -> String {
    let absent = PARTS.iter().filter(|part| !part.built_in);
    let lines: String = absent
        .map(|part| format!("  {:<12} {}\n", part.feature, part.brings))
        .collect();
    match lines.is_empty() {
        true => lines,
        false => format!("Not built in ({FULL}):\n{lines}\n"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The features that the manifest declares, each with what it turns on.
    fn declared() -> Vec<(String, String)> {
        let manifest = include_str!("../Cargo.toml");
        let table = manifest.split("[features]\n").nth(1).expect("features");
        let table = table.split("\n[").next().expect("their end");
        let lines = table.lines().filter_map(|line| line.split_once(" = "));
        lines
            .map(|(name, on)| (name.to_owned(), on.to_owned()))
            .collect()
    }

    #[test]
    fn every_feature_is_a_part_and_full_is_all_of_them() {
        let declared = declared();
        let mut features: Vec<&str> = declared.iter().map(|(name, _)| name.as_str()).collect();
        features.retain(|name| !["default", "full"].contains(name));
        assert_eq!(features, PARTS.map(|part| part.feature));
        let of = |name: &str| declared.iter().find(|one| one.0 == name).expect(name);
        assert_eq!(of("full").1, format!("{:?}", features));
        assert_eq!(
            of("default").1,
            "[]",
            "the README's first command needs no more"
        );
    }

    #[test]
    fn what_is_left_out_names_the_command_that_brings_it() {
        for part in PARTS {
            let absent = Part {
                built_in: false,
                ..part
            };
            let failure = absent.require("this").expect_err("it is not there");
            assert_eq!(failure.code(), Failure::USAGE);
            let feature = format!("--features {}`", part.feature);
            for told in ["this is not built in", FULL, feature.as_str()] {
                assert!(failure.message().contains(told), "{}", failure.message());
            }
            let there = Part {
                built_in: true,
                ..part
            };
            there.require("this").expect("it is there");
        }
    }

    #[test]
    fn help_lists_what_is_left_out_and_nothing_else() {
        let help = help();
        for part in PARTS {
            let told = help.contains(&format!("  {:<12} {}\n", part.feature, part.brings));
            assert_eq!(told, !part.built_in, "{help}");
        }
    }
}
