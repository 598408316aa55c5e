//! The list of mutants: one file of `list/` for each part of the core.

use std::fmt;
use std::path::Path;

use serde::Deserialize;

/// One defect.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mutant {
    /// Names it; unique in the list.
    pub name: String,
    /// The source file, below `vellum/src`.
    pub file: String,
    /// A text that stands once in the file; `original` is looked for behind it.
    #[serde(default)]
    pub after: Option<String>,
    /// The piece of source, an expression or statements. Without `after` it
    /// stands once in the file.
    pub original: String,
    /// What takes its place.
    pub mutated: String,
    /// What goes wrong with it.
    pub why: String,
    /// Why nothing goes wrong with it after all, if that is so.
    #[serde(default)]
    pub equivalent: Option<String>,
    /// Whether it brings back a defect that a reading of the core found. Such a one has to be
    /// found, and does not count towards the share.
    #[serde(default)]
    pub finding: bool,
}

impl fmt::Display for Mutant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} {}", self.file, self.name)?;
        write!(f, "    {}", self.why)?;
        match &self.equivalent {
            Some(reason) => write!(f, "\n    equivalent: {reason}"),
            None => Ok(()),
        }
    }
}

impl Mutant {
    /// How much `original` and `mutated` have in common at both ends that is no
    /// expression: the `if` and the brace around a condition.
    pub fn frame(&self) -> (usize, usize) {
        let both = |test: &dyn Fn(&str) -> bool| test(&self.original) && test(&self.mutated);
        let keyword = ["if ", "while "]
            .into_iter()
            .find(|keyword| both(&|text| text.starts_with(keyword) && text.ends_with(" {")));
        keyword.map_or((0, 0), |keyword| (keyword.len(), " {".len()))
    }

    /// A number that changes with everything that decides what runs.
    pub fn fingerprint(&self) -> u64 {
        let after = self.after.as_deref().unwrap_or_default();
        let parts = [&self.file, after, &self.original, &self.mutated];
        // FNV-1a: the same in every run, which std's hashers do not promise.
        let bytes = parts.iter().flat_map(|part| part.bytes().chain([0]));
        bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
        })
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    mutant: Vec<Mutant>,
}

/// Reads a list.
///
/// # Errors
/// What is wrong with it, and where.
pub fn parse(text: &str) -> Result<Vec<Mutant>, String> {
    let file: File = toml::from_str(text).map_err(|error| error.to_string())?;
    for mutant in &file.mutant {
        if mutant.original.trim().is_empty() || mutant.original == mutant.mutated {
            return Err(format!("`{}` changes nothing", mutant.name));
        }
        if mutant.original.trim_end().ends_with(',') {
            return Err(format!("`{}` takes a comma along", mutant.name));
        }
        let condition = mutant.original.trim_end().ends_with('{');
        for text in [&mutant.original, &mutant.mutated] {
            let open = text.matches('{').count();
            if open != text.matches('}').count() + usize::from(condition) {
                return Err(format!("`{}` cuts a block: take all of it", mutant.name));
            }
        }
        if condition && mutant.frame() == (0, 0) {
            return Err(format!(
                "`{}` has to stay an `if` or a `while`",
                mutant.name
            ));
        }
        let binding = mutant.original.trim_start().strip_prefix("let ");
        let is_one = mutant.original.matches(';').count() == 1;
        if is_one && binding.is_some_and(|rest| !rest.starts_with('_')) {
            let name = &mutant.name;
            return Err(format!("`{name}` replaces a `let`: take its expression"));
        }
    }
    Ok(file.mutant)
}

/// Reads all lists, in the order of their names.
///
/// # Errors
/// A file that cannot be read or parsed, a name given twice.
pub fn read(root: &Path) -> Result<Vec<Mutant>, String> {
    let folder = root.join("test/verify/mutants/list");
    let entries = std::fs::read_dir(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let mut files: Vec<_> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|end| end == "toml"))
        .collect();
    files.sort();
    let mut mutants: Vec<Mutant> = Vec::new();
    for path in files {
        let said = |error: String| format!("{}: {error}", path.display());
        let text = std::fs::read_to_string(&path).map_err(|error| said(error.to_string()))?;
        for mutant in parse(&text).map_err(said)? {
            if mutants.iter().any(|other| other.name == mutant.name) {
                return Err(said(format!("`{}` is listed twice", mutant.name)));
            }
            mutants.push(mutant);
        }
    }
    Ok(mutants)
}
