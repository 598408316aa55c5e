//! Questions that have to be answered before a machine is bought or configured: how much
//! memory a workload needs ([`memory`], `vellum plan memory`), what larger pages would save in TLB
//! misses ([`tlb`], `vellum plan tlb`), and where the page tables of a machine with high memory
//! should lie (`vellum plan userpte`).
//!
//! [`mod@arithmetic`] is what the published text of 2010 counts, for any machine.
//! [`demand`] measures what a recorded workload needs of low memory. [`mod@sizes`]
//! says from both at which size of memory `userpte=nohigh` begins to fail.
//! [`sweep`] replays the workload with each value of `userpte=` on machines with
//! little low memory, and charges the windows that were opened their
//! [`Price`].

pub mod arithmetic;
pub mod demand;
pub mod mappings;
pub mod memory;
pub mod memory_text;
pub mod session;
pub mod sizes;
pub mod sweep;
pub mod text;
pub mod tlb;
pub mod tlb_text;
pub mod window;

use crate::failure::Failure;
use arithmetic::arithmetic;
use session::Session;
use sizes::sizes;
use vellum_results::plan::{Measured, Plan, Price};

/// The format whose tables can lie in high memory.
pub const FORMAT: &str = "x86-pae";

/// What is asked of a machine.
#[derive(Clone, Debug)]
pub struct Question {
    /// Low memory in bytes.
    pub low_bytes: u64,
    /// The least and the most memory in bytes.
    pub ram: (u64, u64),
    /// Into what part of low memory the tables are to fit: one in so many.
    pub slop: f64,
    /// Sizes of low memory to replay with, in parts of what was needed.
    pub parts: Vec<f64>,
}

/// Answers `question`, with replays if there is something to replay.
///
/// # Errors
/// A replay could not be made, went otherwise than recorded, or the user ended it
/// before what the workload needs was known.
pub fn plan(
    question: &Question,
    workload: Option<(String, Session<'_>, &Price)>,
) -> Result<Plan, Failure> {
    let mut plan = Plan {
        arithmetic: arithmetic(question.low_bytes, question.slop),
        sizes: sizes(question, None),
        measured: None,
        interrupted: false,
    };
    if let Some((trace, mut session, price)) = workload {
        let demand = demand::measure(&mut session)?;
        let sweep = sweep::sweep(&mut session, &demand, &question.parts, price)?;
        plan.sizes = sizes(question, Some(&demand));
        plan.interrupted = sweep.interrupted;
        plan.measured = Some(Measured {
            trace,
            demand,
            price: price.clone(),
            sweep,
        });
    }
    Ok(plan)
}
