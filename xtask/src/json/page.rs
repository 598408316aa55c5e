//! The types as tables.

use std::fmt::Write;

use super::types::{Content, Described, Field, Id, Modules, Shape, Word};

const HEAD: &str = "# The JSON of results

<!-- Written by `cargo xtask json` from the types in lab/results: change their documentation. -->

`--json FILE` writes a result as one object, and `--json -` prints it instead of the tables. Its
first field, `schema`, is the name and version of its kind; then come the fields of the kind, and at
the end how it was made. Fields may be added under a version, but none removed or redefined. So
ignore fields that you do not know, and expect that results of older versions of the program lack
fields that were added later. Programs in Rust can use these types, which are the crate
`vellum-results`: its `Loaded::parse` reads any result. `vellum report` makes pages of results
([report.md](report.md)).

A name ends with its unit: `_ns` nanoseconds, `_us` microseconds, `_s` seconds, `_bytes`. A number
that is not defined, as a ratio to nothing, is null.
";

/// The page.
pub fn render(modules: &Modules) -> Result<String, String> {
    let mut text = HEAD.to_owned();
    text += "\n| schema | of |\n|---|---|\n";
    for module in &modules.0 {
        for (name, described) in &module.types {
            if let Some(schema) = &described.schema {
                let id = (module.name.clone(), name.clone());
                let _ = writeln!(
                    text,
                    "| [`{schema}`](#{}) | {} |",
                    anchor(&id, described),
                    cell(first_sentence(&described.doc))
                );
            }
        }
    }
    for module in modules.0.iter().filter(|module| !module.types.is_empty()) {
        let _ = write!(text, "\n## {}\n", capitalised(&module.name));
        if module.name != "lib" && !module.doc.is_empty() {
            let _ = write!(text, "\n{}\n", wrapped(&module.doc));
        }
        let is_hidden = |name: &str| is_stand_in(modules, &module.name, name);
        for (name, described) in module.types.iter().filter(|(name, _)| !is_hidden(name)) {
            let id = (module.name.clone(), name.clone());
            text += &section(modules, &id, described)?;
        }
    }
    Ok(text)
}

/// Whether a type is only how another one is written.
fn is_stand_in(modules: &Modules, module: &str, name: &str) -> bool {
    modules.0.iter().any(|other| {
        other.types.iter().any(|(_, described)| {
            matches!(&described.content, Content::As((m, n)) if m == module && n == name)
        })
    })
}

fn heading((module, name): &Id, described: &Described) -> String {
    match &described.schema {
        Some(schema) => format!("`{schema}`"),
        None => format!("{}: {name}", capitalised(module)),
    }
}

/// The name of a heading, as GitHub makes it.
fn anchor(id: &Id, described: &Described) -> String {
    crate::site::Slugs::default().next(&heading(id, described))
}

fn capitalised(name: &str) -> String {
    let mut letters = name.chars();
    let first = letters.next().into_iter().flat_map(char::to_uppercase);
    first.chain(letters).collect()
}

fn section(modules: &Modules, id: &Id, described: &Described) -> Result<String, String> {
    let mut text = format!("\n### {}\n\n", heading(id, described));
    let _ = writeln!(text, "{}", wrapped(&described.doc));
    let content = match &described.content {
        Content::As(other) => &modules.get(other)?.1.content,
        content => content,
    };
    match content {
        Content::Object(fields) => {
            text += "\n| field | is | content |\n|---|---|---|\n";
            for field in fields {
                text += &rows(modules, field)?;
            }
        }
        Content::Words(words) => text += &table_of(words),
        Content::Tagged {
            tag,
            content,
            words,
        } => {
            let _ = writeln!(
                text,
                "\nAn object: `{tag}` is one of these words, and `{content}` is what comes with it."
            );
            text += &table_of(words);
        }
        Content::As(_) => return Err(format!("{}: written as what is itself another", id.1)),
    }
    Ok(text)
}

fn table_of(words: &[Word]) -> String {
    let mut text = "\n| one of | meaning |\n|---|---|\n".to_owned();
    for word in words {
        let _ = writeln!(text, "| `{}` | {} |", word.name, cell(&word.doc));
    }
    text
}

/// A field, or those that stand in its place.
fn rows(modules: &Modules, field: &Field) -> Result<String, String> {
    let row = |name: &str, is: &str| {
        let absent = match field.may_be_absent {
            true => ", or absent",
            false => "",
        };
        format!("| {name} | {is}{absent} | {} |\n", cell(&field.doc))
    };
    match (&field.shape, field.is_flat) {
        (Shape::Parameter, true) => Ok(row("…", "the fields of the kind")),
        (Shape::Named(id, _), true) => {
            let fields = flat(modules, id)?;
            fields
                .into_iter()
                .map(|field| rows(modules, field))
                .collect()
        }
        (shape, _) => {
            let shape = match (shape, field.may_be_absent) {
                (Shape::Nullable(shape), true) => shape,
                (shape, _) => shape,
            };
            Ok(row(&format!("`{}`", field.name), &is(modules, shape)?))
        }
    }
}

fn flat<'m>(modules: &'m Modules, id: &Id) -> Result<Vec<&'m Field>, String> {
    match &modules.get(id)?.1.content {
        Content::Object(fields) => Ok(fields.iter().collect()),
        Content::As(other) => flat(modules, other),
        _ => Err(format!("{}: its words cannot stand among fields", id.1)),
    }
}

/// What a value is, in words.
fn is(modules: &Modules, shape: &Shape) -> Result<String, String> {
    Ok(match shape {
        Shape::Text => "text".to_owned(),
        Shape::Number => "number".to_owned(),
        Shape::Whole => "whole number".to_owned(),
        Shape::Truth => "true or false".to_owned(),
        Shape::Any => "object".to_owned(),
        Shape::Parameter => "value".to_owned(),
        Shape::List(shape, None) => format!("list of {}", is(modules, shape)?),
        Shape::List(shape, Some(length)) => format!("list of {length}: {}", is(modules, shape)?),
        Shape::Tuple(shapes) => {
            let each = shapes.iter().map(|shape| is(modules, shape));
            let each = each.collect::<Result<Vec<_>, _>>()?;
            format!("list of {}: {}", each.len(), each.join("; "))
        }
        Shape::Nullable(shape) => format!("{}, or null", is(modules, shape)?),
        Shape::Named(id, parameter) => {
            let (id, described) = modules.get(id)?;
            let name = match &described.schema {
                Some(schema) => format!("`{schema}`"),
                None => id.1.clone(),
            };
            let link = format!("[{name}](#{})", anchor(&id, described));
            match parameter {
                Some(shape) => format!("{link}, each {}", is(modules, shape)?),
                None => link,
            }
        }
    })
}

fn first_sentence(text: &str) -> &str {
    let first = text.split_once(". ").map_or(text, |(first, _)| first);
    first.trim_end_matches('.')
}

fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace("\n\n", " ")
}

/// A text in lines of at most 100 characters.
fn wrapped(text: &str) -> String {
    let paragraphs = text.split("\n\n").map(|paragraph| {
        let mut lines = String::new();
        let mut length = 0;
        for word in paragraph.split_whitespace() {
            let size = word.chars().count();
            if length > 0 && length + 1 + size > 100 {
                lines.push('\n');
                length = 0;
            } else if length > 0 {
                lines.push(' ');
                length += 1;
            }
            lines.push_str(word);
            length += size;
        }
        lines
    });
    paragraphs.collect::<Vec<_>>().join("\n\n")
}
