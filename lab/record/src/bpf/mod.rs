//! Programs that the kernel runs for the recorder (BPF).

pub mod assembler;
pub mod btf;
pub mod load;
