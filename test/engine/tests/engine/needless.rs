//! Faults that a replay meets and the core, with larger pages, did not need.

use super::*;

/// Exactly the faults that meet a page which came with the store to another page of its folio
/// say so: also in a child that inherited it, and where it was moved to; not those of the page
/// that was stored to, nor of copies, nor of pages of regions that were advised otherwise.
#[test]
fn faults_that_a_folio_made_needless_are_told_from_others() {
    let (read, write) = (Access::Read, Access::Write);
    for design in ["rmap=family", "rmap=chains", "rmap=anonmm2003", "rmap=pv"] {
        let engine = engine_of(&format!("{design},folio=64k"));
        let engine = &*engine;
        let private = |page, pages| map(A, page, pages, Sharing::Private, Backing::Anonymous);
        let advise = |page, pages, order| Op::Advise {
            space: A,
            page,
            pages,
            advice: Advice::Folio(order),
        };
        let steps: &[(Op, Option<Divergence>)] = &[
            (Op::Create { space: A }, None),
            (private(512, 100), None),
            (touch(A, 520, write), None),
            (touch(A, 520, write), Some(Divergence::AlreadyMapped)),
            (touch(A, 521, write), Some(Divergence::MappedFolio)),
            (touch(A, 527, read), Some(Divergence::MappedFolio)),
            (touch(A, 512, read), Some(Divergence::MappedFolio)),
            (touch(A, 528, read), None),
            (touch(A, 528, read), Some(Divergence::AlreadyMapped)),
            (
                Op::Fork {
                    parent: A,
                    child: B,
                },
                None,
            ),
            (touch(B, 521, read), Some(Divergence::MappedFolio)),
            (touch(B, 521, write), None),
            (touch(B, 521, read), Some(Divergence::AlreadyMapped)),
            (touch(A, 521, read), Some(Divergence::MappedFolio)),
            (Op::Exit { space: B }, None),
            (advise(560, 20, Some(0)), None),
            (touch(A, 561, write), None),
            (touch(A, 562, write), None),
            (advise(560, 20, Some(2)), None),
            (touch(A, 570, write), None),
            (touch(A, 568, write), Some(Divergence::MappedFolio)),
            (touch(A, 567, write), None),
            (
                Op::Remap {
                    space: A,
                    page: 520,
                    pages: 4,
                    new_page: 4000,
                    new_pages: 4,
                },
                None,
            ),
            (touch(A, 4000, read), Some(Divergence::AlreadyMapped)),
            (touch(A, 4001, read), Some(Divergence::MappedFolio)),
            (Op::Exit { space: A }, None),
        ];
        for (number, (op, expected)) in steps.iter().enumerate() {
            let found = run(engine, std::slice::from_ref(op));
            let found = found.first().map(|(_, how)| *how);
            assert_eq!(found, *expected, "{design}: step {number}, {op:?}");
        }
        engine.audit().unwrap();
    }
}

/// Exactly the faults that meet memory of a superpage which another fault had mapped say
/// so: also after the superpage was split, in a child that inherited it, and where it
/// was moved to; not those of pages that were mapped or copied one by one.
#[test]
fn faults_that_a_superpage_made_needless_are_told_from_others() {
    let (read, write) = (Access::Read, Access::Write);
    for design in ["rmap=family", "rmap=chains", "rmap=anonmm2003", "rmap=pv"] {
        let engine = engine_of(&format!("{design},superpage=eager"));
        let engine = &*engine;
        let private = |page, pages| map(A, page, pages, Sharing::Private, Backing::Anonymous);
        let steps: &[(Op, Option<Divergence>)] = &[
            (Op::Create { space: A }, None),
            // Pages 512 to 1024 become a superpage; 16 to 24 are too few.
            (private(512, 600), None),
            (private(16, 8), None),
            (touch(A, 600, write), None),
            (touch(A, 601, write), Some(Divergence::MappedLarge)),
            (touch(A, 512, read), Some(Divergence::MappedLarge)),
            (touch(A, 16, write), None),
            (touch(A, 16, write), Some(Divergence::AlreadyMapped)),
            (touch(A, 1024, write), None),
            (touch(A, 1024, write), Some(Divergence::AlreadyMapped)),
            (
                Op::Fork {
                    parent: A,
                    child: B,
                },
                None,
            ),
            (touch(B, 700, read), Some(Divergence::MappedLarge)),
            // Copies one page, and splits the superpage in the child.
            (touch(B, 700, write), None),
            (touch(B, 700, read), Some(Divergence::AlreadyMapped)),
            (touch(B, 701, read), Some(Divergence::MappedLarge)),
            (touch(A, 701, read), Some(Divergence::MappedLarge)),
            (Op::Exit { space: B }, None),
            // Splits it here.
            (
                Op::Unmap {
                    space: A,
                    page: 600,
                    pages: 1,
                },
                None,
            ),
            (private(600, 1), None),
            (touch(A, 600, write), None),
            (touch(A, 600, write), Some(Divergence::AlreadyMapped)),
            (touch(A, 512, read), Some(Divergence::MappedLarge)),
            (touch(A, 1023, read), Some(Divergence::MappedLarge)),
            (
                Op::Remap {
                    space: A,
                    page: 1000,
                    pages: 4,
                    new_page: 4000,
                    new_pages: 4,
                },
                None,
            ),
            (touch(A, 4001, read), Some(Divergence::MappedLarge)),
            (Op::Exit { space: A }, None),
        ];
        for (number, (op, expected)) in steps.iter().enumerate() {
            let found = run(engine, std::slice::from_ref(op));
            let found = found.first().map(|(_, how)| *how);
            assert_eq!(found, *expected, "{design}, step {number}: {op:?}");
        }
        engine.audit().unwrap();
    }
}
