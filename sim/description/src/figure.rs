//! Figures with their sources, as a description has them.

use serde::Deserialize;

use super::write::quoted;

/// What a figure rests on: the first word of its source.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Basis {
    /// Somebody measured it on the machine, or on one of its class.
    Measured,
    /// A manual or a publication says so.
    Stated,
    /// It follows by arithmetic from figures that are measured or stated.
    Derived,
    /// Nothing better is known.
    Assumed,
}

impl Basis {
    /// All, the best first.
    pub const ALL: [Basis; 4] = [
        Basis::Measured,
        Basis::Stated,
        Basis::Derived,
        Basis::Assumed,
    ];

    /// The word that a source begins with.
    pub const fn word(self) -> &'static str {
        match self {
            Basis::Measured => "measured",
            Basis::Stated => "stated",
            Basis::Derived => "derived",
            Basis::Assumed => "assumed",
        }
    }

    /// What `source` begins with, if it goes on after the colon.
    pub fn of(source: &str) -> Option<Basis> {
        let (word, rest) = source.split_once(':')?;
        let basis = Basis::ALL.into_iter().find(|basis| basis.word() == word)?;
        (!rest.trim().is_empty()).then_some(basis)
    }
}

/// A figure of a description, whatever its unit.
pub trait Figure {
    /// The figure.
    fn value(&self) -> f64;
    /// Where it comes from.
    fn source(&self) -> &str;
    /// Key of the figure in its table.
    fn unit(&self) -> &'static str;

    /// The value of its key in a description's file.
    fn in_toml(&self) -> String {
        let (unit, value) = (self.unit(), self.value());
        let source = quoted(self.source());
        format!("{{ {unit} = {value}, source = {source} }}")
    }
}

macro_rules! figure {
    ($(#[$about:meta])* $name:ident, $unit:ident) => {
        $(#[$about])*
        #[derive(Clone, PartialEq, Debug, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct $name {
            /// The figure.
            pub $unit: f64,
            /// What it rests on and where it was published.
            pub source: String,
        }

        impl $name {
            /// A figure with what it rests on.
            pub fn new($unit: f64, source: impl Into<String>) -> Self {
                let source = source.into();
                $name { $unit, source }
            }
        }

        impl Figure for $name {
            fn value(&self) -> f64 {
                self.$unit
            }
            fn source(&self) -> &str {
                &self.source
            }
            fn unit(&self) -> &'static str {
                stringify!($unit)
            }
        }
    };
}

figure! {
    /// A time in nanoseconds.
    Time, ns
}
figure! {
    /// A rate in 10^9 bytes a second, which is bytes a nanosecond.
    Rate, gb_per_s
}
figure! {
    /// A number of things.
    Count, count
}
figure! {
    /// A share of something else.
    Share, share
}

impl Time {
    /// The time in picoseconds, the unit of virtual clocks.
    pub fn ps(&self) -> u64 {
        (self.ns * 1000.0).round() as u64
    }
}

impl Rate {
    /// Picoseconds that `bytes` take.
    pub fn ps(&self, bytes: u64) -> u64 {
        (bytes as f64 * 1000.0 / self.gb_per_s).round() as u64
    }
}
