//! The types of results, read from their source: what is written of each, with its
//! documentation. Whatever cannot be said of a type is an error, not a gap in the page.

use std::collections::BTreeMap;
use std::path::Path;

use syn::punctuated::Punctuated;
use syn::{Attribute, Expr, Fields, Item, Lit, Meta, Token, Type, UseTree};

/// A type by the module that speaks of it and the name that it has there.
pub type Id = (String, String);

/// What a value is in JSON.
#[derive(Clone, PartialEq, Debug)]
pub enum Shape {
    /// A text.
    Text,
    /// A number.
    Number,
    /// A number without a fraction.
    Whole,
    /// `true` or `false`.
    Truth,
    /// Whatever it says.
    Any,
    /// The parameter of a generic type.
    Parameter,
    /// A list, of so many if that is fixed.
    List(Box<Shape>, Option<usize>),
    /// A list of different values.
    Tuple(Vec<Shape>),
    /// A value or null.
    Nullable(Box<Shape>),
    /// One of the types, and its parameter.
    Named(Id, Option<Box<Shape>>),
}

/// A field of an object.
#[derive(Debug)]
pub struct Field {
    /// Its name in JSON.
    pub name: String,
    /// What it is.
    pub shape: Shape,
    /// What it means.
    pub doc: String,
    /// Its fields stand in its place.
    pub is_flat: bool,
    /// It is left out where there is nothing to say.
    pub may_be_absent: bool,
}

/// One of several words, or what stands beside it in an object.
#[derive(Debug)]
pub struct Word {
    /// The word.
    pub name: String,
    /// What it means.
    pub doc: String,
    /// What comes with it.
    pub content: Option<Shape>,
}

/// What a type is in JSON.
#[derive(Debug)]
pub enum Content {
    /// An object.
    Object(Vec<Field>),
    /// One of these texts.
    Words(Vec<Word>),
    /// An object with one of these texts in the field `tag`, and what comes with it in
    /// `content`.
    Tagged {
        tag: String,
        content: String,
        words: Vec<Word>,
    },
    /// What this other type is.
    As(Id),
}

/// A type.
#[derive(Debug)]
pub struct Described {
    /// Its documentation.
    pub doc: String,
    /// What it is.
    pub content: Content,
    /// Name and version of its documents, if it is a kind of result.
    pub schema: Option<String>,
}

/// A module.
#[derive(Debug)]
pub struct Module {
    /// Its name.
    pub name: String,
    /// Its documentation.
    pub doc: String,
    /// Its types, in the order of the source.
    pub types: Vec<(String, Described)>,
    /// Names that it imports.
    uses: BTreeMap<String, Vec<String>>,
}

/// All modules.
#[derive(Debug)]
pub struct Modules(pub Vec<Module>);

impl Modules {
    /// Reads those files, each a module called as the file.
    ///
    /// # Errors
    /// A file cannot be read, or has a type of which nothing can be said.
    pub fn read(files: &[impl AsRef<Path>]) -> Result<Modules, String> {
        let modules = files.iter().map(|path| {
            let path = path.as_ref();
            let failed = |error: String| format!("{}: {error}", path.display());
            let text = std::fs::read_to_string(path).map_err(|error| failed(error.to_string()))?;
            let file = syn::parse_file(&text).map_err(|error| failed(error.to_string()))?;
            let name = path.file_stem().unwrap_or_default();
            module(&name.to_string_lossy(), &file).map_err(failed)
        });
        Ok(Modules(modules.collect::<Result<_, _>>()?))
    }

    /// The type that a module calls by a name, and where it is.
    ///
    /// # Errors
    /// There is none.
    pub fn get(&self, (module, name): &Id) -> Result<(Id, &Described), String> {
        let missing = || format!("{module}: there is no type `{name}`");
        let home = self.0.iter().find(|one| one.name == *module);
        let home = home.ok_or_else(missing)?;
        if let Some((name, found)) = home.types.iter().find(|(other, _)| other == name) {
            return Ok(((module.clone(), name.clone()), found));
        }
        let (module, name) = match home.uses.get(name).map(Vec::as_slice) {
            Some([root, name]) if ["crate", "super"].contains(&root.as_str()) => ("lib", name),
            Some([.., module, name]) => (module.as_str(), name),
            _ => return Err(missing()),
        };
        self.get(&(module.to_owned(), name.clone()))
    }
}

fn module(name: &str, file: &syn::File) -> Result<Module, String> {
    let mut module = Module {
        name: name.to_owned(),
        doc: doc(&file.attrs),
        types: Vec::new(),
        uses: BTreeMap::new(),
    };
    let mut schemas = BTreeMap::new();
    for item in &file.items {
        match item {
            Item::Use(item) => uses(&item.tree, &mut Vec::new(), &mut module.uses),
            Item::Struct(item) if derives(&item.attrs) => {
                let described =
                    object(item, name).map_err(|error| format!("{}: {error}", item.ident))?;
                module.types.push((item.ident.to_string(), described));
            }
            Item::Enum(item) if derives(&item.attrs) => {
                let described =
                    words(item, name).map_err(|error| format!("{}: {error}", item.ident))?;
                module.types.push((item.ident.to_string(), described));
            }
            Item::Impl(item) => schemas.extend(schema(item)),
            _ => {}
        }
    }
    for (name, described) in &mut module.types {
        described.schema = schemas.remove(name);
    }
    Ok(module)
}

/// The types that are written.
fn derives(attributes: &[Attribute]) -> bool {
    let mut lists = attributes
        .iter()
        .filter_map(|attribute| match &attribute.meta {
            Meta::List(list) => Some(list.tokens.to_string()),
            _ => None,
        });
    lists.any(|list| list.contains("Serialize"))
}

/// The documentation, in one line for each paragraph.
fn doc(attributes: &[Attribute]) -> String {
    let lines = attributes
        .iter()
        .filter_map(|attribute| match &attribute.meta {
            Meta::NameValue(pair) if pair.path.is_ident("doc") => match &pair.value {
                Expr::Lit(literal) => match &literal.lit {
                    Lit::Str(text) => Some(text.value().trim().to_owned()),
                    _ => None,
                },
                _ => None,
            },
            _ => None,
        });
    let paragraphs = lines.collect::<Vec<_>>().join("\n");
    let paragraphs = paragraphs.split("\n\n").map(|text| text.replace('\n', " "));
    let text = paragraphs.collect::<Vec<_>>().join("\n\n");
    text.replace("[`", "`").replace("`]", "`")
}

/// What `#[serde(…)]` says.
#[derive(Default)]
struct Serde {
    options: BTreeMap<String, String>,
}

impl Serde {
    fn of(attributes: &[Attribute]) -> Result<Serde, String> {
        let mut serde = Serde::default();
        for attribute in attributes.iter().filter(|one| one.path().is_ident("serde")) {
            let list = attribute.parse_args_with(Punctuated::<Meta, Token![,]>::parse_terminated);
            for meta in list.map_err(|error| error.to_string())? {
                let (path, value) = match &meta {
                    Meta::Path(path) => (path, String::new()),
                    Meta::NameValue(pair) => (&pair.path, text(&pair.value)?),
                    Meta::List(_) => return Err("serde(…(…)) is not known here".to_owned()),
                };
                let name = path
                    .get_ident()
                    .map(ToString::to_string)
                    .unwrap_or_default();
                const KNOWN: [&str; 11] = [
                    "default",
                    "flatten",
                    "into",
                    "try_from",
                    "rename",
                    "rename_all",
                    "tag",
                    "content",
                    "with",
                    "deserialize_with",
                    "skip_serializing_if",
                ];
                if !KNOWN.contains(&name.as_str()) {
                    return Err(format!("serde({name}) is not known here"));
                }
                serde.options.insert(name, value);
            }
        }
        Ok(serde)
    }

    fn get(&self, name: &str) -> Option<&str> {
        self.options.get(name).map(String::as_str)
    }

    fn renamed(&self, variant: &str, all: Option<&str>) -> Result<String, String> {
        let separated = |by: char| {
            let mut name = String::new();
            for letter in variant.chars() {
                if letter.is_uppercase() && !name.is_empty() {
                    name.push(by);
                }
                name.extend(letter.to_lowercase());
            }
            name
        };
        Ok(match (self.get("rename"), all) {
            (Some(name), _) => name.to_owned(),
            (None, Some("kebab-case")) => separated('-'),
            (None, Some("snake_case")) => separated('_'),
            (None, Some("lowercase")) => variant.to_lowercase(),
            (None, None) => variant.to_owned(),
            (None, Some(other)) => return Err(format!("rename_all = {other} is not known here")),
        })
    }
}

fn text(value: &Expr) -> Result<String, String> {
    match value {
        Expr::Lit(literal) => match &literal.lit {
            Lit::Str(text) => Ok(text.value()),
            _ => Err("expected a text".to_owned()),
        },
        _ => Err("expected a text".to_owned()),
    }
}

fn object(item: &syn::ItemStruct, module: &str) -> Result<Described, String> {
    let serde = Serde::of(&item.attrs)?;
    let content = match serde.get("into") {
        Some(other) => Content::As((module.to_owned(), other.to_owned())),
        None => {
            let Fields::Named(fields) = &item.fields else {
                return Err("expected named fields".to_owned());
            };
            let parameters: Vec<String> = item
                .generics
                .type_params()
                .map(|parameter| parameter.ident.to_string())
                .collect();
            let fields = fields
                .named
                .iter()
                .map(|one| field(one, (module, &parameters)));
            Content::Object(fields.collect::<Result<_, _>>()?)
        }
    };
    Ok(Described {
        doc: doc(&item.attrs),
        content,
        schema: None,
    })
}

fn field(field: &syn::Field, context: Context<'_>) -> Result<Field, String> {
    let name = field.ident.as_ref().map(ToString::to_string);
    let name = name.unwrap_or_default();
    let serde = Serde::of(&field.attrs)?;
    Ok(Field {
        shape: match serde.get("with") {
            Some(_) => Shape::Text,
            None => shape(&field.ty, context).map_err(|error| format!("{name}: {error}"))?,
        },
        doc: doc(&field.attrs),
        is_flat: serde.get("flatten").is_some(),
        may_be_absent: serde.get("skip_serializing_if").is_some(),
        name,
    })
}

fn words(item: &syn::ItemEnum, module: &str) -> Result<Described, String> {
    let serde = Serde::of(&item.attrs)?;
    let word = |variant: &syn::Variant| {
        let own = Serde::of(&variant.attrs)?;
        Ok(Word {
            name: own.renamed(&variant.ident.to_string(), serde.get("rename_all"))?,
            doc: doc(&variant.attrs),
            content: match &variant.fields {
                Fields::Unit => None,
                Fields::Unnamed(fields) if fields.unnamed.len() == 1 => {
                    Some(shape(&fields.unnamed[0].ty, (module, &[]))?)
                }
                _ => return Err("expected one value at most".to_owned()),
            },
        })
    };
    let content = match (serde.get("into"), serde.get("tag"), serde.get("content")) {
        (Some(other), ..) => Content::As((module.to_owned(), other.to_owned())),
        (None, tag, content) => {
            let words: Vec<Word> = item
                .variants
                .iter()
                .map(word)
                .collect::<Result<_, String>>()?;
            match (tag, content) {
                (Some(tag), Some(content)) => Content::Tagged {
                    tag: tag.to_owned(),
                    content: content.to_owned(),
                    words,
                },
                (None, None) if words.iter().all(|word| word.content.is_none()) => {
                    Content::Words(words)
                }
                _ => return Err("variants with values need a tag and a content".to_owned()),
            }
        }
    };
    Ok(Described {
        doc: doc(&item.attrs),
        content,
        schema: None,
    })
}

/// The module in which a type is written, and the parameters of the type around it.
type Context<'c> = (&'c str, &'c [String]);

fn shape(kind: &Type, context: Context<'_>) -> Result<Shape, String> {
    let (module, parameters) = context;
    let inner = |kind| shape(kind, context).map(Box::new);
    match kind {
        Type::Array(array) => {
            let Expr::Lit(length) = &array.len else {
                return Err("expected a length in digits".to_owned());
            };
            let Lit::Int(length) = &length.lit else {
                return Err("expected a length in digits".to_owned());
            };
            let length = length.base10_parse().map_err(|error| error.to_string())?;
            Ok(Shape::List(inner(&array.elem)?, Some(length)))
        }
        Type::Tuple(tuple) => {
            let shapes = tuple.elems.iter().map(|kind| shape(kind, context));
            Ok(Shape::Tuple(shapes.collect::<Result<_, _>>()?))
        }
        Type::Path(path) => {
            let Some(last) = path.path.segments.last() else {
                return Err("a type without a name".to_owned());
            };
            let arguments: Vec<&Type> = match &last.arguments {
                syn::PathArguments::AngleBracketed(list) => {
                    let types = list.args.iter().filter_map(|argument| match argument {
                        syn::GenericArgument::Type(kind) => Some(kind),
                        _ => None,
                    });
                    types.collect()
                }
                _ => Vec::new(),
            };
            let name = last.ident.to_string();
            Ok(match (name.as_str(), arguments.as_slice()) {
                ("String" | "str", []) => Shape::Text,
                ("bool", []) => Shape::Truth,
                ("f64", []) => Shape::Number,
                ("u8" | "u32" | "u64" | "usize" | "i64" | "i128", []) => Shape::Whole,
                ("Map", [_, _]) => Shape::Any,
                ("Vec", [kind]) => Shape::List(inner(kind)?, None),
                ("Option", [kind]) => Shape::Nullable(inner(kind)?),
                (_, []) if parameters.contains(&name) => Shape::Parameter,
                (_, []) => Shape::Named((module.to_owned(), name), None),
                (_, [kind]) => Shape::Named((module.to_owned(), name), Some(inner(kind)?)),
                _ => return Err(format!("`{name}` is not known here")),
            })
        }
        Type::Reference(reference) => shape(&reference.elem, context),
        _ => Err("this type is not known here".to_owned()),
    }
}

/// The name of a type and the schema that it has as a kind of result.
fn schema(item: &syn::ItemImpl) -> Option<(String, String)> {
    let (of, _) = item.trait_.as_ref()?;
    let Type::Path(path) = item.self_ty.as_ref() else {
        return None;
    };
    let name = path.path.segments.last()?.ident.to_string();
    let is_kind = of.segments.last()?.ident == "Kind";
    item.items
        .iter()
        .filter(|_| is_kind)
        .find_map(|one| match one {
            syn::ImplItem::Const(constant) => Some((name.clone(), text(&constant.expr).ok()?)),
            _ => None,
        })
}

/// What a `use` brings, by the name that it has here.
fn uses(tree: &UseTree, path: &mut Vec<String>, found: &mut BTreeMap<String, Vec<String>>) {
    match tree {
        UseTree::Path(part) => {
            path.push(part.ident.to_string());
            uses(&part.tree, path, found);
            path.pop();
        }
        UseTree::Name(name) => {
            let whole = path.iter().cloned().chain([name.ident.to_string()]);
            found.insert(name.ident.to_string(), whole.collect());
        }
        UseTree::Rename(rename) => {
            let whole = path.iter().cloned().chain([rename.ident.to_string()]);
            found.insert(rename.rename.to_string(), whole.collect());
        }
        UseTree::Group(group) => group.items.iter().for_each(|tree| uses(tree, path, found)),
        UseTree::Glob(_) => {}
    }
}
