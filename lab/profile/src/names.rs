//! Names of Rust functions as people read them, the same for every instance of a
//! generic function, so that two designs can be compared function by function.

use rustc_demangle::try_demangle;

/// Whether `name` is a mangled Rust symbol.
pub fn is_mangled(name: &str) -> bool {
    try_demangle(name).is_ok()
}

/// The short form of a symbol; as it is if it is not Rust's.
pub fn of_symbol(symbol: &str) -> String {
    match try_demangle(symbol) {
        Ok(demangled) => short(&format!("{demangled:#}")),
        Err(_) => symbol.to_owned(),
    }
}

/// Whether the function is of Rust's own libraries.
pub fn is_library(name: &str) -> bool {
    const CRATES: [&str; 4] = ["core::", "alloc::", "std::", "compiler_builtins::"];
    CRATES.iter().any(|library| name.starts_with(library))
}

/// `path::Type::function` without generic arguments, trait names, `impl`s and
/// closures.
///
/// `<a::Chains as a::ReverseMap>::add` becomes `a::Chains::add`,
/// `a::fork::<impl a::Vm<P>>::copy` becomes `a::fork::copy`.
pub fn short(name: &str) -> String {
    let plain = without_angles(name);
    let parts = plain.split("::").filter(|part| {
        let closure =
            part.starts_with("{{") || part.starts_with("{closure") || part.starts_with("{shim");
        !part.is_empty() && !closure
    });
    let parts: Vec<&str> = parts.collect();
    match parts.is_empty() {
        true => name.to_owned(),
        false => parts.join("::"),
    }
}

fn without_angles(name: &str) -> String {
    let mut plain = String::new();
    let mut rest = name;
    while let Some(open) = rest.find('<') {
        let (before, group) = rest.split_at(open);
        plain.push_str(before);
        let Some(close) = closing(group) else {
            // Not brackets but something else, as in `operator<<`.
            plain.push_str(group);
            return plain;
        };
        let inside = &group[1..close];
        // `<Type as Trait>` and `<Type>` begin a path; elsewhere they are generic
        // arguments or an `impl`, which the path does without.
        if plain.is_empty() && !inside.starts_with("impl ") {
            let of_type = split_as(inside);
            let of_type = of_type.trim_start_matches(['&', '*', '(']);
            let of_type = of_type
                .trim_start_matches("mut ")
                .trim_start_matches("dyn ");
            plain.push_str(&without_angles(of_type));
        }
        rest = &group[close + 1..];
    }
    plain.push_str(rest);
    plain
}

/// What comes before ` as ` outside of inner brackets.
fn split_as(inside: &str) -> &str {
    let mut depth = 0;
    for (place, letter) in inside.char_indices() {
        match letter {
            '<' => depth += 1,
            '>' if !inside[..place].ends_with('-') => depth -= 1,
            ' ' if depth == 0 && inside[place..].starts_with(" as ") => return &inside[..place],
            _ => {}
        }
    }
    inside
}

/// Where the bracket that opens `group` closes. The `>` of `->` closes nothing.
fn closing(group: &str) -> Option<usize> {
    let mut depth = 0;
    for (place, letter) in group.char_indices() {
        match letter {
            '<' => depth += 1,
            '>' if !group[..place].ends_with('-') => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some(place);
        }
    }
    None
}

/// The name of a function of which debug information has only `name`, and the
/// path of the source `file` it is in.
pub fn of_bare(name: &str, file: Option<&str>) -> String {
    let function = short(name);
    let Some(module) = file.and_then(module) else {
        return function;
    };
    match function.starts_with('{') {
        true => module,
        false => format!("{module}::{function}"),
    }
}

/// The module in a source file, such as `vellum::rmap::chains` in
/// `…/vellum/src/rmap/chains.rs`.
fn module(file: &str) -> Option<String> {
    let (before, inside) = file.rsplit_once("/src/")?;
    let directory = before.rsplit('/').next()?;
    // The workspace's directories are named more shortly than its packages.
    let package = match directory {
        "command" => "vellum_lab".to_owned(),
        "machine" | "engine" | "profile" | "terminal" => format!("vellum_{directory}"),
        other => without_version(other).replace('-', "_"),
    };
    let inside = inside.strip_suffix(".rs")?;
    let inside = inside.strip_suffix("/mod").unwrap_or(inside);
    let mut module = package;
    for part in inside
        .split('/')
        .filter(|part| !matches!(*part, "lib" | "main" | "mod"))
    {
        module.push_str("::");
        module.push_str(part);
    }
    Some(module)
}

/// `regex-1.13.1` as `regex`.
fn without_version(directory: &str) -> &str {
    match directory.rsplit_once('-') {
        Some((name, version)) if version.starts_with(|c: char| c.is_ascii_digit()) => name,
        _ => directory,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instances_of_a_generic_function_have_one_name() {
        for (name, expected) in [
            (
                "vellum::rmap::chains::Chains::lock",
                "vellum::rmap::chains::Chains::lock",
            ),
            (
                "<vellum::rmap::chains::Chains as vellum::rmap::ReverseMap>::add",
                "vellum::rmap::chains::Chains::add",
            ),
            (
                "vellum::space::fork::<impl vellum::space::manager::Vm<P,C,F,R>>::copy_pinned",
                "vellum::space::fork::copy_pinned",
            ),
            (
                "vellum::space::manager::Vm<vellum_machine::Machine,F,R>::fault",
                "vellum::space::manager::Vm::fault",
            ),
            (
                "core::ptr::drop_in_place<alloc::vec::Vec<u8>>",
                "core::ptr::drop_in_place",
            ),
            (
                "<a::B<T> as a::C<fn(u8) -> <T as D>::E>>::f::<u8>",
                "a::B::f",
            ),
            ("a::run::{{closure}}::{{closure}}", "a::run"),
            ("a::run::{closure#0}", "a::run"),
            ("<&mut a::B as core::ops::Deref>::deref", "a::B::deref"),
            ("<dyn a::Engine>::run", "a::Engine::run"),
            ("__memset_avx2_unaligned", "__memset_avx2_unaligned"),
            ("operator<<", "operator<<"),
        ] {
            assert_eq!(short(name), expected, "{name}");
        }
    }

    #[test]
    fn symbols_are_demangled() {
        let symbol = "_ZN10vellum_lab3cli7compare12fault_around17h2e42820cab5269cdE";
        assert_eq!(of_symbol(symbol), "vellum_lab::cli::compare::fault_around");
        assert_eq!(of_symbol("page_fault"), "page_fault");
        assert!(is_mangled(symbol) && !is_mangled("fault_around"));
    }

    #[test]
    fn bare_names_get_the_module_of_their_file() {
        for (name, file, expected) in [
            (
                "lock",
                "/w/vellum/src/rmap/chains.rs",
                "vellum::rmap::chains::lock",
            ),
            (
                "add<P, R>",
                "/w/vellum/src/rmap/mod.rs",
                "vellum::rmap::add",
            ),
            (
                "zero",
                "/w/test/machine/src/ram.rs",
                "vellum_machine::ram::zero",
            ),
            (
                "run",
                "/w/lab/command/src/cli/mod.rs",
                "vellum_lab::cli::run",
            ),
            (
                "{closure#0}<u8>",
                "/w/vellum/src/space/life/fork.rs",
                "vellum::space::life::fork",
            ),
            ("build", "/w/test/engine/src/lib.rs", "vellum_engine::build"),
            ("find", "/r/regex-1.13.1/src/exec.rs", "regex::exec::find"),
            (
                "next",
                "/rustc/59807616/library/core/src/iter/range.rs",
                "core::iter::range::next",
            ),
            ("f", "f.c", "f"),
        ] {
            assert_eq!(of_bare(name, Some(file)), expected);
        }
        assert!(is_library("core::iter::range::next"));
        assert!(!is_library("vellum::frame::content::zero"));
    }
}
