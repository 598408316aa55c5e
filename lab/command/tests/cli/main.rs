//! The commands as a user meets them.

mod accesses;
mod advise;
mod basics;
mod bench;
mod bench_files;
mod bench_reclaim;
mod bench_tmpfs;
mod bench_workloads;
#[path = "../command/mod.rs"]
mod command;
mod compare;
mod cpu_time;
mod cut;
mod device;
mod diffprofile;
mod doctor;
mod documents;
mod history;
mod host;
mod import_export;
mod kolivas;
mod machines;
mod outputs;
mod page;
mod plan;
mod plan_tlb;
mod record;
mod replay;
mod reproduce;
mod scale;
mod shipped;
mod simulated;
mod stats;
mod sweep;
mod whole;
