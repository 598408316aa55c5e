//! The page about the JSON of results, from the types that write it (`lab/results`).
//!
//! It lies in `docs/json.md`, and tests hold it against the types, and the types against
//! results that were kept.

mod page;
mod types;

use std::fs;
use std::path::{Path, PathBuf};

use types::Modules;

/// Files of the types, in the order of the page.
const FILES: [&str; 21] = [
    "document",
    "run",
    "advise",
    "compare",
    "bench",
    "kolivas",
    "reproduce",
    "replay",
    "linux",
    "scale",
    "sim",
    "validation",
    "memory",
    "tlb",
    "plan",
    "sweep",
    "history",
    "profile",
    "figure",
    "verdict",
    "whole",
];

/// What becomes of the page.
#[derive(clap::Args)]
pub struct Args {
    /// Only say whether it is up to date
    #[arg(long)]
    check: bool,
}

/// Writes the page, or checks it.
pub fn run(args: &Args) -> Result<(), String> {
    let (path, text) = (root().join("docs/json.md"), page::render(&modules()?)?);
    if args.check {
        return check(&text, &path);
    }
    fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))
}

fn check(text: &str, path: &Path) -> Result<(), String> {
    let present = fs::read_to_string(path);
    match present.map_err(|error| format!("{}: {error}", path.display()))? == text {
        true => Ok(()),
        false => Err(
            "docs/json.md is not what the types in lab/results say; write it with `cargo xtask json`"
                .to_owned(),
        ),
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn modules() -> Result<Modules, String> {
    let results = root().join("lab/results/src");
    let mut files: Vec<PathBuf> = FILES
        .map(|name| results.join(name).with_extension("rs"))
        .to_vec();
    files.push(results.join("lib.rs"));
    files.push(root().join("lab/tables/src/kernbench.rs"));
    Modules::read(&files)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::Value;

    use super::types::{Content, Field, Id, Shape};
    use super::*;

    #[test]
    fn the_page_is_what_the_types_say() {
        let text = page::render(&modules().expect("read")).expect("rendered");
        assert_eq!(check(&text, &root().join("docs/json.md")), Ok(()));
    }

    #[test]
    fn every_file_of_types_is_on_the_page() {
        let files = fs::read_dir(root().join("lab/results/src")).expect("there");
        for file in files {
            let path = file.expect("readable").path();
            let name = path.file_stem().expect("a file").to_string_lossy();
            assert!(name == "lib" || FILES.contains(&&*name), "{name}.rs");
        }
    }

    /// The fields of an object, those of others that stand among them included.
    fn fields<'m>(modules: &'m Modules, id: &Id) -> Vec<&'m Field> {
        match &modules.get(id).expect("resolved").1.content {
            Content::As(other) => fields(modules, other),
            Content::Object(list) => {
                let all = list
                    .iter()
                    .map(|field| match (&field.shape, field.is_flat) {
                        (Shape::Named(other, _), true) => fields(modules, other),
                        _ => vec![field],
                    });
                all.flatten().collect()
            }
            Content::Words(_) | Content::Tagged { .. } => Vec::new(),
        }
    }

    /// What `value`, which is at `place`, has that the types do not.
    fn unknown(
        modules: &Modules,
        (shape, parameter): (&Shape, Option<&Shape>),
        value: &Value,
        place: &str,
        found: &mut BTreeSet<String>,
    ) {
        let wrong = |what: &str| format!("{place}: {what}");
        match (shape, value) {
            (Shape::Text, Value::String(_))
            | (Shape::Number, Value::Number(_) | Value::Null)
            | (Shape::Truth, Value::Bool(_))
            | (Shape::Nullable(_), Value::Null)
            | (Shape::Any, _) => {}
            (Shape::Whole, Value::Number(number)) if !number.is_f64() => {}
            (Shape::Parameter, value) => match parameter {
                Some(shape) => unknown(modules, (shape, None), value, place, found),
                None => {
                    found.insert(wrong("no parameter"));
                }
            },
            (Shape::Nullable(shape), value) => {
                unknown(modules, (shape, parameter), value, place, found);
            }
            (Shape::List(shape, length), Value::Array(values)) => {
                if length.is_some_and(|length| length != values.len()) {
                    found.insert(wrong("another length"));
                }
                for value in values {
                    unknown(
                        modules,
                        (shape, parameter),
                        value,
                        &format!("{place}[]"),
                        found,
                    );
                }
            }
            (Shape::Tuple(shapes), Value::Array(values)) if shapes.len() == values.len() => {
                for (shape, value) in shapes.iter().zip(values) {
                    unknown(
                        modules,
                        (shape, parameter),
                        value,
                        &format!("{place}[]"),
                        found,
                    );
                }
            }
            (Shape::Named(id, inner), value) => {
                named(modules, (id, inner.as_deref()), value, place, found);
            }
            _ => {
                found.insert(wrong("of another type"));
            }
        }
    }

    fn named(
        modules: &Modules,
        (id, parameter): (&Id, Option<&Shape>),
        value: &Value,
        place: &str,
        found: &mut BTreeSet<String>,
    ) {
        let wrong = |what: &str| format!("{place}: {what}");
        match (&modules.get(id).expect("resolved").1.content, value) {
            (Content::As(other), value) => named(modules, (other, parameter), value, place, found),
            (Content::Words(words), Value::String(text)) => {
                if !words.iter().any(|word| word.name == *text) {
                    found.insert(wrong(text));
                }
            }
            (
                Content::Tagged {
                    tag,
                    content,
                    words,
                },
                Value::Object(values),
            ) => {
                let word = words
                    .iter()
                    .find(|word| values.get(tag) == Some(&word.name.as_str().into()));
                match word.map(|word| (&word.content, values.get(content))) {
                    Some((None, None)) => {}
                    Some((Some(shape), Some(value))) => {
                        unknown(modules, (shape, None), value, place, found);
                    }
                    _ => {
                        found.insert(wrong("none of the words"));
                    }
                }
            }
            (Content::Object(_), Value::Object(values)) => {
                let fields = fields(modules, id);
                for (name, value) in values {
                    match fields.iter().find(|field| field.name == *name) {
                        None => {
                            found.insert(wrong(name));
                        }
                        Some(field) => {
                            let place = format!("{place}.{name}");
                            unknown(modules, (&field.shape, parameter), value, &place, found);
                        }
                    }
                }
            }
            _ => {
                found.insert(wrong("of another type"));
            }
        }
    }

    /// The types of the results that are kept for the tests of pages.
    #[test]
    fn kept_results_have_no_field_that_is_not_on_the_page() {
        let modules = modules().expect("read");
        let directory = root().join("lab/page/tests/results");
        let mut kept = 0;
        for file in fs::read_dir(directory).expect("there") {
            let path = file.expect("readable").path();
            if path.extension().is_none_or(|extension| extension != "json") {
                continue;
            }
            let text = fs::read_to_string(&path).expect("readable");
            let mut value: Value = serde_json::from_str(&text).expect("JSON");
            let object = value.as_object_mut().expect("an object");
            let schema = object.remove("schema").expect("a schema");
            object.remove("run");
            let mut kinds = modules.0.iter().flat_map(|module| {
                let types = module.types.iter();
                types.map(|(name, one)| ((module.name.clone(), name.clone()), one))
            });
            let kind = kinds.find(|(_, one)| one.schema.as_deref() == schema.as_str());
            let (id, _) = kind.unwrap_or_else(|| panic!("{schema} is not among the types"));
            let mut found = BTreeSet::new();
            named(&modules, (&id, None), &value, "", &mut found);
            assert!(found.is_empty(), "{}: {found:#?}", path.display());
            kept += 1;
        }
        assert!(kept > 10, "{kept}");
    }
}
