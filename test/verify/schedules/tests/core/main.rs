//! The core under random schedules, with every reverse-mapping design.
//!
//! One program: what is compiled for each design is compiled once.

#[macro_use]
mod world;

mod faults;
mod files;
mod folios;
mod fork;
mod groups;
mod hooks;
mod huge;
mod huge_file;
mod io;
mod lifts;
mod lookups;
mod races;
mod reclaim;
mod rmap;
mod superpages;
mod superpages_out;
mod swap;
mod swap_shared;
mod swept;
mod sync;
mod tables;
mod tracts;
mod truncation;
mod unflushed;

// Its instances of the core serve these tests too.
use vellum_engine_counted as _;
