//! Grids of measurements: what `vellum sweep` does.
//!
//! A [`Spec`] is a file that names traces, designs, machines, numbers of CPUs, sizes and
//! seeds. [`grid::cells`] makes a [`Cell`] of each combination: a command of `vellum`, and
//! what determines its result. The hash of that is the cell's key, and a finished cell is
//! one file of that name in the [`Store`]. So whatever ended an earlier run, the next one
//! does only what is missing, and nothing counts twice.
//!
//! [`local`] runs cells on this machine, and [`slurm`] on a cluster; both run each cell as
//! a child process ([`execute`]). [`findings`] makes the table of what is there.
//!
//! Nothing here knows what the commands measure. A cell is done when its command has
//! printed a result that `vellum-page` can read.

pub mod cell;
pub mod error;
pub mod estimate;
pub mod execute;
pub mod files;
pub mod findings;
pub mod grid;
pub mod kind;
pub mod local;
pub mod measured;
pub mod record;
pub mod slurm;

pub mod spec;
pub mod store;
pub mod text;

pub use cell::{Cell, HostId};
pub use error::SweepError;
pub use kind::Kind;
pub use record::Finished;
pub use spec::{Known, Spec, SpecError};
pub use store::Store;
