//! The same link as in `lab/command/build.rs`, for those who build the stub by itself.

fn main() {
    let script = format!("-Wl,-T,{}/link.ld", env!("CARGO_MANIFEST_DIR"));
    for argument in ["-nostartfiles", "-nostdlib", "-static", "-no-pie", &script] {
        println!("cargo:rustc-link-arg={argument}");
    }
    println!("cargo:rerun-if-changed=link.ld");
}
