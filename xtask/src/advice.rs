//! Whether the advice of `vellum advise` holds: real programs are recorded, advised on, and run under
//! the settings that the advice is about.
//!
//! Every program has a result in the directory of `--state`, so a run that was stopped goes on
//! where it was. The page is made of all results that are there.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::command::{cargo, succeed, target};

/// A program: what it is called, what a shell prepares once, and what is run by a shell, both in
/// the directory of the results.
struct Program {
    name: &'static str,
    prepare: &'static str,
    run: &'static str,
}

const WORDS: &str =
    "test -f words || seq 1 600000 | awk '{ print ($1 * 7919) % 1000003, $1 }' > words";

const PROGRAMS: [Program; 13] = [
    Program {
        name: "sqlite3, a table in memory and its index",
        prepare: "",
        run: "exec sqlite3 :memory: 'create table t(a, b); with recursive c(x) as (select 1 union \
              all select x + 1 from c where x < 500000) insert into t select x, hex(x * 7919 % \
              1000003) from c; create index i on t(b); select count(*) from t a join t b on a.b = \
              b.b;'",
    },
    Program {
        name: "python3, lists and dictionaries",
        prepare: "",
        run: "exec python3 -c 'x = [i * i for i in range(2 * 10**6)]; y = {k: str(k) for k in \
              x[:500000]}; print(len(y))'",
    },
    Program {
        name: "g++ -O0, regex and map",
        prepare: "printf '#include <map>\\n#include <regex>\\nint main(int c, char **v) { \
                  std::map<std::string, std::regex> m; return m.size() + std::regex_match(v[0], \
                  std::regex(\"a+b*\")); }\\n' > many.cc",
        run: "exec g++ -O0 -c -o /dev/null many.cc",
    },
    Program {
        name: "git, all objects of this repository",
        prepare: "",
        run: "exec git rev-list --objects --all",
    },
    Program {
        name: "xz -6, one thread",
        prepare: WORDS,
        run: "head -c 1500K words | exec xz -6 -T1 -c > /dev/null",
    },
    Program {
        name: "zstd -12",
        prepare: WORDS,
        run: "exec zstd -12 -q -c words > /dev/null",
    },
    Program {
        name: "sort, one thread",
        prepare: WORDS,
        run: "LC_ALL=C exec sort --parallel=1 words > /dev/null",
    },
    Program {
        name: "perl, a hash",
        prepare: "",
        run: "exec perl -e 'my %h; $h{$_ * 7919 % 1000003} .= \"x$_\" for 1 .. 800000; print \
              scalar(%h)'",
    },
    Program {
        name: "java, a map of strings",
        prepare: "printf 'import java.util.*;\\nclass Sum { public static void main(String[] a) { \
                  Map<String, Integer> m = new HashMap<>(); for (int i = 0; i < 1000000; i++) \
                  m.merge(\"k\" + i * 7919L %% 1000003, 1, Integer::sum); \
                  System.out.println(m.size()); } }\\n' > Sum.java && javac Sum.java",
        run: "exec java -cp . Sum",
    },
    Program {
        name: "go, binary trees",
        prepare: "printf 'package main\\n\\ntype t struct{ l, r *t }\\n\\nfunc grow(d int) *t {\\n\\tif d \
                  == 0 {\\n\\t\\treturn &t{}\\n\\t}\\n\\treturn &t{grow(d - 1), grow(d - 1)}\\n}\\n\\nfunc \
                  main() {\\n\\tkept := grow(20)\\n\\tfor i := 0; i < 40; i++ \
                  {\\n\\t\\tgrow(14)\\n\\t}\\n\\tprintln(kept.l != nil)\\n}\\n' > trees.go && go build -o \
                  trees trees.go",
        run: "exec ./trees",
    },
    Program {
        name: "node, objects",
        prepare: "",
        run: "exec node -e 'const m = new Map(); for (let i = 0; i < 600000; i++) m.set(\"k\" + i, \
              { i, s: [i] }); console.log(m.size)'",
    },
    Program {
        name: "openssl, a checksum",
        prepare: WORDS,
        run: "for i in 1 2 3; do openssl dgst -sha256 words; done",
    },
    Program {
        name: "C, random reads of 256 MiB",
        prepare: "printf '#include <stdio.h>\\n#include <stdlib.h>\\nint main() { size_t n = 1 << 25, \
                  i, x = 1, s = 0; unsigned long *a = malloc(n * 8); for (i = 0; i < n; i++) a[i] = \
                  i; for (i = 0; i < 4000000; i++) { x = (x * 6364136223846793005u + a[x %% n] + \
                  1442695040888963407u); s += x; } printf(\"%%zu\\\\n\", s); return 0; }\\n' > reads.c && \
                  gcc -O2 -o reads reads.c",
        run: "exec ./reads",
    },
];

/// Share of CPU time from which on an effect that was measured should be claimed.
const LARGE: f64 = 0.03;

#[derive(clap::Args)]
pub struct Args {
    /// Where results are kept, and found again by the next run [default: target/advice]
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
    /// The program [default: built for release]
    #[arg(long, value_name = "FILE")]
    vellum: Option<PathBuf>,
    /// Seconds of runs of each program; at least five of each setting are made
    #[arg(long, default_value_t = 60)]
    check_seconds: u64,
    /// Only programs whose name holds this; can be given several times
    #[arg(long, value_name = "TEXT")]
    only: Vec<String>,
    /// Make no runs, only the page of what is there
    #[arg(long)]
    table: bool,
}

/// Makes the runs that are missing and writes docs/results/advise.md.
pub fn run(args: &Args) -> Result<(), String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let root = root.canonicalize().map_err(|error| error.to_string())?;
    let state = args
        .state
        .clone()
        .unwrap_or_else(|| target(&root).join("advice"));
    if !args.table {
        fs::create_dir_all(&state).map_err(|error| format!("{}: {error}", state.display()))?;
        let vellum = match &args.vellum {
            Some(path) => path
                .canonicalize()
                .map_err(|error| format!("{}: {error}", path.display()))?,
            None => built(&root)?,
        };
        let is_wanted = |program: &&Program| {
            args.only.is_empty()
                || args
                    .only
                    .iter()
                    .any(|text| program.name.contains(text.as_str()))
        };
        for program in PROGRAMS.iter().filter(is_wanted) {
            // One that cannot be run here does not keep the others from it.
            if let Err(error) = program.advise(&vellum, &state, args.check_seconds) {
                eprintln!("{}: left out: {error}", program.name);
            }
        }
    }
    let mut found = Vec::new();
    for program in &PROGRAMS {
        let path = program.result(&state);
        if path.exists() {
            found.push((program.name, read(&path)?));
        }
    }
    let page = root.join("docs/results/advise.md");
    fs::write(&page, report(&found)).map_err(|error| format!("{}: {error}", page.display()))
}

fn built(root: &Path) -> Result<PathBuf, String> {
    let mut build = cargo();
    build.current_dir(root);
    build.args(["build", "--release", "--quiet", "-p", "vellum-lab"]);
    succeed(&mut build)?;
    Ok(target(root).join("release/vellum"))
}

impl Program {
    fn result(&self, state: &Path) -> PathBuf {
        let plain = |letter: char| match letter.is_ascii_alphanumeric() {
            true => letter,
            false => '-',
        };
        let name: String = self.name.chars().map(plain).collect();
        state.join(name).with_extension("json")
    }

    /// Advises on the program, unless there is its result.
    fn advise(&self, vellum: &Path, state: &Path, check_seconds: u64) -> Result<(), String> {
        let result = self.result(state);
        if result.exists() {
            return Ok(());
        }
        eprintln!("{}", self.name);
        if !self.prepare.is_empty() {
            let mut prepare = Command::new("sh");
            prepare.current_dir(state).args(["-c", self.prepare]);
            succeed(prepare.stdout(Stdio::null()))?;
        }
        let part = result.with_extension("part");
        let mut advise = Command::new(vellum);
        advise.current_dir(state);
        advise.args(["advise", "--check", "--quiet", "--seconds", "60"]);
        advise.args(["--check-seconds", &check_seconds.to_string(), "--json"]);
        advise.arg(&part).args(["--", "sh", "-c", self.run]);
        succeed(advise.stdout(Stdio::null()))?;
        fs::rename(&part, &result).map_err(|error| format!("{}: {error}", part.display()))
    }
}

fn read(path: &Path) -> Result<Value, String> {
    let refused = |why: &str| format!("{}: {why}", path.display());
    let text = fs::read_to_string(path).map_err(|error| refused(&error.to_string()))?;
    serde_json::from_str(&text).map_err(|error| refused(&error.to_string()))
}

/// A figure as it is in a result.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Figure {
    value: f64,
    low: f64,
    high: f64,
}

impl Figure {
    fn of(value: &Value) -> Option<Figure> {
        let number = |name: &str| value.get(name)?.as_f64();
        Some(Figure {
            value: number("value")?,
            low: number("low")?,
            high: number("high")?,
        })
    }

    fn text(&self) -> String {
        let percent = |share: f64| format!("{:+.1}", 100.0 * share);
        let (low, high) = (percent(self.low), percent(self.high));
        format!("{} ({low} … {high})", percent(self.value))
    }
}

/// One row of an advice that was tried.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Tried {
    predicted: Figure,
    is_claimed: bool,
    measured: Figure,
    is_told: bool,
}

/// How predictions and measurements stand to each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Standing {
    /// Both say the same, and sizes are within twice.
    Agrees,
    /// The sign is the same; sizes differ by more than twice.
    SignOnly,
    /// The signs differ.
    Contradicts,
    /// Claimed; the runs of the program could not tell any effect.
    NotTold,
    /// A large effect was measured that was not claimed.
    Missed,
    /// Neither.
    Quiet,
}

impl Tried {
    fn of(row: &Value) -> Option<Tried> {
        let said = row["said"].as_str()?;
        Some(Tried {
            predicted: Figure::of(&row["cpu"])?,
            is_claimed: said == "less" || said == "more",
            measured: Figure::of(&row["measured"]["cpu"])?,
            is_told: row["measured"]["told"] == true,
        })
    }

    fn is_large(&self) -> bool {
        self.is_told && self.measured.value.abs() > LARGE
    }

    fn standing(&self) -> Standing {
        let times = self.measured.value / self.predicted.value;
        match (self.is_claimed, self.is_told) {
            (true, true) if times < 0.0 => Standing::Contradicts,
            (true, true) if (0.5..=2.0).contains(&times) => Standing::Agrees,
            (true, true) => Standing::SignOnly,
            (true, false) => Standing::NotTold,
            (false, _) if self.is_large() => Standing::Missed,
            (false, _) => Standing::Quiet,
        }
    }
}

fn report(found: &[(&str, Value)]) -> String {
    let mut page = "# Advice held against runs\n\n\
        Made by `cargo xtask advice` from runs of `vellum advise --check` ([advise.md](../advise.md)); each \
        program was recorded and advised on first, and then run under each setting in turn. Figures are \
        changes of the CPU time of the whole process tree in percent, with intervals at 95 %. *Control* is \
        how far the program strays from itself. Runs tell an effect if its interval holds neither \
        0 nor a value of the interval of the control.\n\n"
        .to_owned();
    if let Some((_, advice)) = found.first() {
        let host = &advice["run"]["host"];
        _ = writeln!(
            page,
            "{}, {} CPUs, Linux {}.\n",
            host["cpu"].as_str().unwrap_or("unknown CPU"),
            host["cpus"],
            host["kernel"].as_str().unwrap_or("of an unknown release"),
        );
    }
    page += "| program | setting | predicted | claimed | measured | |\n|---|---|---|---|---|---|\n";
    let mut all = Vec::new();
    for (name, advice) in found {
        let control = Figure::of(&advice["checked"]["control"]);
        let control = control.map_or_else(String::new, |control| control.text());
        let seconds = advice["checked"]["cpu_ns"].as_f64().unwrap_or(0.0) / 1e9;
        let rounds = &advice["checked"]["rounds"];
        _ = writeln!(
            page,
            "| **{name}** | {seconds:.2} s, {rounds} runs each | | | control {control} | |"
        );
        let rows = advice["rows"].as_array().cloned().unwrap_or_default();
        for row in &rows {
            let Some(tried) = Tried::of(row) else {
                continue;
            };
            _ = writeln!(
                page,
                "| | {} | {} | {} | {} | {} |",
                row["what"].as_str().unwrap_or(""),
                tried.predicted.text(),
                if tried.is_claimed { "yes" } else { "no" },
                tried.measured.text(),
                word(tried.standing()),
            );
            all.push(tried);
        }
    }
    page + &summary(found.len(), &all)
}

fn word(standing: Standing) -> &'static str {
    match standing {
        Standing::Agrees => "agrees",
        Standing::SignOnly => "sign agrees, size not within twice",
        Standing::Contradicts => "**contradicted**",
        Standing::NotTold => "runs cannot tell",
        Standing::Missed => "**missed**",
        Standing::Quiet => "",
    }
}

fn summary(programs: usize, all: &[Tried]) -> String {
    let count = |wanted: Standing| {
        all.iter()
            .filter(|tried| tried.standing() == wanted)
            .count()
    };
    let claimed = all.iter().filter(|tried| tried.is_claimed).count();
    let large = all.iter().filter(|tried| tried.is_large()).count();
    let large_claimed = all
        .iter()
        .filter(|tried| tried.is_large() && tried.is_claimed)
        .count();
    format!(
        "\n{programs} programs, {} effects tried, {claimed} of them claimed: {} agree within twice, {} in \
         sign only, {} are contradicted, and {} are too small for the runs to tell. Of {large} effects \
         above {:.0} % that the runs told, {large_claimed} were claimed.\n",
        all.len(),
        count(Standing::Agrees),
        count(Standing::SignOnly),
        count(Standing::Contradicts),
        count(Standing::NotTold),
        100.0 * LARGE,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn tried(predicted: f64, is_claimed: bool, measured: (f64, bool)) -> Tried {
        let figure = |value: f64, reach: f64| Figure {
            value,
            low: value - reach,
            high: value + reach,
        };
        Tried {
            predicted: figure(predicted, 0.001),
            is_claimed,
            measured: figure(measured.0, 0.01),
            is_told: measured.1,
        }
    }

    #[test]
    fn a_prediction_stands_as_signs_sizes_and_intervals_say() {
        for (predicted, is_claimed, measured, standing) in [
            (-0.10, true, (-0.15, true), Standing::Agrees),
            (-0.10, true, (-0.25, true), Standing::SignOnly),
            (-0.10, true, (0.05, true), Standing::Contradicts),
            (-0.01, true, (-0.02, false), Standing::NotTold),
            (0.0, false, (-0.05, true), Standing::Missed),
            (0.0, false, (-0.02, true), Standing::Quiet),
        ] {
            let tried = tried(predicted, is_claimed, measured);
            assert_eq!(tried.standing(), standing, "{tried:?}");
        }
    }

    #[test]
    fn the_page_counts_what_it_shows() {
        let figure =
            |value: f64| json!({ "value": value, "low": value - 0.01, "high": value + 0.01 });
        let row = |said: &str, predicted: f64, measured: f64| {
            json!({
                "what": "THP", "said": said, "cpu": figure(predicted),
                "measured": { "cpu": figure(measured), "told": true },
            })
        };
        let advice = json!({
            "run": { "host": { "cpu": "CPU", "cpus": 2, "kernel": "6.1" } },
            "checked": { "rounds": 5, "cpu_ns": 2e9, "control": figure(0.0) },
            "rows": [
                row("less", -0.10, -0.12),
                row("nothing", 0.0, -0.05),
                { "what": "not tried", "said": "less", "cpu": figure(-0.5), "measured": null },
            ],
        });
        let page = report(&[("one", advice)]);
        assert!(page.contains("| **one** | 2.00 s, 5 runs each |"), "{page}");
        assert!(
            page.contains("1 programs, 2 effects tried, 1 of them claimed: 1 agree within twice")
        );
        assert!(
            page.contains("Of 2 effects above 3 % that the runs told, 1 were claimed."),
            "{page}"
        );
        assert!(!page.contains("not tried"));
    }
}
