//! Operations that scripts are made of.

use vellum_engine::{Access, Backing, Op, Prot, Sharing, SpaceSlot};

use super::script::{Phase, SETUP, Slots, Writer};

/// Maps private memory, or a file that all share, to be read and stored to.
pub fn map(space: SpaceSlot, page: u64, pages: u64, backing: Backing) -> Op {
    Op::Map {
        space,
        page,
        pages,
        prot: Prot {
            read: true,
            write: true,
            execute: false,
        },
        sharing: match backing {
            Backing::Anonymous => Sharing::Private,
            Backing::File { .. } => Sharing::Shared,
        },
        backing,
        grows_down: false,
    }
}

/// Maps private memory.
pub fn private(space: SpaceSlot, page: u64, pages: u64) -> Op {
    map(space, page, pages, Backing::Anonymous)
}

/// A store to a page.
pub fn write(space: SpaceSlot, page: u64) -> Op {
    Op::Touch {
        space,
        page,
        access: Access::Write,
    }
}

/// Maps pages and writes to them.
pub fn populate(writer: &mut Writer, space: SpaceSlot, start: u64, pages: u64) {
    writer.op(private(space, start, pages));
    (start..start + pages).for_each(|page| writer.op(write(space, page)));
}

/// Forks so many children, one after the other.
pub fn fork_all(
    writer: &mut Writer,
    slots: &mut Slots,
    parent: SpaceSlot,
    children: u64,
    phase: Phase,
) -> Vec<SpaceSlot> {
    let family: Vec<SpaceSlot> = (0..children).map(|_| slots.fresh()).collect();
    for &child in &family {
        writer.op(Op::Fork { parent, child });
        writer.piece(phase, 1);
    }
    family
}

/// Ends them, one after the other.
pub fn exit_all(writer: &mut Writer, family: &[SpaceSlot], phase: Phase) {
    for &space in family {
        writer.op(Op::Exit { space });
        writer.piece(phase, 1);
    }
}

/// A new process with so much memory that it has written to.
pub fn process(writer: &mut Writer, slots: &mut Slots, start: u64, pages: u64) -> SpaceSlot {
    let space = slots.fresh();
    writer.op(Op::Create { space });
    populate(writer, space, start, pages);
    writer.cut(SETUP);
    space
}
