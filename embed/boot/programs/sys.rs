//! Calls of the kernel, and accesses that may be refused.

use core::arch::asm;

use crate::protocol::{BARE_PROBE, PROBE, REFUSED, call, count};

#[cfg(target_arch = "x86_64")]
core::arch::global_asm!(include_str!("entry.s"), options(att_syntax));
#[cfg(target_arch = "aarch64")]
core::arch::global_asm!(include_str!("entry_aarch64.s"));
#[cfg(target_arch = "x86_64")]
core::arch::global_asm!(
    include_str!("../src/x86_64/builtins.s"),
    options(att_syntax)
);

/// A call with its arguments.
pub fn kernel(number: u64, arguments: [u64; 6]) -> u64 {
    let [first, second, third, fourth, fifth, sixth] = arguments;
    let answer;
    // SAFETY: the kernel changes the register of the answer, and memory only as the call says.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        asm!("int 0x80", inlateout("rax") number => answer, in("rdi") first, in("rsi") second,
            in("rdx") third, in("rcx") fourth, in("r8") fifth, in("r9") sixth);
    }
    // SAFETY: as above.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        asm!("svc 0", in("x8") number, inlateout("x0") first => answer, in("x1") second,
            in("x2") third, in("x3") fourth, in("x4") fifth, in("x5") sixth);
    }
    answer
}

/// The same with what there is of arguments.
pub fn ask<const N: usize>(number: u64, arguments: [u64; N]) -> u64 {
    let mut all = [0; 6];
    all[..N].copy_from_slice(&arguments);
    kernel(number, all)
}

/// Something is wrong: the machine ends, and says what.
pub fn fail(code: u64, what: [u64; 3]) -> ! {
    loop {
        ask(call::FAIL, [code, what[0], what[1], what[2]]);
    }
}

/// A call that must not be refused. `code` says where it stands.
pub fn must<const N: usize>(code: u64, number: u64, arguments: [u64; N]) -> u64 {
    let answer = ask(number, arguments);
    if answer == REFUSED {
        fail(
            code,
            [number, arguments[0], arguments.get(1).copied().unwrap_or(0)],
        );
    }
    answer
}

/// What an access came to.
#[repr(C)]
pub struct Probed {
    value: u64,
    refused: u64,
}

impl Probed {
    /// The value, if the access was allowed.
    pub fn value(self) -> Option<u64> {
        (self.refused == 0).then_some(self.value)
    }
}

unsafe extern "C" {
    fn probe_load(address: u64, value: u64, kind: u64) -> Probed;
    fn probe_store(address: u64, value: u64, kind: u64) -> Probed;
    fn probe_fetch(address: u64, value: u64, kind: u64) -> Probed;
    fn probe_refused();
}

/// Says where refused probes go on; once in each space that a program begins in.
pub fn prepare_probes() {
    ask(call::RECOVER, [probe_refused as *const () as u64]);
}

/// What an access does.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Load,
    Store,
    Fetch,
}

fn access(kind: Kind, address: u64, value: u64, how: u64) -> Option<u64> {
    // SAFETY: the address lies outside of what the program itself consists of, and what is
    // called there begins with a return.
    unsafe {
        match kind {
            Kind::Load => probe_load(address, value, how),
            Kind::Store => probe_store(address, value, how),
            Kind::Fetch => probe_fetch(address, value, how),
        }
    }
    .value()
}

/// An access as programs make it; `None` if it was refused.
pub fn probe(kind: Kind, address: u64, value: u64) -> Option<u64> {
    access(kind, address, value, PROBE)
}

/// The same, refused by every page fault: what the MMU lets through at this moment.
pub fn bare_probe(kind: Kind, address: u64, value: u64) -> Option<u64> {
    access(kind, address, value, BARE_PROBE)
}

/// A load that must be allowed.
pub fn load(code: u64, address: u64) -> u64 {
    probe(Kind::Load, address, 0).unwrap_or_else(|| fail(code, [address, 0, 0]))
}

/// A store that must be allowed.
pub fn store(code: u64, address: u64, value: u64) {
    if probe(Kind::Store, address, value).is_none() {
        fail(code, [address, value, 0]);
    }
}

/// The word at the address must be this.
pub fn expect(code: u64, address: u64, value: u64) {
    let found = load(code, address);
    if found != value {
        fail(code, [address, value, found]);
    }
    ask(call::COUNT, [count::CHECKS, 1]);
}

/// The access must be refused.
pub fn expect_refusal(code: u64, kind: Kind, address: u64) {
    if probe(kind, address, 0).is_some() {
        fail(code, [address, kind as u64, 0]);
    }
    ask(call::COUNT, [count::REFUSALS, 1]);
}
