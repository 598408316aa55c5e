//! From grids to cells.

use std::collections::BTreeSet;

use vellum_results::sweep::Place;

use crate::cell::{Cell, HostId, Word};
use crate::kind::Kind;
use crate::spec::{Grid, Named, Spec};

/// The cells of all grids, in the order of the spec, each once. A timed cell is there for
/// each of `hosts`.
pub fn cells(spec: &Spec, program: &str, hosts: &[HostId]) -> Vec<Cell> {
    let mut seen = BTreeSet::new();
    let mut cells = Vec::new();
    for grid in &spec.grids {
        for cell in of_grid(grid, program, hosts) {
            if seen.insert(cell.key()) {
                cells.push(cell);
            }
        }
    }
    cells
}

/// Whether any cell is timed.
pub fn is_timed(spec: &Spec) -> bool {
    spec.grids.iter().any(|grid| grid.kind.is_timed())
}

/// The values of an axis, or none where the grid leaves it out.
fn axis<T: Clone>(values: &[T]) -> Vec<Option<T>> {
    match values.is_empty() {
        true => vec![None],
        false => values.iter().cloned().map(Some).collect(),
    }
}

/// A place in the grid with what the command is given for it.
#[derive(Clone)]
struct Point {
    place: Place,
    subject: Word,
    machine: Option<Word>,
}

/// Each of `points` with each of `values`.
fn times<V>(points: Vec<Point>, values: &[V], set: impl Fn(&mut Point, &V)) -> Vec<Point> {
    let mut all = Vec::with_capacity(points.len() * values.len());
    for point in points {
        for value in values {
            let mut point = point.clone();
            set(&mut point, value);
            all.push(point);
        }
    }
    all
}

fn of_grid(grid: &Grid, program: &str, hosts: &[HostId]) -> Vec<Cell> {
    let hosts: Vec<Option<HostId>> = match grid.kind.is_timed() {
        true => hosts.iter().cloned().map(Some).collect(),
        false => vec![None],
    };
    let mut cells = Vec::new();
    for point in points(grid) {
        for host in &hosts {
            for &seed in &grid.seeds {
                cells.push(Cell {
                    seed,
                    timed: grid.kind.is_timed(),
                    threads: threads(grid.kind, &point.place),
                    resources: grid.resources.clone(),
                    words: words(grid, &point, seed),
                    program: program.to_owned(),
                    host: host.clone(),
                    place: point.place.clone(),
                });
            }
        }
    }
    cells
}

fn points(grid: &Grid) -> Vec<Point> {
    let start = |subject: &Named| Point {
        place: Place {
            run: grid.kind.name().to_owned(),
            subject: subject.name.clone(),
            ..Place::default()
        },
        subject: subject.word.clone(),
        machine: None,
    };
    let (base, designs) = match (grid.kind.compares(), grid.designs.split_first()) {
        (true, Some((base, others))) => (Some(base.clone()), axis(others)),
        _ => (None, axis(&grid.designs)),
    };
    let points: Vec<Point> = grid.subjects.iter().map(start).collect();
    let points = times(points, &axis(&grid.machines), |point, machine| {
        point.place.machine = machine.as_ref().map(|named| named.name.clone());
        point.machine = machine.as_ref().map(|named| named.word.clone());
    });
    let points = times(points, &axis(&grid.cpus), |point, &cpus| {
        point.place.cpus = cpus;
    });
    let points = times(points, &axis(&grid.copies), |point, &copies| {
        point.place.copies = copies;
    });
    let points = times(points, &axis(&grid.ram), |point, ram| {
        point.place.ram.clone_from(ram);
    });
    let points = times(points, &axis(&grid.scales), |point, &scale| {
        point.place.scale = scale;
    });
    times(points, &designs, |point, design| {
        point.place.base.clone_from(&base);
        point.place.design.clone_from(design);
    })
}

/// Threads of the host that a cell keeps busy: simulations take one.
fn threads(kind: Kind, place: &Place) -> u64 {
    match kind {
        Kind::Simulate | Kind::Scale => 1,
        _ => place.cpus.unwrap_or(1),
    }
}

/// The arguments of `vellum`.
fn words(grid: &Grid, point: &Point, seed: u64) -> Vec<Word> {
    let text = |text: &str| Word::Text(text.to_owned());
    let place = &point.place;
    let command: &[&str] = match grid.kind {
        Kind::Compare => &["compare"],
        Kind::Scale => &["scale"],
        Kind::Bench => &["bench"],
        Kind::Verify | Kind::Replay | Kind::Simulate | Kind::Linux => &["replay"],
    };
    let more: &[&str] = match grid.kind {
        Kind::Verify => &["--verify", "--audit"],
        Kind::Simulate => &["--on", "sim", "--seeds", "1", "--jobs", "1"],
        Kind::Scale => &["--seeds", "1", "--jobs", "1"],
        Kind::Linux => &["--on", "linux"],
        Kind::Replay | Kind::Compare | Kind::Bench => &[],
    };
    let mut words: Vec<Word> = command.iter().map(|word| text(word)).collect();
    words.push(point.subject.clone());
    words.extend(more.iter().map(|word| text(word)));
    let design = match grid.kind {
        Kind::Compare | Kind::Bench => "--b",
        Kind::Scale => "--designs",
        _ => "--design",
    };
    let number = |number: Option<u64>| number.map(|number| number.to_string());
    let options = [
        ("--a", place.base.clone()),
        (design, place.design.clone()),
        ("--cpus", number(place.cpus)),
        ("--copies", number(place.copies)),
        ("--ram", place.ram.clone()),
        ("--scale", place.scale.map(|scale| scale.to_string())),
        ("--passes", number(grid.passes)),
        ("--window", number(grid.window)),
        ("--seed", Some(seed.to_string())),
    ];
    if let Some(machine) = &point.machine {
        words.extend([text("--machine"), machine.clone()]);
    }
    for (name, value) in options {
        if let Some(value) = value {
            // In one word, so that a value that begins with a dash is one.
            words.push(Word::Text(format!("{name}={value}")));
        }
    }
    words.extend(grid.options.iter().map(|word| text(word)));
    words.extend(["--quiet", "--json=-"].map(text));
    words
}
