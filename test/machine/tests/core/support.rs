//! What tests of the core on the machine have in common.

use vellum::addr::Access;
use vellum::design::{OPTIONS, PageAging, variants};
use vellum::platform::CpuId;
use vellum::rmap::ReverseMap;
use vellum::space::FaultError;
use vellum::table::Format;
use vellum::{SpaceId, Vm};
use vellum_machine::Machine;
use vellum_machine::mmu::{AccessError, MmuFault};

/// Evaluates an expression with `$F` and `$R` as the format and the reverse mapping of
/// a design: one of those on x86-64 or x86-pae that the engines exist for.
macro_rules! with_instance {
    ($design:expr, $F:ident, $R:ident => $body:expr) => {{
        use vellum::design::{Rmap, TableFormat};
        match ($design.format, $design.rmap) {
            (TableFormat::X86_64, rmap) => {
                type $F = vellum::table::X86_64;
                vellum::with_rmap!(rmap, $R => $body)
            }
            (TableFormat::X86Pae, Rmap::Family) => {
                type $F = vellum::table::X86Pae;
                type $R = vellum::rmap::Family;
                $body
            }
            (TableFormat::X86Pae, Rmap::Chains) => {
                type $F = vellum::table::X86Pae;
                type $R = vellum::rmap::Chains;
                $body
            }
            (format, rmap) => panic!("{format:?} is not tested with {rmap:?}"),
        }
    }};
}
pub(crate) use with_instance;

/// The reverse mappings that [`with_instance`] has on x86-pae, with their options, and
/// page tables in high memory, in low memory, and in both, in turn.
pub fn variants_on_pae() -> impl Iterator<Item = String> {
    let exist = |rmap: &String| {
        ["rmap=family", "rmap=chains"]
            .iter()
            .any(|of| rmap.starts_with(of))
    };
    let rmaps = variants("rmap").into_iter().filter(exist);
    let tables = ["userpte=high", "userpte=nohigh", "userpte=auto"];
    rmaps
        .zip(tables.into_iter().cycle())
        .map(|(rmap, tables)| format!("format=x86-pae,{rmap},{tables}"))
}

/// Numbers that are the same for the same seed on every machine (SplitMix64).
pub struct Rng(pub u64);

impl Rng {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ word >> 31
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    pub fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }

    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }
}

/// The number in an environment variable that narrows a test down.
pub fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(
        text.parse()
            .unwrap_or_else(|_| panic!("{name}={text}: expected a number")),
    )
}

/// One access by a program of space `id`, which exists as long, on `cpu`, where the
/// caller is: the word at byte `address`, or `value` stored there. Faults are the
/// manager's.
pub fn access<F: Format, R: ReverseMap>(
    vm: &Vm<Machine, F, R>,
    cpu: CpuId,
    id: SpaceId,
    address: u64,
    access: Access,
    value: u64,
) -> Result<u64, AccessError<FaultError>> {
    let loaded = vm
        .space(id)
        .load()
        .map_err(|_| AccessError::Refused(FaultError::NoSpace))?;
    // SAFETY: the root is that of a space of this machine's manager, which its
    // users let live.
    let mmu = unsafe { vm.platform().mmu(cpu) };
    let mut handler = |fault: MmuFault| vm.space(id).fault(fault.address, fault.access).map(|_| ());
    mmu.access(
        loaded.tag,
        loaded.root,
        address,
        access,
        value,
        &mut handler,
    )
}

/// What the manager refused; any other end of an access fails the test.
pub fn refused(error: AccessError<FaultError>) -> FaultError {
    match error {
        AccessError::Refused(error) => error,
        AccessError::Unresolved { fault, .. } | AccessError::Conflict(fault) => {
            panic!("still faults: {fault}")
        }
    }
}

/// The options that matter with every design, other ones with each number. A
/// fault-around of one page, for half of the numbers, makes the model exact.
pub fn other_options(number: usize) -> String {
    let mut digits = number / 2;
    let mut text = String::from("faultaround=1");
    for info in OPTIONS.iter().filter(|info| info.only_with.is_none()) {
        let values = info.values;
        match info.name {
            // Folios and superpages of objects have cases of their own.
            "rmap" | "ptepage" | "format" | "folio" | "huge" | "filehuge" => {}
            "faultaround" if number.is_multiple_of(2) => {}
            "faultaround" => text += &format!(",faultaround={}", values[number / 2 % values.len()]),
            name => {
                let value = values[digits % values.len()];
                text += &format!(",{name}={value}");
                digits /= values.len();
                if (name, value) == ("reclaim", "on") {
                    let aging = PageAging::ALL[number / 3 % PageAging::ALL.len()];
                    text += &format!(",aging={}", aging.name());
                }
            }
        }
    }
    text
}
