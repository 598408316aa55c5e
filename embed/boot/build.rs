//! How the kernel and the programs are linked: without a library, by scripts.

fn main() {
    let directory = env!("CARGO_MANIFEST_DIR");
    let architecture = std::env::var("CARGO_CFG_TARGET_ARCH").expect("cargo sets it");
    for (bin, script) in [
        ("kernel", format!("src/{architecture}/kernel.ld")),
        ("programs", "programs/programs.ld".to_owned()),
    ] {
        let script = format!("{directory}/{script}");
        let mut arguments = vec![
            "--build-id=none".to_owned(),
            "-zmax-page-size=4096".to_owned(),
            format!("-T{script}"),
        ];
        if architecture == "x86_64" {
            // The host's target links by the C compiler.
            for argument in &mut arguments {
                *argument = format!("-Wl,{argument}");
            }
            let plain = ["-nostartfiles", "-nostdlib", "-static", "-no-pie"];
            arguments.extend(plain.map(str::to_owned));
        } else if bin == "kernel" {
            // What QEMU starts as it starts Linux is no ELF file.
            arguments.push("--oformat=binary".to_owned());
        }
        for argument in arguments {
            println!("cargo:rustc-link-arg-bin={bin}={argument}");
        }
        println!("cargo:rerun-if-changed={script}");
    }
}
