//! `cargo xtask c`: the header of `embed/c/` is what its sources say, and the programs in C that
//! use it compile without a warning, and find nothing wrong.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::command::cargo;

/// What to do about the interface for C.
#[derive(clap::Args)]
pub struct Args {
    /// Write the header instead of checking it, and stop there
    #[arg(long)]
    write: bool,
    /// Fail if a compiler is missing, instead of skipping it
    #[arg(long)]
    require: bool,
}

/// Compilers, and the packages of Debian that have them.
const COMPILERS: [(&str, &str); 2] = [("gcc", "gcc"), ("clang", "clang")];
const CPP_COMPILERS: [(&str, &str); 2] = [("g++", "g++"), ("clang++", "clang")];

/// All warnings there are.
const STRICT: [&str; 8] = [
    "-Wall",
    "-Wextra",
    "-pedantic",
    "-Werror",
    "-Wshadow",
    "-Wconversion",
    "-Wundef",
    "-O1",
];

const PROGRAMS: [&str; 5] = [
    "examples/kernel.c",
    "tests/border.c",
    "tests/superpages.c",
    "tests/groups.c",
    "tests/stores.c",
];

/// Runs the command.
pub fn run(args: &Args) -> Result<(), String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .ok_or("the workspace has no directory")?;
    let c = root.join("embed/c");
    let header = header_path(&c);
    let written = header_of(&c)?;
    if args.write {
        return fs::write(&header, written).map_err(|error| in_file(&header, &error));
    }
    let there = fs::read_to_string(&header).map_err(|error| in_file(&header, &error))?;
    if there != written {
        return Err(format!(
            "{} is not what embed/c/src says: cargo xtask c --write",
            header.display()
        ));
    }
    let out = root.join("target/c");
    build(&c, &out)?;
    let mut found = [false; 2];
    for (compiler, package) in COMPILERS {
        if is_missing(compiler, package, args.require)? {
            continue;
        }
        found[0] = true;
        for program in PROGRAMS {
            compile_and_run(&c, &out, compiler, program)?;
        }
    }
    for (compiler, package) in CPP_COMPILERS {
        if is_missing(compiler, package, args.require)? {
            continue;
        }
        found[1] = true;
        include_in_cpp(&c, &out, compiler)?;
    }
    for (there, language) in found.iter().zip(["C", "C++"]) {
        if !there {
            println!("skipped: there is no compiler for {language}");
        }
    }
    Ok(())
}

fn header_path(c: &Path) -> PathBuf {
    c.join("include/vellum.h")
}

fn in_file(path: &Path, error: &dyn std::fmt::Display) -> String {
    format!("{}: {error}", path.display())
}

/// The header that the sources make.
fn header_of(c: &Path) -> Result<String, String> {
    let config = c.join("cbindgen.toml");
    let config = cbindgen::Config::from_file(&config).map_err(|error| in_file(&config, &error))?;
    // In the order in which one reads them.
    let files = [
        "status",
        "platform",
        "manager",
        "spaces",
        "access",
        "regions",
        "nodes",
        "rules",
        "layout",
        "hooks",
        "dirty",
        "objects",
        "open",
        "swap",
        "superpages",
        "groups",
        "frames",
        "report",
    ];
    let builder = cbindgen::Builder::new().with_config(config);
    let builder = files.iter().fold(builder, |builder, file| {
        builder.with_src(c.join(format!("src/{file}.rs")))
    });
    let bindings = builder
        .generate()
        .map_err(|error| format!("embed/c/src: {error}"))?;
    let mut text = Vec::new();
    bindings.write(&mut text);
    String::from_utf8(text).map_err(|error| format!("the header: {error}"))
}

/// Builds the library for this machine, with the designs of published kernels, which the tests
/// choose among others.
fn build(c: &Path, out: &Path) -> Result<(), String> {
    let mut command = cargo();
    command
        .args(["build", "--release", "--quiet", "--locked"])
        .args(["--features", "published", "--manifest-path"])
        .arg(c.join("Cargo.toml"))
        .arg("--target-dir")
        .arg(out);
    succeeds(&mut command, "the library does not build")
}

/// Whether a compiler is not there, which is an error if it is `required`.
fn is_missing(compiler: &str, package: &str, required: bool) -> Result<bool, String> {
    let version = Command::new(compiler)
        .arg("--version")
        .stdout(Stdio::null())
        .status();
    if version.is_ok_and(|status| status.success()) {
        return Ok(false);
    }
    let how = format!("{compiler} is not installed: apt-get install {package}");
    if required {
        return Err(how);
    }
    println!("skipped: {how}");
    Ok(true)
}

fn compile_and_run(c: &Path, out: &Path, compiler: &str, program: &str) -> Result<(), String> {
    let name = Path::new(program).file_stem().unwrap_or_default();
    let binary = out.join(format!("{}-{compiler}", name.display()));
    let mut command = Command::new(compiler);
    command
        .arg("-std=c11")
        .args(STRICT)
        .arg("-I")
        .arg(c.join("include"))
        .arg(c.join(program))
        .arg(out.join("release/libvellum_c.a"))
        .arg("-o")
        .arg(&binary);
    succeeds(
        &mut command,
        &format!("{compiler}: {program} does not compile"),
    )?;
    println!("{compiler}: {program}");
    succeeds(
        &mut Command::new(&binary),
        &format!("{}: it found something wrong", binary.display()),
    )
}

/// A program in C++ that does nothing but include the header.
fn include_in_cpp(c: &Path, out: &Path, compiler: &str) -> Result<(), String> {
    let source = out.join("include.cpp");
    fs::write(&source, "#include \"vellum.h\"\n").map_err(|error| in_file(&source, &error))?;
    let mut command = Command::new(compiler);
    command
        .args(["-std=c++11", "-fsyntax-only"])
        .args(STRICT)
        .arg("-I")
        .arg(c.join("include"))
        .arg(&source);
    succeeds(&mut command, &format!("{compiler}: the header is no C++"))?;
    println!("{compiler}: include/vellum.h");
    Ok(())
}

fn succeeds(command: &mut Command, otherwise: &str) -> Result<(), String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let status = command
        .status()
        .map_err(|error| format!("{program}: {error}"))?;
    match status.success() {
        true => Ok(()),
        false => Err(otherwise.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_is_what_the_sources_of_the_c_interface_say() {
        let c = Path::new(env!("CARGO_MANIFEST_DIR")).join("../embed/c");
        let there = fs::read_to_string(header_path(&c)).expect("the header is there");
        let written = header_of(&c).expect("the sources make a header");
        assert!(there == written, "write it anew: cargo xtask c --write");
    }
}
