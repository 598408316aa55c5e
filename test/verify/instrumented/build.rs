//! Compiles the core's source, unchanged, with reporting atomics.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cfg=vellum_instrumented");
}
