//! The examples of parts that are used without the rest, run.
#![allow(clippy::duplicate_mod, reason = "each example brings its board")]

#[path = "../examples/frames.rs"]
mod frames;
#[path = "../examples/ranges.rs"]
mod ranges;
#[path = "../examples/second_stage.rs"]
mod second_stage;

#[test]
fn the_frame_allocator_serves_the_interfaces_of_other_kernels() {
    frames::main().expect("the example runs");
}

#[test]
fn page_tables_serve_a_second_stage_of_translation() {
    second_stage::main().expect("the example runs");
}

#[test]
fn the_tree_of_ranges_finds_slots_of_memory() {
    ranges::main().expect("the example runs");
}
