//! From addresses to function names, those of inlined functions included.
//!
//! Inlined functions are in the debug information only. Where it has the mangled
//! names of functions, they are used. With `debug = "line-tables-only"` it has
//! bare names without module or type; then the module is taken from the path of
//! the source file, for functions that are not inlined, too, so that a function
//! has one name wherever it ends up.

use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use addr2line::Loader;

use crate::names;
use crate::sample::Modules;

/// Resolves addresses of this process. Answers are kept.
pub struct Symbols<'m> {
    modules: &'m Modules,
    /// By path of the module; `None` if it cannot be read.
    loaders: HashMap<String, Option<Loader>>,
    known: HashMap<u64, Rc<[Arc<str>]>>,
}

impl<'m> Symbols<'m> {
    /// For code of `modules`.
    pub fn new(modules: &'m Modules) -> Self {
        Self {
            modules,
            loaders: HashMap::new(),
            known: HashMap::new(),
        }
    }

    /// The functions that the instruction at `address` belongs to, outermost
    /// first: one that exists as such, then those inlined into it. Functions of
    /// Rust's libraries that were inlined are left out: they are part of whoever
    /// uses them.
    pub fn frames(&mut self, address: u64) -> Vec<Arc<str>> {
        if let Some(known) = self.known.get(&address) {
            return known.to_vec();
        }
        let names: Vec<Arc<str>> = self.resolve(address).into_iter().map(Arc::from).collect();
        self.known.insert(address, names.as_slice().into());
        names
    }

    fn resolve(&mut self, address: u64) -> Vec<String> {
        let Some(module) = self.modules.at(address) else {
            return vec!["[unknown]".to_owned()];
        };
        let key = module.path.display().to_string();
        let loader = self
            .loaders
            .entry(key)
            .or_insert_with(|| Loader::new(&module.path).ok());
        let unknown = || vec![format!("[{}]", module.name)];
        let Some(loader) = loader else {
            return unknown();
        };
        let place = address.wrapping_sub(module.bias);
        let mut names = described(loader, place);
        if names.is_empty() {
            names.extend(loader.find_symbol(place).map(names::of_symbol));
        }
        match names.is_empty() {
            true => unknown(),
            false => names,
        }
    }
}

/// What debug information says about the instruction at `place`.
fn described(loader: &Loader, place: u64) -> Vec<String> {
    let Ok(mut frames) = loader.find_frames(place) else {
        return Vec::new();
    };
    let mut names = Vec::new();
    // Innermost first.
    while let Ok(Some(frame)) = frames.next() {
        let Some(function) = frame.function else {
            continue;
        };
        let Ok(raw) = function.raw_name() else {
            continue;
        };
        let file = frame.location.and_then(|location| location.file);
        names.push(match names::is_mangled(&raw) {
            true => names::of_symbol(&raw),
            false => names::of_bare(&raw, file),
        });
    }
    names.reverse();
    let mut frames = names.into_iter();
    // What exists as a function keeps its name even if it is a library's.
    let outermost = frames.next();
    let inlined = frames.filter(|name| !names::is_library(name));
    let mut names: Vec<String> = outermost.into_iter().chain(inlined).collect();
    // A closure is part of the function it is written in.
    names.dedup();
    names
}
