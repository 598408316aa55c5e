//! One model for each protocol, and what they share.

mod anon_vma;
mod bundle;
mod chunks;
mod epoch;
mod files;
mod handover;
mod kin;
mod locks;
mod meet;
mod numbers;
mod page_lock;
mod pv;
mod region;
mod rest;
mod tables;

use crate::PREEMPTIONS;
use crate::platform::CpuId;
use crate::sync::{Epochs, Pin, PinHost};

/// Runs a model in every order with few preemptions.
fn check(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound.get_or_insert(PREEMPTIONS);
    builder.check(model);
}

/// A platform whose pins mean nothing: each thread has a CPU of its own.
struct Host;

impl PinHost for Host {
    fn unpin(&self, _cpu: CpuId) {}
    fn relax(&self, _cpu: CpuId, _spins: u32) {}
}

fn pin(epochs: &Epochs, cpu: u16) -> Pin<'_> {
    // SAFETY: each thread of a model has a number of its own.
    unsafe { epochs.enter(&Host, CpuId(cpu)) }
}
