//! Statistics and tables as they have been published for decades, byte for byte:
//! the comparison tables of mmtests, the verdicts of ministat, the blocks of both
//! kernbenches and of SDET, the lines of FreeBSD's `time`.
//!
//! What is compared is a list of [`Series`], one for each kernel, design or
//! machine, the first of which is the base. A series has one or more
//! [`Operation`]s with their samples, in the order in which they were taken.
//! [`read`] makes them of columns of numbers in text files. Then
//!
//! * [`mmtests::table`] compares statistics of each operation with the first
//!   series', in per cent, as the reports on linux-mm do;
//! * [`ministat::block`] says whether means differ, by Student's t;
//! * [`kolivas::blocks`] are Con Kolivas's kernbench, [`kernbench::block`] Martin
//!   Bligh's, [`sdet::block`] the percentages that come with the latter;
//! * [`freebsd_time::line`] is what `time` of FreeBSD prints for a run.
//!
//! The statistics are right unless one asks for `compat`. Then they have the
//! mistakes with which the tables were published; each format's documentation
//! lists its own.
//!
//! ```
//! use vellum_tables::{Series, ministat};
//!
//! let stock = Series::single("stock", [567.74, 569.86, 570.91]);
//! let patched = Series::single("patched", [307.43, 304.76, 305.36]);
//! let options = ministat::Options { plot: None, ..Default::default() };
//! let text = ministat::block(&[stock, patched], &options)?;
//! assert!(text.contains("-46.2953% +/- 0.463659%"));
//! # Ok::<(), ministat::Error>(())
//! ```

pub mod freebsd_time;
pub mod kernbench;
pub mod kolivas;
pub mod ministat;
pub mod mmtests;
pub mod number;
pub mod read;
pub mod sdet;
pub mod series;
pub mod student;
pub mod summary;

pub use series::{Operation, Series};
