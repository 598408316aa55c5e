//! Compiles the core's `sync` folder with the model checker's atomics.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cfg=vellum_loom");
}
