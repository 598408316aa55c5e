//! The published comparisons of reverse mapping schemes: kernbench and SDET of March 2003 and of
//! March 2004, beside ours, which are measured on the core ([`zero`]) or made on a simulated
//! machine ([`simulated`]).

use super::bench;
use super::judge::Change;
use super::model::{self, Section};
use super::published::{self, KERNELS_2003, KERNELS_2004, Kernbench, Kernels};
use super::task::Task;
use super::{formats, simulated, zero};
use crate::failure::Failure;

/// Changes of a published kernbench below this are taken as noise, in percent:
/// the posts give no deviation, and their author calls such changes none.
const KERNBENCH_NOISE: f64 = 1.0;

/// Changes of a throughput whose deviation was not published that are noise, in
/// percent: what SDET deviated by from 4 scripts on in 2003.
const SDET_NOISE: f64 = 1.5;

/// Designs that came later or are ours, shown beside the published four.
const LATER: &[&str] = &["anon_vma_chain"];

/// Throughput with so many scripts at once, in percent of the base, by scheme, and its deviation
/// where it was published.
pub(super) type Throughput = Vec<(f64, Option<f64>)>;

/// A published comparison.
pub(super) struct Published {
    /// The schemes, with their kernels.
    kernels: &'static Kernels,
    /// What SDET's table calls them.
    labels: &'static [&'static str],
    /// Those that are shown beside them under kernbench.
    later: &'static [&'static str],
    /// The table of a load of kernbench.
    kernbench: fn(usize) -> Vec<Kernbench>,
    /// The row of SDET of that number.
    sdet: fn(usize) -> Throughput,
}

const MARCH_2003: Published = Published {
    kernels: KERNELS_2003,
    labels: &["2.5.65-mm2", "2.5.65-mm3"],
    later: &[],
    kernbench: |load| published::KERNBENCH_2003[load].to_vec(),
    sdet: |row| {
        published::SDET_2003[row]
            .map(|(mean, sd)| (mean, Some(sd)))
            .into()
    },
};

const MARCH_2004: Published = Published {
    kernels: KERNELS_2004,
    labels: &["virgin", "partial", "hugh", "anon_vma"],
    later: LATER,
    kernbench: |load| published::KERNBENCH_2004[load].to_vec(),
    sdet: |row| published::SDET_2004[row].map(|mean| (mean, None)).into(),
};

pub(super) fn kernbench_2003(task: &Task<'_>, section: &mut Section) -> Result<(), Failure> {
    kernbench(task, section, &MARCH_2003)
}

pub(super) fn kernbench_2004(task: &Task<'_>, section: &mut Section) -> Result<(), Failure> {
    kernbench(task, section, &MARCH_2004)
}

pub(super) fn sdet_2003(task: &Task<'_>, section: &mut Section) -> Result<(), Failure> {
    sdet(task, section, &MARCH_2003)
}

pub(super) fn sdet_2004(task: &Task<'_>, section: &mut Section) -> Result<(), Failure> {
    sdet(task, section, &MARCH_2004)
}

fn kernbench(
    task: &Task<'_>,
    section: &mut Section,
    published: &'static Published,
) -> Result<(), Failure> {
    for (load, title) in published::LOADS.iter().enumerate() {
        let table = formats::kernbench(title, &(published.kernbench)(load));
        section.tables.push(("published".to_owned(), table));
    }
    let schemes = Schemes::new(section, published, published.later)?;
    match &task.setting.simulated {
        None => zero::kernbench(task, section, &schemes),
        Some(on) => simulated::kernbench(task, on, section, &schemes),
    }
}

fn sdet(
    task: &Task<'_>,
    section: &mut Section,
    published: &'static Published,
) -> Result<(), Failure> {
    let scripts = task.setting.scripts()?;
    let schemes = Schemes::new(section, published, LATER)?;
    match &task.setting.simulated {
        None => zero::sdet(task, section, &schemes, scripts),
        Some(on) => simulated::sdet(task, on, section, &schemes, &scripts),
    }
}

/// The schemes of a published comparison that this build has, and those that are shown beside
/// them.
pub(super) struct Schemes {
    published: &'static Published,
    /// Their names, the base first.
    pub names: Vec<&'static str>,
    /// Their designs.
    pub designs: Vec<String>,
}

impl Schemes {
    fn new(
        section: &mut Section,
        published: &'static Published,
        later: &[&'static str],
    ) -> Result<Schemes, Failure> {
        let names = with_later(&schemes(published.kernels), later, section);
        if names.len() < 2 {
            return Err(Failure::failed(
                "there are not two of the designs to compare",
            ));
        }
        let designs = options(&names, published.kernels);
        Ok(Schemes {
            published,
            names,
            designs,
        })
    }

    /// Sets a change of the system time under a load, of scheme `number` against the base, beside
    /// the published one.
    pub fn system_time(&self, section: &mut Section, load: usize, number: usize, ours: Change) {
        let rows = (self.published.kernbench)(load.min(2));
        let theirs = self
            .pair(number, &rows)
            .map(|(old, new)| Change::between(old.system_s, new.system_s, KERNBENCH_NOISE));
        self.compare(
            section,
            &format!("{}: System, ", loads(load)),
            number,
            theirs,
            ours,
        );
    }

    /// Sets a change of the throughput beside that of the published row. `what` is how many
    /// scripts.
    pub fn throughput(
        &self,
        section: &mut Section,
        (row, what): (usize, &str),
        number: usize,
        ours: Change,
    ) {
        let rows = (self.published.sdet)(row);
        let theirs = self.pair(number, &rows);
        let theirs = theirs.map(|((old, old_sd), (new, new_sd))| {
            let noise = match old_sd.zip(*new_sd) {
                Some((old, new)) => old.hypot(new),
                None => SDET_NOISE,
            };
            Change::between(*old, *new, noise)
        });
        self.compare(section, what, number, theirs, ours);
    }

    /// The published row of SDET, with its labels.
    pub fn published_sdet(&self, row: usize) -> Vec<(String, f64, Option<f64>)> {
        let row = (self.published.sdet)(row).into_iter();
        let row = row.zip(self.published.labels);
        row.map(|((mean, sd), label)| ((*label).to_owned(), mean, sd))
            .collect()
    }

    /// The published figures of the base and of scheme `number`, if it was published.
    fn pair<'p, T>(&self, number: usize, published: &'p [T]) -> Option<(&'p T, &'p T)> {
        let kernels = self.published.kernels;
        let place = |name: &str| kernels.iter().position(|kernel| kernel.0 == name);
        let (old, new) = (place(self.names[0])?, place(self.names[number])?);
        Some((published.get(old)?, published.get(new)?))
    }

    /// A figure of ours beside the published one, if there is one.
    fn compare(
        &self,
        section: &mut Section,
        what: &str,
        number: usize,
        published: Option<Change>,
        ours: Change,
    ) {
        let what = format!("{what}{} against {}", self.names[number], self.names[0]);
        section.comparisons.push(match published {
            Some(published) => model::of_changes(what, published, ours),
            None => model::beside(what, "-".to_owned(), ours.to_string(), "came later"),
        });
    }
}

/// The designs of a published table that this build has, in option syntax. Those
/// that it has not become rows without a figure.
pub(super) fn designs(wanted: &[&'static str], section: &mut Section) -> Vec<&'static str> {
    let (there, missing) = bench::available("rmap", wanted);
    for design in missing {
        let why = format!("this build has no rmap={design}");
        section
            .comparisons
            .push(model::missing(design, "-".to_owned(), why));
    }
    there
}

/// The schemes of a comparison, in its order.
pub(super) fn schemes(kernels: &Kernels) -> Vec<&'static str> {
    kernels.iter().map(|kernel| kernel.0).collect()
}

/// The designs of schemes: the kernel that a comparison has for one, or, for what
/// came later, the base kernel with that scheme and with trees of regions, as all later
/// kernels had them; for ours with the regions as ours has them.
pub(super) fn options(names: &[&str], kernels: &Kernels) -> Vec<String> {
    let of = |name: &&str| match kernels.iter().find(|kernel| kernel.0 == *name) {
        Some((_, kernel)) => format!("as={kernel}"),
        None => {
            let is_ours = *name == bench::default_of("rmap");
            let regions = match is_ours {
                true => bench::default_of("regions"),
                false => "tree",
            };
            format!("as={},rmap={name},regions={regions}", kernels[0].1)
        }
    };
    names.iter().map(of).collect()
}

/// The wanted designs that exist, then those of `later` and the default.
pub(super) fn with_later(
    wanted: &[&'static str],
    later: &[&'static str],
    section: &mut Section,
) -> Vec<&'static str> {
    let mut all = designs(wanted, section);
    let default = bench::default_of("rmap");
    let (later, _) = bench::available("rmap", later);
    for design in later.into_iter().chain([default]) {
        // The comparison of 2003 is of two kernels; nothing is added to it.
        if wanted.len() > 2 && !all.contains(&design) {
            all.push(design);
        }
    }
    all
}

pub(super) fn loads(load: usize) -> &'static str {
    ["2 x CPUs", "16 x CPUs", "unlimited"][load.min(2)]
}
