//! A copy of the working tree with every mutant in it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};

use crate::list::Mutant;

/// Where the copy is, and what belongs to it.
pub struct Place {
    /// The working tree.
    pub root: PathBuf,
    /// The copy.
    pub tree: PathBuf,
    /// What cargo builds of it.
    pub build: PathBuf,
    /// What is remembered from run to run.
    pub notes: PathBuf,
}

impl Place {
    /// Everything below `scratch`.
    pub fn new(root: &Path, scratch: &Path) -> Place {
        Place {
            root: root.to_owned(),
            tree: scratch.join("tree"),
            build: scratch.join("build"),
            notes: scratch.to_owned(),
        }
    }
}

/// The numbers of mutants by their names: what `mutants::is` is asked for.
pub type Places = BTreeMap<String, usize>;

/// The one place of `needle` in `text` from `from` on.
fn only(text: &str, needle: &str, from: usize) -> Result<usize, &'static str> {
    let first = text[from..].find(needle).ok_or("is not in the file")? + from;
    if text[first + 1..].contains(needle) {
        return Err("is in the file more than once");
    }
    Ok(first)
}

/// Where the mutant's original text is.
///
/// # Errors
/// Which text is missing or not unique.
pub fn find(text: &str, mutant: &Mutant) -> Result<Range<usize>, String> {
    let said = |what: &str, why: &str| {
        format!(
            "mutant `{}` of {}: its {what} {why}",
            mutant.name, mutant.file
        )
    };
    let start = match &mutant.after {
        None => only(text, &mutant.original, 0).map_err(|why| said("original text", why))?,
        Some(after) => {
            let anchor = only(text, after, 0).map_err(|why| said("`after`", why))?;
            let behind = text[anchor..].find(&mutant.original);
            behind.ok_or_else(|| said("original text", "does not follow its `after`"))? + anchor
        }
    };
    if text[..start].ends_with('.') && !mutant.original.starts_with('.') {
        return Err(said(
            "original text",
            "begins behind a dot: take what is before it",
        ));
    }
    let (head, tail) = mutant.frame();
    Ok(start + head..start + mutant.original.len() - tail)
}

fn by_file(mutants: &[Mutant]) -> BTreeMap<&str, Vec<(usize, &Mutant)>> {
    let mut files: BTreeMap<&str, Vec<(usize, &Mutant)>> = BTreeMap::new();
    for (number, mutant) in mutants.iter().enumerate() {
        files
            .entry(&mutant.file)
            .or_default()
            .push((number, mutant));
    }
    files
}

fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}

/// Checks that every mutant fits the sources, and that they are still Rust with it.
///
/// # Errors
/// All that do not.
pub fn check(root: &Path, mutants: &[Mutant]) -> Result<(), String> {
    let mut wrong = Vec::new();
    for (file, mutants) in by_file(mutants) {
        let result =
            read(&root.join("vellum/src").join(file)).and_then(|text| parses(&text, &mutants));
        wrong.extend(result.err());
    }
    if wrong.is_empty() {
        Ok(())
    } else {
        Err(wrong.join("\n"))
    }
}

/// Checks that the text is Rust with the mutants. Building a copy that is not takes minutes,
/// and then does not name the mutant.
///
/// # Errors
/// Which mutants make it something else.
pub fn parses(text: &str, mutants: &[(usize, &Mutant)]) -> Result<(), String> {
    if syn::parse_file(&rewrite(text, mutants)?).is_ok() {
        return Ok(());
    }
    let mut wrong = Vec::new();
    for mutant in mutants {
        if let Err(error) = syn::parse_file(&rewrite(text, &[*mutant])?) {
            let Mutant { name, file, .. } = mutant.1;
            wrong.push(format!(
                "mutant `{name}` of {file}: with it the file is no Rust: {error}"
            ));
        }
    }
    match wrong.is_empty() {
        true => Err("files with several mutants are no Rust, with each of them they are".into()),
        false => Err(wrong.join("\n")),
    }
}

/// A piece of source that mutants replace as a whole, and pieces within it
/// that others do.
struct Piece<'a> {
    range: Range<usize>,
    mutants: Vec<(usize, &'a Mutant)>,
    within: Vec<Piece<'a>>,
}

fn insert<'a>(
    pieces: &mut Vec<Piece<'a>>,
    range: Range<usize>,
    mutant: (usize, &'a Mutant),
) -> Result<(), String> {
    if let Some(piece) = pieces.iter_mut().find(|piece| piece.range == range) {
        piece.mutants.push(mutant);
        return Ok(());
    }
    let holds =
        |piece: &&mut Piece<'_>| piece.range.start <= range.start && range.end <= piece.range.end;
    if let Some(piece) = pieces.iter_mut().find(holds) {
        return insert(&mut piece.within, range, mutant);
    }
    let cuts = |piece: &&Piece<'_>| piece.range.start < range.end && range.start < piece.range.end;
    if let Some(piece) = pieces.iter().find(cuts) {
        let (name, other) = (&mutant.1.name, &piece.mutants[0].1.name);
        return Err(format!("mutants `{name}` and `{other}` overlap"));
    }
    pieces.push(Piece {
        range,
        mutants: vec![mutant],
        within: Vec::new(),
    });
    Ok(())
}

/// The text with each mutant beside its original.
///
/// # Errors
/// A mutant whose place is not found, or that overlaps with another.
pub fn rewrite(text: &str, mutants: &[(usize, &Mutant)]) -> Result<String, String> {
    let mut ranges = Vec::new();
    let mut wrong = Vec::new();
    for &(number, mutant) in mutants {
        match find(text, mutant) {
            Ok(range) => ranges.push((range, number, mutant)),
            Err(error) => wrong.push(error),
        }
    }
    if !wrong.is_empty() {
        return Err(wrong.join("\n"));
    }
    // Larger pieces before those within them.
    ranges.sort_by_key(|(range, number, _)| (std::cmp::Reverse(range.len()), *number));
    let mut pieces = Vec::new();
    for (range, number, mutant) in ranges {
        insert(&mut pieces, range, (number, mutant))?;
    }
    let mut out = String::new();
    render(text, 0..text.len(), pieces, &mut out);
    Ok(out)
}

fn render(text: &str, range: Range<usize>, mut pieces: Vec<Piece<'_>>, out: &mut String) {
    pieces.sort_by_key(|piece| piece.range.start);
    let mut at = range.start;
    for piece in pieces {
        out.push_str(&text[at..piece.range.start]);
        at = piece.range.end;
        let original = text[piece.range.clone()].trim_end();
        // Within an expression the choice needs parentheses; as a statement it
        // must not have them.
        let is_statement = original.ends_with([';', '}']);
        out.push_str(if is_statement { "" } else { "(" });
        for (number, mutant) in &piece.mutants {
            let (head, tail) = mutant.frame();
            let mutated = &mutant.mutated[head..mutant.mutated.len() - tail];
            let _ = write!(
                out,
                "if crate::mutants::is({number}) {{\n{mutated}\n}} else "
            );
        }
        out.push_str("{\n");
        render(text, piece.range, piece.within, out);
        out.push_str(if is_statement { "\n}" } else { "\n})" });
    }
    out.push_str(&text[at..range.end]);
}

/// What each copy of the core gets to know which mutant it runs with.
const MODULE: &str = include_str!("chosen.rs");

/// Makes the copy, or brings it up to date. Files that stay as they are keep
/// their times, so that cargo builds no more than it has to.
///
/// # Errors
/// What could not be read, written or rewritten.
pub fn write(place: &Place, mutants: &[Mutant]) -> Result<Places, String> {
    let files = by_file(mutants);
    let mut copied = Vec::new();
    list_files(&place.root, Path::new(""), &mut copied)?;
    for file in &copied {
        let source = place.root.join(file);
        let target = place.tree.join(file);
        let mut bytes = fs::read(&source).map_err(|e| format!("{}: {e}", source.display()))?;
        let core = file.strip_prefix("vellum/src").ok().and_then(Path::to_str);
        if let Some(mutants) = core.and_then(|file| files.get(file)) {
            let text = String::from_utf8(bytes).map_err(|error| error.to_string())?;
            bytes = rewrite(&text, mutants)?.into_bytes();
        }
        let is_top = ["vellum/src/lib.rs", "test/verify/loom/src/lib.rs"].map(Path::new);
        if is_top.contains(&file.as_path()) {
            bytes.extend(MODULE.bytes());
        }
        write_if_changed(&target, &bytes)?;
    }
    remove_others(&place.tree, Path::new(""), &copied)?;
    let numbered = mutants.iter().enumerate();
    Ok(numbered
        .map(|(number, mutant)| (mutant.name.clone(), number))
        .collect())
}

fn write_if_changed(target: &Path, bytes: &[u8]) -> Result<(), String> {
    if fs::read(target).is_ok_and(|old| old == bytes) {
        return Ok(());
    }
    let folder = target.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(folder)
        .and_then(|()| fs::write(target, bytes))
        .map_err(|error| format!("{}: {error}", target.display()))
}

/// Folders that no test program is built from.
const LEFT_OUT: [&str; 6] = ["target", "traces", "docs", "peers", "fuzz", ".git"];

fn list_files(top: &Path, below: &Path, found: &mut Vec<PathBuf>) -> Result<(), String> {
    let folder = top.join(below);
    let said = |error: std::io::Error| format!("{}: {error}", folder.display());
    for entry in fs::read_dir(&folder).map_err(said)? {
        let entry = entry.map_err(said)?;
        let name = entry.file_name();
        let is_left_out = LEFT_OUT.iter().any(|left_out| *left_out == name)
            && (below == Path::new("") || name == "target");
        if is_left_out {
            continue;
        }
        let path = below.join(&name);
        // Also through a link: the copy has the files themselves.
        if top.join(&path).is_dir() {
            list_files(top, &path, found)?;
        } else {
            found.push(path);
        }
    }
    Ok(())
}

/// Removes from the copy what the working tree has no more.
fn remove_others(top: &Path, below: &Path, kept: &[PathBuf]) -> Result<(), String> {
    let mut all = Vec::new();
    list_files(top, below, &mut all)?;
    let kept: std::collections::HashSet<&PathBuf> = kept.iter().collect();
    for file in all.iter().filter(|file| !kept.contains(file)) {
        let path = top.join(file);
        fs::remove_file(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    Ok(())
}
