//! The examples of parts that are used without the rest, and of the whole in short, run.
#![allow(clippy::duplicate_mod, reason = "each example brings its board")]

#[path = "../examples/dirty_tracking.rs"]
mod dirty_tracking;
#[path = "../examples/fault_hooks.rs"]
mod fault_hooks;
#[path = "../examples/frames.rs"]
mod frames;
#[path = "../examples/frames_and_tables.rs"]
mod frames_and_tables;
#[path = "../examples/ranges.rs"]
mod ranges;
#[path = "../examples/second_stage.rs"]
mod second_stage;
#[path = "../examples/whole_manager.rs"]
mod whole_manager;

#[test]
fn a_guest_moves_while_it_runs_and_checkpoints_have_what_has_changed() {
    dirty_tracking::main().expect("the example runs");
}

#[test]
fn a_guest_runs_before_its_memory_has_come_and_is_saved_while_it_stores() {
    fault_hooks::main().expect("the example runs");
}

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

/// The lines of an example that are neither blank nor only comments.
fn lines(example: &str) -> usize {
    let is_code = |line: &&str| !line.trim().is_empty() && !line.trim().starts_with("//");
    example.lines().filter(is_code).count()
}

#[test]
fn an_embedder_of_frames_and_tables_needs_40_lines() {
    frames_and_tables::main().expect("the example runs");
    assert!(lines(include_str!("../examples/frames_and_tables.rs")) <= 40);
}

#[test]
fn an_embedder_of_the_whole_manager_with_files_and_swap_needs_90_lines() {
    whole_manager::main().expect("the example runs");
    assert!(lines(include_str!("../examples/whole_manager.rs")) <= 90);
}
