//! `pagealloc`: blocks of frames, allocated and freed in batches.
//!
//! After mmtests' benchmark of this name, a module in the kernel that allocates
//! batches of 1 block and more, up to 128 MiB, of every order up to 4, and frees
//! them.

use vellum_engine::{Call, Op};

use super::run::{self, Part};
use super::script::{Timing, Writer};
use crate::bench::findings::Findings;
use crate::bench::request::Request;
use crate::failure::Failure;
use vellum_terminal::progress::Interrupt;
use vellum_terminal::table::grouped;

/// Orders from 0 to this.
const LAST_ORDER: u32 = 4;

/// From one size of batch to the next.
const STEP: u64 = 8;

/// Blocks in a piece, at least.
const PIECE: u64 = 4096;

/// Measures it.
pub fn run(request: &Request, interrupt: &Interrupt) -> Result<Findings, Failure> {
    let frames = request.sizes.get("mebibytes") << 8;
    let rounds = request.sizes.get("rounds");
    let mut findings = Findings::default();
    for order in 0..=LAST_ORDER {
        let mut writer = Writer::new(1);
        writer.phases_apart();
        let batches = std::iter::successors(Some(1), |batch| Some(batch * STEP));
        for batch in batches.take_while(|batch| batch << order <= frames) {
            let name = format!("batches of {}", grouped(batch));
            let phase = writer.phase(name, "block", Timing::Slices);
            let times = PIECE.div_ceil(batch);
            for _ in 0..rounds {
                writer.op(Op::Call(Call::Frames {
                    order,
                    blocks: batch as u32,
                    rounds: times as u32,
                }));
                writer.piece(phase, batch * times);
            }
        }
        let title = format!("order {order}: blocks of {} KiB", 4u64 << order);
        let facts = vec!["A batch is allocated, block by block, and freed again.".to_owned()];
        let script = writer.finish();
        if run::add(
            &mut findings,
            Part::new(&title, facts, &script),
            request,
            interrupt,
        )? {
            break;
        }
    }
    findings.notes = vec![
        "Times are of an allocation and of freeing it, together. Frames are not zeroed.".to_owned(),
        run::NOT_MODELLED.to_owned(),
    ];
    Ok(findings)
}
