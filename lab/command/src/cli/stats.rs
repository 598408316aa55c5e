//! `vellum stats`: published tables of anybody's numbers.

use std::fs;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use clap::builder::ValueHint;
use clap::{Args, ValueEnum};

use super::{Failure, OrFail};
use vellum_tables::kolivas::{self, Load};
use vellum_tables::ministat::{self, Confidence, Plot};
use vellum_tables::mmtests::{self, Edition};
use vellum_tables::read::{Column, Columns, Values};
use vellum_tables::{Series, freebsd_time};

const EXAMPLES: &str = "\
A file is a kernel, or whatever is compared; the first is the base. A line is a row of columns,
of which one holds the samples. `#` begins a comment. docs/stats.md shows an example of each
format, and says where the statistics of each are wrong, which --compat reproduces.

mmtests       a row for each statistic, with its change in percent: positive is better
ministat      whether means differ, by Student's t
kolivas       kernbench of Con Kolivas; rows are a load (single, half-2, optimal-16, maximal) and
              what `time -f \"%e %U %S %P %c %w\"` prints
freebsd-time  `237.53 real 6782.41 user 567.74 sys` for each row; ministat and mmtests read such
              lines, too, as the columns real, user and sys

Examples:
  vellum stats --format ministat stock patched
  vellum stats --format ministat -C sys -c 99 stock.time patched.time
  vellum stats --format mmtests --higher-is-better -C throughput 6.12-vanilla 6.12-lockpage
  vellum stats --format mmtests -O 1 --value Procs before.txt after.txt
  vellum stats --format mmtests -d , -C real -C sys old.csv new.csv
  ./run | vellum stats --format ministat base.txt -
  vellum stats --format kolivas --compat highpte nohigh";

/// Print tables as mmtests, ministat, kernbench and time do, from columns of numbers
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct StatsArgs {
    /// Files with numbers; `-` is standard input
    #[arg(required = true, value_hint = ValueHint::FilePath)]
    files: Vec<PathBuf>,
    /// What is printed
    #[arg(long, value_enum)]
    format: Format,
    /// A column with samples, by number from 1 on or by its name in the first row, and what to
    /// call them [default: the first; of lines of time(1) all]
    #[arg(short = 'C', long = "column", value_name = "COLUMN[=NAME]")]
    columns: Vec<Values>,
    /// The column that names what a row is a sample of
    #[arg(short = 'O', long, value_name = "COLUMN")]
    operations: Option<Column>,
    /// Characters that divide columns; `\t` is a tab [default: blanks and tabs]
    #[arg(short = 'd', long, value_name = "CHARACTERS")]
    delimiter: Option<String>,
    /// What a file is called, as often as there are files [default: its name]
    #[arg(long = "name", value_name = "NAME", allow_hyphen_values = true)]
    names: Vec<String>,
    /// A line above everything
    #[arg(long, value_name = "TEXT")]
    title: Option<String>,
    /// As the original prints it, mistakes included
    #[arg(long)]
    compat: bool,
    #[command(flatten)]
    mmtests: MmtestsArgs,
    #[command(flatten)]
    ministat: MinistatArgs,
    /// Load of rows that do not begin with one
    #[arg(long, value_name = "LOAD", help_heading = "Options of kolivas")]
    load: Option<Load>,
}

/// What is printed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Format {
    /// Comparison table of mmtests
    Mmtests,
    /// Verdict of ministat
    Ministat,
    /// Con Kolivas's kernbench
    Kolivas,
    /// Lines of FreeBSD's time
    FreebsdTime,
}

#[derive(Args, Debug)]
#[command(next_help_heading = "Options of mmtests")]
struct MmtestsArgs {
    /// The samples are better if they are higher (rates)
    #[arg(long)]
    higher_is_better: bool,
    /// The samples are better if they are lower (times), which is the default
    #[arg(long, conflicts_with = "higher_is_better")]
    lower_is_better: bool,
    /// Which mmtests [default: 2025]
    #[arg(long, value_enum)]
    edition: Option<EditionArg>,
    /// Decimals [default: 2]
    #[arg(long, value_name = "DECIMALS", value_parser = clap::value_parser!(u8).range(0..=15))]
    precision: Option<u8>,
    /// One row for each operation, its mean under this name, instead of statistics
    #[arg(long, value_name = "NAME")]
    value: Option<String>,
}

/// Which mmtests.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum EditionArg {
    /// As of May 2014
    #[value(name = "2014")]
    Of2014,
    /// As of June 2025
    #[value(name = "2025")]
    Of2025,
}

#[derive(Args, Debug)]
#[command(next_help_heading = "Options of ministat")]
struct MinistatArgs {
    /// Confidence of the verdicts: 80, 90, 95, 98, 99 or 99.5 [default: 95]
    #[arg(short, long, value_name = "PERCENT")]
    confidence: Option<Confidence>,
    /// No plot
    #[arg(short = 'A', long)]
    no_plot: bool,
    /// Neither plot nor verdicts
    #[arg(short = 'n', long)]
    no_verdicts: bool,
    /// Mean, median and deviation of each file on a line of their own
    #[arg(short, long)]
    separate: bool,
    /// Columns of the plot [default: 74]
    #[arg(short, long, value_name = "COLUMNS", value_parser = clap::value_parser!(u16).range(2..=1000))]
    width: Option<u16>,
}

/// Reads the files, prints the table.
pub fn run(args: StatsArgs) -> Result<(), Failure> {
    refuse_strangers(&args)?;
    let table = match args.format {
        Format::Mmtests => mmtests(&args)?,
        Format::Ministat => ministat(&args)?,
        Format::Kolivas => kolivas(&args)?,
        Format::FreebsdTime => freebsd_time(&args)?,
    };
    let title = args.title.as_ref().map(|title| format!("{title}\n"));
    let mut out = io::stdout().lock();
    out.write_all(title.unwrap_or_default().as_bytes())?;
    out.write_all(table.as_bytes())?;
    Ok(())
}

/// Refuses options of other formats.
fn refuse_strangers(args: &StatsArgs) -> Result<(), Failure> {
    let (mmtests, ministat) = (&args.mmtests, &args.ministat);
    let of_mmtests = [
        (mmtests.higher_is_better, "--higher-is-better"),
        (mmtests.lower_is_better, "--lower-is-better"),
        (mmtests.edition.is_some(), "--edition"),
        (mmtests.precision.is_some(), "--precision"),
        (mmtests.value.is_some(), "--value"),
    ];
    let of_ministat = [
        (ministat.confidence.is_some(), "--confidence"),
        (ministat.no_plot, "--no-plot"),
        (ministat.no_verdicts, "--no-verdicts"),
        (ministat.separate, "--separate"),
        (ministat.width.is_some(), "--width"),
    ];
    let of_kolivas = [(args.load.is_some(), "--load")];
    let all = [
        (Format::Mmtests, "mmtests", &of_mmtests[..]),
        (Format::Ministat, "ministat", &of_ministat[..]),
        (Format::Kolivas, "kolivas", &of_kolivas[..]),
    ];
    for (format, name, options) in all {
        let given = options.iter().find(|option| option.0);
        if let Some((_, option)) = given.filter(|_| format != args.format) {
            return Err(Failure::usage(format!("{option} is for --format {name}")));
        }
    }
    let columns_are_fixed = args.format == Format::Kolivas;
    if columns_are_fixed && (!args.columns.is_empty() || args.operations.is_some()) {
        return Err(Failure::usage(
            "--column and --operations are not for --format kolivas: its rows are a load and six \
             columns",
        ));
    }
    let names = args.names.len();
    if names > 0 && names != args.files.len() {
        return Err(Failure::usage(format!(
            "--name was given {names} times for {} files; give it for each or for none",
            args.files.len()
        )));
    }
    let stdin = args.files.iter().filter(|file| is_stdin(file)).count();
    match stdin {
        0 | 1 => Ok(()),
        _ => Err(Failure::usage(
            "standard input can be only one of the files",
        )),
    }
}

fn is_stdin(file: &Path) -> bool {
    file == Path::new("-")
}

/// What messages call a file.
fn shown(file: &Path) -> String {
    match is_stdin(file) {
        true => "<stdin>".to_owned(),
        false => file.display().to_string(),
    }
}

/// The files with their texts and what they are called: as they were given, or the
/// last part of their paths without the extension of a text file.
fn read(args: &StatsArgs, with_path: bool) -> Result<Vec<(String, String, String)>, Failure> {
    let read = |(index, file): (usize, &PathBuf)| {
        let shown = shown(file);
        let bytes = match is_stdin(file) {
            true => {
                let mut bytes = Vec::new();
                io::stdin().lock().read_to_end(&mut bytes).map(|_| bytes)
            }
            false => fs::read(file),
        };
        let bytes = bytes.doing(|| format!("reading {shown}")).blame_input()?;
        let text = String::from_utf8(bytes)
            .map_err(|_| Failure::usage(format!("{shown}: this is no text (UTF-8)")))?;
        let name = match args.names.get(index) {
            Some(name) => name.clone(),
            None if with_path || is_stdin(file) => shown.clone(),
            None => base_name(file),
        };
        Ok((name, shown, text))
    };
    args.files.iter().enumerate().map(read).collect()
}

/// `results/6.12-vanilla.txt` as `6.12-vanilla`; `3.15.0-rc3-vanilla` stays.
fn base_name(file: &Path) -> String {
    let extension = file.extension().and_then(|extension| extension.to_str());
    let is_text =
        |extension: &str| ["csv", "dat", "log", "out", "time", "tsv", "txt"].contains(&extension);
    let name = match extension.is_some_and(is_text) {
        true => file.file_stem(),
        false => file.file_name(),
    };
    name.map_or_else(|| shown(file), |name| name.to_string_lossy().into_owned())
}

fn columns(args: &StatsArgs) -> Columns {
    Columns {
        delimiters: args.delimiter.as_deref().unwrap_or("").replace("\\t", "\t"),
        values: args.columns.clone(),
        operation: args.operations.clone(),
    }
}

fn series(args: &StatsArgs, with_path: bool) -> Result<Vec<Series>, Failure> {
    let columns = columns(args);
    let files = read(args, with_path)?.into_iter();
    let one = |(name, shown, text): (String, String, String)| {
        let operations = columns.parse(&shown, &text).blame_input()?;
        Ok(Series { name, operations })
    };
    files.map(one).collect()
}

fn mmtests(args: &StatsArgs) -> Result<String, Failure> {
    let given = &args.mmtests;
    let defaults = mmtests::Options::default();
    let options = mmtests::Options {
        edition: match given.edition {
            Some(EditionArg::Of2014) => Edition::Of2014,
            Some(EditionArg::Of2025) | None => Edition::Of2025,
        },
        higher_is_better: given.higher_is_better,
        precision: given.precision.map_or(defaults.precision, usize::from),
        value: given.value.clone(),
        compat: args.compat,
        ..defaults
    };
    let columns = series(args, false)?.into_iter();
    let columns: Vec<mmtests::Column> = columns
        .map(|series| mmtests::Column::new(series, args.compat))
        .collect();
    mmtests::table(&columns, &options).blame_input()
}

fn ministat(args: &StatsArgs) -> Result<String, Failure> {
    let given = &args.ministat;
    let plot = Plot {
        width: given.width.unwrap_or(Plot::default().width),
        separate_bars: given.separate,
    };
    let options = ministat::Options {
        confidence: given.confidence.unwrap_or_default(),
        plot: (!given.no_plot && !given.no_verdicts).then_some(plot),
        verdicts: !given.no_verdicts,
        compat: args.compat,
    };
    let mut sets = series(args, true)?;
    // One column that all have in common needs no heading.
    let single = sets.iter().all(|set| set.operations.len() == 1);
    if single && args.operations.is_none() {
        for set in &mut sets {
            set.operations[0].name.clear();
        }
    }
    ministat::block(&sets, &options).blame_input()
}

fn kolivas(args: &StatsArgs) -> Result<String, Failure> {
    let columns = columns(args);
    let files = read(args, false)?;
    let mut text = String::new();
    for (name, shown, content) in &files {
        let groups = columns.kernbench(shown, content, args.load).blame_input()?;
        if files.len() > 1 {
            text += &format!("{name}\n");
        }
        text += &kolivas::blocks(&groups, args.compat);
    }
    Ok(text)
}

fn freebsd_time(args: &StatsArgs) -> Result<String, Failure> {
    let mut columns = columns(args);
    if args.operations.is_some() {
        return Err(Failure::usage(
            "--operations is not for --format freebsd-time: its columns are real, user and sys",
        ));
    }
    let chosen = columns.values.len();
    if chosen != 0 && chosen != freebsd_time::COLUMNS.len() {
        return Err(Failure::usage(format!(
            "{chosen} columns are chosen; real, user and sys are three"
        )));
    }
    let names = freebsd_time::COLUMNS.map(str::to_owned);
    for (values, name) in columns.values.iter_mut().zip(names.clone()) {
        values.operation = Some(name);
    }
    let files = read(args, false)?;
    let mut text = String::new();
    for (name, shown, content) in &files {
        let mut operations = columns.parse(shown, content).blame_input()?;
        if operations.len() == 1 {
            let values = (1..).zip(names.clone()).map(|(number, name)| Values {
                column: Column::Number(number),
                operation: Some(name),
            });
            let by_number = Columns {
                values: values.collect(),
                ..columns.clone()
            };
            operations = by_number.parse(shown, content).blame_input()?;
        }
        if operations
            .iter()
            .flat_map(|op| &op.samples)
            .any(|time| *time < 0.0)
        {
            return Err(Failure::usage(format!("{shown}: a time is negative")));
        }
        if files.len() > 1 {
            text += &format!("{name}\n");
        }
        let series = Series {
            name: name.clone(),
            operations,
        };
        let lines = freebsd_time::lines(&series);
        text += &lines.ok_or_else(|| Failure::failed(format!("{shown}: no three columns")))?;
    }
    Ok(text)
}
