//! How large the public interface is: functions that somebody outside of the crate can call by
//! name, counted in the sources, without what the features `probe` and `published` or a cfg add.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use syn::{Attribute, ImplItem, Item, Type, UseTree, Visibility};

/// Most public methods of the manager, of any type, and public functions of all together.
const MANAGER: usize = 30;
const ANY_TYPE: usize = 45;
const ALL: usize = 500;

/// A module by its names from the crate's root on, and what is named in it.
type Place = (Vec<String>, String);

/// What the sources say.
#[derive(Default)]
struct Sources {
    /// Modules that are public where they stand.
    public_modules: BTreeSet<Vec<String>>,
    /// Items with a name, and whether they are public where they stand.
    items: BTreeMap<Place, bool>,
    /// What names that are imported stand for, and whether they are public there.
    imports: BTreeMap<Place, (Place, bool)>,
    /// Public functions that belong to no type.
    functions: BTreeSet<Place>,
    /// Public methods: the type as it is named in a module, and the method.
    methods: Vec<(Place, String)>,
}

fn is_public(visibility: &Visibility) -> bool {
    matches!(visibility, Visibility::Public(_))
}

/// Whether an item is compiled in tests, laboratories or model checkers only.
fn is_left_out(attributes: &[Attribute]) -> bool {
    let mut conditions = attributes
        .iter()
        .filter(|attribute| attribute.path().is_ident("cfg"));
    conditions.any(|condition| {
        let text = condition
            .meta
            .require_list()
            .map(|list| list.tokens.to_string());
        let text = text.unwrap_or_default();
        let is_of_laboratory = [
            "test",
            "probe",
            "published",
            "vellum_instrumented",
            "vellum_loom",
        ];
        !text.starts_with("not") && is_of_laboratory.iter().any(|name| text.contains(name))
    })
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        _ => &[],
    }
}

impl Sources {
    fn read() -> Sources {
        let mut sources = Sources::default();
        sources.public_modules.insert(Vec::new());
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        sources.file(&root.join("lib.rs"), &root, &[]);
        sources
    }

    /// Reads a file, whose modules lie in `folder`.
    fn file(&mut self, file: &Path, folder: &Path, module: &[String]) {
        let text = fs::read_to_string(file).expect("a source");
        let parsed = syn::parse_file(&text).expect("Rust");
        self.items(&parsed.items, folder, module);
    }

    fn items(&mut self, items: &[Item], folder: &Path, module: &[String]) {
        let kept = items.iter().filter(|item| !is_left_out(attributes(item)));
        for item in kept {
            let mut named = |name: &syn::Ident, visibility: &Visibility| {
                let place = (module.to_vec(), name.to_string());
                self.items.insert(place.clone(), is_public(visibility));
                place
            };
            match item {
                Item::Struct(item) => _ = named(&item.ident, &item.vis),
                Item::Enum(item) => _ = named(&item.ident, &item.vis),
                Item::Trait(item) => _ = named(&item.ident, &item.vis),
                Item::Type(item) => _ = named(&item.ident, &item.vis),
                Item::Fn(item) => {
                    let place = named(&item.sig.ident, &item.vis);
                    self.functions.insert(place);
                }
                Item::Use(item) => self.tree(&item.tree, is_public(&item.vis), &[], module),
                Item::Impl(item) if item.trait_.is_none() => self.methods(item, module),
                Item::Mod(item) => self.module(item, folder, module),
                _ => {}
            }
        }
    }

    fn module(&mut self, item: &syn::ItemMod, folder: &Path, parent: &[String]) {
        let name = item.ident.to_string();
        let module = [parent, std::slice::from_ref(&name)].concat();
        if is_public(&item.vis) {
            self.public_modules.insert(module.clone());
        }
        let inner: PathBuf = folder.join(&name);
        match &item.content {
            Some((_, items)) => self.items(items, &inner, &module),
            None => {
                let file = folder.join(format!("{name}.rs"));
                let file = match file.exists() {
                    true => file,
                    false => inner.join("mod.rs"),
                };
                self.file(&file, &inner, &module);
            }
        }
    }

    fn methods(&mut self, item: &syn::ItemImpl, module: &[String]) {
        let Type::Path(path) = &*item.self_ty else {
            return;
        };
        let of = path.path.segments.last().expect("a name").ident.to_string();
        for method in &item.items {
            if let ImplItem::Fn(method) = method
                && is_public(&method.vis)
                && !is_left_out(&method.attrs)
            {
                let name = method.sig.ident.to_string();
                self.methods.push(((module.to_vec(), of.clone()), name));
            }
        }
    }

    /// What a tree of imports that begins with `path` names in `module`.
    fn tree(&mut self, tree: &UseTree, public: bool, path: &[String], module: &[String]) {
        let with = |name: &syn::Ident| [path, &[name.to_string()]].concat();
        match tree {
            UseTree::Path(tree) => self.tree(&tree.tree, public, &with(&tree.ident), module),
            UseTree::Name(tree) => self.import(&with(&tree.ident), &tree.ident, public, module),
            UseTree::Rename(tree) => self.import(&with(&tree.ident), &tree.rename, public, module),
            UseTree::Group(group) => {
                for tree in &group.items {
                    self.tree(tree, public, path, module);
                }
            }
            UseTree::Glob(_) => assert!(!public, "a glob is exported: {path:?} in {module:?}"),
        }
    }

    fn import(&mut self, path: &[String], name: &syn::Ident, public: bool, module: &[String]) {
        let mut from = match path[0].as_str() {
            "crate" => Vec::new(),
            _ => module.to_vec(),
        };
        for step in &path[..path.len() - 1] {
            match step.as_str() {
                "crate" | "self" => {}
                "super" => _ = from.pop(),
                step => from.push(step.to_string()),
            }
        }
        let target = (from, path[path.len() - 1].clone());
        let place = (module.to_vec(), name.to_string());
        self.imports.insert(place, (target, public));
    }

    /// The item that a name stands for in a module.
    fn meant(&self, place: &Place) -> Place {
        let mut place = place;
        while let Some((target, _)) = self.imports.get(place) {
            place = target;
        }
        place.clone()
    }

    fn is_reachable(&self, module: &[String]) -> bool {
        (0..=module.len()).all(|end| self.public_modules.contains(&module[..end]))
    }

    /// Items that have a public path.
    fn exported(&self) -> BTreeSet<Place> {
        let here = |place: &Place| self.is_reachable(&place.0);
        let own = self
            .items
            .iter()
            .filter(|(place, public)| **public && here(place));
        let again = self
            .imports
            .iter()
            .filter(|(place, import)| import.1 && here(place));
        own.map(|(place, _)| place.clone())
            .chain(again.map(|(_, (target, _))| self.meant(target)))
            .collect()
    }

    /// Public functions by the type that they belong to, or by their module.
    fn interface(&self) -> BTreeMap<String, Vec<String>> {
        let exported = self.exported();
        let mut interface = BTreeMap::<String, Vec<String>>::new();
        for place in self.functions.intersection(&exported) {
            let module = interface.entry(place.0.join("::")).or_default();
            module.push(place.1.clone());
        }
        for (of, method) in &self.methods {
            let of = self.meant(of);
            if exported.contains(&of) {
                let name = [&of.0[..], std::slice::from_ref(&of.1)].concat().join("::");
                interface.entry(name).or_default().push(method.clone());
            }
        }
        interface
    }
}

#[test]
fn the_public_interface_can_be_listed_from_memory() {
    let interface = Sources::read().interface();
    let all: usize = interface.values().map(Vec::len).sum();
    // Those of a design are made by a macro.
    let all = all
        + include_str!("../src/design/tables.rs")
            .matches(", set by embedders;")
            .count();
    let manager = &interface["space::state::manager::Vm"];
    assert!(manager.len() <= MANAGER, "{}: {manager:?}", manager.len());
    for (of, methods) in &interface {
        assert!(
            methods.len() <= ANY_TYPE,
            "{of}: {}: {methods:?}",
            methods.len()
        );
    }
    assert!(all <= ALL, "{all} public functions: {interface:#?}");
    // What is counted is what there is.
    assert!(manager.contains(&"create_space".to_string()));
    assert!(interface["space::handle::space::Space"].contains(&"fault".to_string()));
}
