//! Checks a spec, and makes what it means of it.

use std::fmt::Debug;
use std::ops::{Range, RangeInclusive};

use toml::Spanned;
use vellum_description::Description;

use super::raw::{self, List};
use super::{Grid, Hashed, Known, Named, SlurmSettings, Source, Spec, SpecError, Traces};
use crate::cell::{Resources, Word};
use crate::files::FileId;
use crate::kind::{ALWAYS, Kind};

/// Options of commands that the sweep gives itself, or that write files beside the result.
const OWN_OPTIONS: [&str; 29] = [
    "--json",
    "--html",
    "--keep",
    "--note",
    "--db",
    "--quiet",
    "-q",
    "--seed",
    "--seeds",
    "--design",
    "--designs",
    "--a",
    "--b",
    "--on",
    "--cpus",
    "--copies",
    "--ram",
    "--scale",
    "--passes",
    "-n",
    "--window",
    "--machine",
    "--jobs",
    "--format",
    "--against",
    "--save",
    "--svg",
    "--resume",
    "--profile-out",
];

/// What Slurm is told by the sweep itself.
const OWN_SBATCH: [&str; 9] = [
    "--array",
    "-a",
    "--job-name",
    "-J",
    "--output",
    "-o",
    "--wrap",
    "--parsable",
    "--nodelist",
];

/// Most simulated CPUs, copies or passes.
const COUNTS: RangeInclusive<i64> = 1..=1_000_000;

/// Checks one spec.
pub struct Checker<'c> {
    pub source: Source<'c>,
    pub known: &'c Known<'c>,
    pub hashed: Hashed,
}

impl Checker<'_> {
    /// What the spec means.
    pub fn spec(mut self, raw: raw::File) -> Result<Spec, SpecError> {
        if raw.grid.is_empty() {
            return Err(SpecError {
                file: self.source.file.to_owned(),
                line: None,
                message: "there is no grid: expected at least one [[grid]] with a `run`".to_owned(),
            });
        }
        let stem = self.source.file.file_stem().unwrap_or_default();
        let stem = stem.to_string_lossy().into_owned();
        let results = match &raw.results {
            Some(results) => self.source.path(results.get_ref()),
            None => self.source.file.with_extension("results"),
        };
        let jobs = self.number(&raw.jobs, "jobs", 1..=1024)?;
        let slurm = self.slurm(raw.slurm)?;
        let mut grids = Vec::new();
        for grid in raw.grid {
            grids.push(self.grid(grid)?);
        }
        Ok(Spec {
            name: raw.name.map_or(stem, Spanned::into_inner),
            results,
            jobs: jobs.map(|jobs| jobs as usize),
            grids,
            slurm,
        })
    }

    fn grid(&mut self, grid: Spanned<raw::Grid>) -> Result<Grid, SpecError> {
        let span = grid.span();
        let raw = grid.into_inner();
        let names: Vec<&str> = Kind::ALL.iter().map(|kind| kind.name()).collect();
        let names = names.join(", ");
        let run = raw.run.as_ref().ok_or_else(|| {
            let message = format!("a [[grid]] without `run`: expected one of {names}");
            self.source.error(&span, message)
        })?;
        let kind = Kind::named(run.get_ref()).ok_or_else(|| {
            let message = format!("run = \"{}\": expected one of {names}", run.get_ref());
            self.source.error(&run.span(), message)
        })?;
        self.keys(kind, &raw, &span)?;
        let subjects = match kind.keys().0[0] {
            "traces" => self.traces(&raw.traces)?,
            "workloads" => self.names(&raw.workloads, "workload", self.known.workloads)?,
            _ => self.names(&raw.benchmarks, "benchmark", self.known.benchmarks)?,
        };
        let cpus = self.counts(&raw.cpus, "cpus")?;
        let machines = self.machines(&raw.machines, &cpus, &raw.cpus)?;
        let designs = self.designs(kind, &raw.designs)?;
        let ram = self.list(&raw.ram, "ram", |size| {
            (self.known.size)(size).map(|()| size.clone())
        })?;
        let scales = self.list(&raw.scales, "scales", |&scale| {
            match scale.is_finite() && scale > 0.0 {
                true => Ok(scale),
                false => Err(format!("{scale}: expected a factor above 0")),
            }
        })?;
        let seeds = self.list(&raw.seeds, "seeds", |&seed| {
            u64::try_from(seed).map_err(|_| format!("{seed}: expected a seed, 0 or more"))
        })?;
        let options = self.list_with_doubles(&raw.options, "options", |word| {
            command_word(word, &OWN_OPTIONS)
        })?;
        Ok(Grid {
            kind,
            subjects,
            machines,
            designs,
            cpus,
            copies: self.counts(&raw.copies, "copies")?,
            ram,
            scales,
            seeds: match seeds.is_empty() {
                true => vec![1],
                false => seeds,
            },
            passes: self.number(&raw.passes, "passes", 1..=1000)?,
            window: self.number(&raw.window, "window", 10..=1_000_000)?,
            options,
            resources: self.resources(&raw.memory, &raw.time)?,
        })
    }

    /// Refuses keys that are missing, or mean nothing for this kind.
    fn keys(&self, kind: Kind, raw: &raw::Grid, span: &Range<usize>) -> Result<(), SpecError> {
        let (must, may) = kind.keys();
        let given = raw.given();
        for (name, place) in &given {
            if ![&ALWAYS[..], must, may].concat().contains(name) {
                let message = format!(
                    "`{name}` means nothing with run = \"{}\": expected {}",
                    kind.name(),
                    [must, may].concat().join(", ")
                );
                return Err(self.source.error(place, message));
            }
        }
        for name in must {
            if !given.iter().any(|(given, _)| given == name) {
                let message = format!("a grid with run = \"{}\" needs `{name}`", kind.name());
                return Err(self.source.error(span, message));
            }
        }
        Ok(())
    }

    fn traces(&mut self, list: &List<String>) -> Result<Vec<Named>, SpecError> {
        let names = self.list(list, "traces", |name| Ok::<_, String>(name.clone()))?;
        let spans = list.iter().flat_map(|list| list.get_ref());
        let mut traces = Vec::new();
        for (name, span) in names.into_iter().zip(spans) {
            let path = self.source.path(&name);
            let checked = (self.known.trace)(&path);
            let file = checked.and_then(|()| self.file(&path));
            let file = file.map_err(|message| self.source.error(&span.span(), message))?;
            traces.push(Named {
                name,
                word: Word::File(file),
            });
        }
        Ok(traces)
    }

    fn file(&mut self, path: &std::path::Path) -> Result<FileId, String> {
        if let Some(file) = self.hashed.get(path) {
            return Ok(file.clone());
        }
        let file = FileId::of(path).map_err(|error| format!("{}: {error}", path.display()))?;
        self.hashed.insert(path.to_owned(), file.clone());
        Ok(file)
    }

    fn names(
        &self,
        list: &List<String>,
        what: &str,
        known: &[&str],
    ) -> Result<Vec<Named>, SpecError> {
        self.list(list, &format!("{what}s"), |name| {
            match known.contains(&name.as_str()) {
                true => Ok(Named {
                    name: name.clone(),
                    word: Word::Text(name.clone()),
                }),
                false => Err(format!(
                    "no {what} is called \"{name}\": expected one of {}",
                    known.join(", ")
                )),
            }
        })
    }

    /// Machines that have all the numbers of CPUs.
    fn machines(
        &mut self,
        list: &List<String>,
        cpus: &[u64],
        at: &List<i64>,
    ) -> Result<Vec<Named>, SpecError> {
        let names = self.list(list, "machines", |name| Ok::<_, String>(name.clone()))?;
        let spans = list.iter().flat_map(|list| list.get_ref());
        let mut machines = Vec::new();
        for (name, span) in names.into_iter().zip(spans) {
            let path = self.source.path(&name);
            let is_file = name.ends_with(".toml");
            let machine = match is_file {
                true => Description::read(&path),
                false => Description::named(&name),
            };
            let error = |message: String| self.source.error(&span.span(), message);
            let machine = machine.map_err(|found| error(found.to_string()))?;
            let has = machine.cpus() as u64;
            if let Some(place) = cpus.iter().position(|&cpus| cpus > has) {
                let spans = at.as_ref().map(|list| list.get_ref()[place].span());
                return Err(self.source.error(
                    &spans.unwrap_or_else(|| span.span()),
                    format!(
                        "{} CPUs: \"{name}\" has {has}; give machines of other sizes a grid of \
                         their own",
                        cpus[place]
                    ),
                ));
            }
            let word = match is_file {
                true => Word::File(
                    self.file(&path)
                        .map_err(|message| self.source.error(&span.span(), message))?,
                ),
                false => Word::Text(name.clone()),
            };
            machines.push(Named { name, word });
        }
        Ok(machines)
    }

    fn designs(&self, kind: Kind, list: &List<String>) -> Result<Vec<String>, SpecError> {
        let designs = self.list(list, "designs", |design| {
            (self.known.design)(design).map(|()| design.clone())
        })?;
        match (kind.compares() && designs.len() < 2, list) {
            (true, Some(list)) => Err(self.source.error(
                &list.span(),
                format!(
                    "run = \"{}\" holds designs against the first one: expected two at least",
                    kind.name()
                ),
            )),
            _ => Ok(designs),
        }
    }

    fn counts(&self, list: &List<i64>, key: &str) -> Result<Vec<u64>, SpecError> {
        self.list(list, key, |&count| match COUNTS.contains(&count) {
            true => Ok(count.unsigned_abs()),
            false => Err(format!(
                "{count}: expected {} to {}",
                COUNTS.start(),
                COUNTS.end()
            )),
        })
    }

    /// The values of a list, none of which is there twice.
    fn list<T: PartialEq + Debug, R>(
        &self,
        list: &List<T>,
        key: &str,
        check: impl Fn(&T) -> Result<R, String>,
    ) -> Result<Vec<R>, SpecError> {
        let values = list.as_ref().map_or(&[][..], |list| list.get_ref());
        for (number, value) in values.iter().enumerate() {
            let before = &values[..number];
            if before.iter().any(|one| one.get_ref() == value.get_ref()) {
                let message = format!("{:?} is twice in `{key}`", value.get_ref());
                return Err(self.source.error(&value.span(), message));
            }
        }
        self.list_with_doubles(list, key, check)
    }

    fn list_with_doubles<T, R>(
        &self,
        list: &List<T>,
        key: &str,
        check: impl Fn(&T) -> Result<R, String>,
    ) -> Result<Vec<R>, SpecError> {
        let Some(list) = list else {
            return Ok(Vec::new());
        };
        if list.get_ref().is_empty() {
            let message = format!("`{key}` is empty: expected a value, or leave it out");
            return Err(self.source.error(&list.span(), message));
        }
        let values = list.get_ref().iter().map(|value| {
            check(value.get_ref()).map_err(|message| self.source.error(&value.span(), message))
        });
        values.collect()
    }

    fn number(
        &self,
        number: &Option<Spanned<i64>>,
        key: &str,
        range: RangeInclusive<i64>,
    ) -> Result<Option<u64>, SpecError> {
        let Some(number) = number else {
            return Ok(None);
        };
        match range.contains(number.get_ref()) {
            true => Ok(Some(number.get_ref().unsigned_abs())),
            false => Err(self.source.error(
                &number.span(),
                format!(
                    "{key} = {}: expected {} to {}",
                    number.get_ref(),
                    range.start(),
                    range.end()
                ),
            )),
        }
    }

    fn resources(
        &self,
        memory: &Option<Spanned<String>>,
        time: &Option<Spanned<String>>,
    ) -> Result<Resources, SpecError> {
        let text = |value: &Option<Spanned<String>>, allowed: &str, expected: &str| {
            let Some(value) = value else {
                return Ok(None);
            };
            let text = value.get_ref();
            let is_right = |letter: char| letter.is_ascii_digit() || allowed.contains(letter);
            match text.starts_with(|letter: char| letter.is_ascii_digit())
                && text.chars().all(is_right)
            {
                true => Ok(Some(text.clone())),
                false => Err(self
                    .source
                    .error(&value.span(), format!("\"{text}\": expected {expected}"))),
            }
        };
        Ok(Resources {
            memory: text(memory, "KMGT", "a size for Slurm, as in \"4G\"")?,
            time: text(
                time,
                "-:",
                "a time for Slurm, as in \"30\" (minutes) or \"2:00:00\"",
            )?,
        })
    }

    fn slurm(&self, raw: Option<raw::Slurm>) -> Result<SlurmSettings, SpecError> {
        let Some(raw) = raw else {
            return Ok(SlurmSettings::default());
        };
        let hosts = self.list(&raw.hosts, "hosts", |host| {
            let is_right = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
            match !host.is_empty() && host.chars().all(is_right) {
                true => Ok(host.clone()),
                false => Err(format!("\"{host}\": expected the name of one node")),
            }
        })?;
        let traces = match &raw.traces {
            None => Traces::Shared,
            Some(word) => match word.get_ref().as_str() {
                "shared" => Traces::Shared,
                "copied" => Traces::Copied,
                other => {
                    let message =
                        format!("traces = \"{other}\": expected \"shared\" or \"copied\"");
                    return Err(self.source.error(&word.span(), message));
                }
            },
        };
        let options = self.list_with_doubles(&raw.options, "options", |word| {
            command_word(word, &OWN_SBATCH)
        })?;
        let default = SlurmSettings::default();
        Ok(SlurmSettings {
            hosts,
            partition: raw.partition.map(Spanned::into_inner),
            account: raw.account.map(Spanned::into_inner),
            resources: self.resources(&raw.memory, &raw.time)?,
            at_once: self.number(&raw.at_once, "at_once", 1..=100_000)?,
            traces,
            attempts: self
                .number(&raw.attempts, "attempts", 1..=100)?
                .unwrap_or(default.attempts),
            options,
        })
    }
}

/// A word of a command that does not do what the sweep does itself.
fn command_word(word: &str, own: &[&str]) -> Result<String, String> {
    let name = word.split('=').next().unwrap_or_default();
    match (own.contains(&name), word.contains('\0')) {
        (true, _) => Err(format!(
            "{name} is what the sweep says itself: leave it out"
        )),
        (_, true) => Err("a word with a zero byte".to_owned()),
        _ => Ok(word.to_owned()),
    }
}
