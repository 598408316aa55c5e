//! `vellum machines`: descriptions of machines that can be simulated.

use std::io::{self, Write};

use clap::Args;
use clap::builder::ValueHint;
use vellum_description::{Basis, Description, DescriptionError, Figure, SHIPPED};

use super::Failure;
use vellum_terminal::table::Table;
use vellum_terminal::text::plural;

const EXAMPLES: &str = "\
A description says what a machine consists of and what everything costs there, each figure with its
source: somebody measured it, a publication states it, it follows from others, or it is assumed.
docs/many-cpus.md says what each key means.

To describe a machine of your own, run `vellum calibrate` on it, or copy the description that is
nearest to it (--toml) and change what differs. A name that ends in .toml is a file, which is checked.

Examples:
  vellum machines
  vellum machines epyc-milan-2s
  vellum machines epyc-milan-2s --toml > mine.toml
  vellum machines mine.toml
  vellum machines --json | jq '.machines[] | select(.cpus >= 128).name'";

/// List the machines that can be simulated, or show and check one description
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct MachinesArgs {
    /// Show this machine: a name from the list, or a file that ends in .toml
    #[arg(value_name = "MACHINE", value_hint = ValueHint::FilePath)]
    machine: Option<String>,

    /// Print JSON: `machines`, an array of objects with name, title, cpus, cores, nodes and the
    /// number of figures by what they rest on; of one machine also `figures`
    #[arg(long)]
    json: bool,

    /// Print the machine's description as the text of a file
    #[arg(long, requires = "machine", conflicts_with = "json")]
    toml: bool,
}

#[derive(serde::Serialize)]
struct List<'m> {
    machines: Vec<Entry<'m>>,
}

#[derive(serde::Serialize)]
struct Entry<'m> {
    name: &'m str,
    title: &'m str,
    notes: &'m str,
    cpus: usize,
    cores: usize,
    nodes: usize,
    measured: usize,
    stated: usize,
    derived: usize,
    assumed: usize,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    figures: Vec<Priced<'m>>,
}

#[derive(serde::Serialize)]
struct Priced<'m> {
    key: String,
    value: f64,
    unit: &'static str,
    source: &'m str,
}

/// Prints the list, or one machine.
pub fn run(args: MachinesArgs) -> Result<(), Failure> {
    let text = match &args.machine {
        None => {
            let named = SHIPPED
                .iter()
                .map(|shipped| Ok((shipped.name, Description::named(shipped.name)?)))
                .collect::<Result<Vec<_>, DescriptionError>>()?;
            let entries = named.iter().map(|(name, machine)| entry(name, machine));
            match args.json {
                true => json(entries.collect())?,
                false => table(entries),
            }
        }
        Some(name) => {
            let machine =
                Description::named(name).map_err(|error| Failure::usage(error.to_string()))?;
            match (args.json, args.toml) {
                (true, _) => {
                    let figures = machine.figures().into_iter().map(priced).collect();
                    json(vec![Entry {
                        figures,
                        ..entry(name, &machine)
                    }])?
                }
                (_, true) => machine.to_string(),
                _ => shown(name, &machine),
            }
        }
    };
    io::stdout().lock().write_all(text.as_bytes())?;
    Ok(())
}

fn entry<'m>(name: &'m str, machine: &'m Description) -> Entry<'m> {
    let [measured, stated, derived, assumed] = machine.bases();
    Entry {
        name,
        title: &machine.title,
        notes: machine.notes.trim(),
        cpus: machine.cpus(),
        cores: machine.cores(),
        nodes: machine.nodes(),
        measured,
        stated,
        derived,
        assumed,
        figures: Vec::new(),
    }
}

fn priced<'m>((key, figure): (String, &'m dyn Figure)) -> Priced<'m> {
    Priced {
        key,
        value: figure.value(),
        unit: figure.unit(),
        source: figure.source(),
    }
}

fn json(machines: Vec<Entry<'_>>) -> serde_json::Result<String> {
    serde_json::to_string_pretty(&List { machines }).map(|text| text + "\n")
}

/// The figures by what they rest on, as in "10 measured, 5 assumed".
fn rests_on(entry: &Entry<'_>) -> String {
    let counts = [entry.measured, entry.stated, entry.derived, entry.assumed];
    let told = Basis::ALL
        .iter()
        .zip(counts)
        .filter(|(_, count)| *count > 0);
    let told: Vec<String> = told
        .map(|(basis, count)| format!("{count} {}", basis.word()))
        .collect();
    told.join(", ")
}

fn table<'m>(entries: impl Iterator<Item = Entry<'m>>) -> String {
    let mut table = Table::new(&["machine", "CPUs", "cores", "nodes"]);
    let mut about = Vec::new();
    for entry in entries {
        table.row(vec![
            entry.name.to_owned(),
            entry.cpus.to_string(),
            entry.cores.to_string(),
            entry.nodes.to_string(),
        ]);
        about.push(vec![
            entry.name.to_owned(),
            format!("{}; figures: {}", entry.title, rests_on(&entry)),
        ]);
    }
    format!("{}\n{}", table.render(0), Table::lines(about.into_iter()))
}

fn shown(name: &str, machine: &Description) -> String {
    let entry = entry(name, machine);
    let topology = &machine.topology;
    let mut text = format!("{}\n", machine.title);
    if !entry.notes.is_empty() {
        text += &format!("{}\n", entry.notes);
    }
    text += &format!(
        "\n{}: {}, {} a board, {} a socket, {} a cluster, {} a core; {} a socket\n({})\n\n",
        plural(entry.cpus, "CPU", "CPUs"),
        plural(topology.boards, "board", "boards"),
        plural(topology.sockets_per_board, "socket", "sockets"),
        plural(topology.clusters_per_socket, "cluster", "clusters"),
        plural(topology.cores_per_cluster, "core", "cores"),
        plural(topology.threads_per_core, "thread", "threads"),
        plural(topology.nodes_per_socket, "node", "nodes"),
        topology.source
    );
    let figures = machine.figures().into_iter().map(|(key, figure)| {
        let unit = match figure.unit() {
            "gb_per_s" => " GB/s",
            "ns" => " ns",
            _ => "",
        };
        vec![
            format!("{key:<33}{:>8}{unit}", figure.value()),
            figure.source().to_owned(),
        ]
    });
    text += &Table::lines(figures);
    text
}
