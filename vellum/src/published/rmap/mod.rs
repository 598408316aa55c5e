//! Reverse mappings that kernels had before and beside `family`.

mod addresses;
mod anon_pages;
mod anon_vma;
mod anon_vma_chain;
mod anonmm;
mod anonmm2003;
mod bundle;
mod bundles;
mod chains;
mod partial;
mod pv;

#[cfg(test)]
mod anon_tests;
#[cfg(test)]
mod anonmm_tests;
#[cfg(test)]
mod tests;

pub use anon_vma::AnonVma;
pub use anon_vma_chain::AnonVmaChain;
pub use anonmm::Anonmm;
pub use anonmm2003::Anonmm2003;
pub use chains::Chains;
pub use partial::Partial;
pub use pv::Pv;
