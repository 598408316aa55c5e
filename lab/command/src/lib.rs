//! The laboratory around the `vellum` memory manager.

pub mod advise;
#[cfg(feature = "bench")]
pub mod bench;
pub mod built_in;
pub mod cli;
pub mod clock;
pub mod compare;
mod designs;
pub mod doctor;
mod excerpt;
pub mod failure;
pub mod history;
pub mod host;
pub mod linux;
mod on;
pub mod plan;
pub mod program;
pub mod replay;
pub mod report;
#[cfg(feature = "simulation")]
pub mod reproduce;
pub mod sampled;
#[cfg(feature = "simulation")]
pub mod scale;
mod shipped;
#[cfg(feature = "simulation")]
pub mod simulate;
pub mod stats;
#[cfg(feature = "simulation")]
pub mod validate;
pub mod verify;

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};
    use std::path::Path;

    /// Which modules of the crate each of them names.
    type Imports = BTreeMap<String, BTreeSet<String>>;

    /// Adds what the Rust sources in and below `directory` import. `module` is the
    /// one they belong to; none at the top, where each file or directory is one.
    fn read(directory: &Path, module: Option<&str>, imports: &mut Imports) {
        for entry in std::fs::read_dir(directory).expect("the sources are there") {
            let path = entry.expect("readable").path();
            let name = path.file_stem().expect("a name").to_string_lossy();
            let module = module.unwrap_or(&name);
            if path.is_dir() {
                read(&path, Some(module), imports);
            } else if !["lib", "main"].contains(&module) {
                let text = std::fs::read_to_string(&path).expect("text");
                let named = text.split("crate::").skip(1).map(|rest| {
                    let end = rest.find(|c: char| c != '_' && !c.is_alphanumeric());
                    rest[..end.unwrap_or(rest.len())].to_owned()
                });
                let of_module = imports.entry(module.to_owned()).or_default();
                of_module.extend(named.filter(|other| other != module));
            }
        }
    }

    #[test]
    fn modules_import_one_another_in_one_direction() {
        let mut imports = Imports::new();
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        read(&sources, None, &mut imports);
        assert!(imports["cli"].contains("compare"), "imports are found");
        for (module, named) in &imports {
            assert!(!named.contains("cli"), "{module} imports cli");
            // Names in braces are not read.
            let alone = !named.contains("");
            assert!(alone, "{module}: name modules one by one, no `crate::{{`");
        }
        // Modules that import none of those left are taken away, until none is left.
        while !imports.is_empty() {
            let left: BTreeSet<String> = imports.keys().cloned().collect();
            imports.retain(|_, named| named.iter().any(|other| left.contains(other)));
            assert!(imports.len() < left.len(), "a circle in {imports:#?}");
        }
    }
}
