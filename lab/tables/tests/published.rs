//! Published tables come out of samples byte for byte. Where the samples were never
//! published, they are reconstructions; the files in `data/` say so.

use vellum_tables::ministat::{self, Plot};
use vellum_tables::mmtests::{self, Edition};
use vellum_tables::read::Columns;
use vellum_tables::{Series, freebsd_time, kolivas};

fn file(path: &str) -> String {
    let path = format!("{}/tests/data/{path}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The series of a file, called as the file is.
fn series(path: &str, values: &[&str], operation: Option<&str>) -> Series {
    let columns = Columns {
        values: values
            .iter()
            .map(|v| v.parse().expect("a column"))
            .collect(),
        operation: operation.map(|column| column.parse().expect("a column")),
        ..Columns::default()
    };
    let (_, name) = path.rsplit_once('/').expect("a directory");
    Series {
        name: name.to_owned(),
        operations: columns.parse(path, &file(path)).expect("readable"),
    }
}

const KERNELS: [&str; 2] = ["3.15.0-rc3-vanilla", "3.15.0-rc3-lockpage-v2r33"];

fn mmtests(
    directory: &str,
    values: &[&str],
    operation: Option<&str>,
    options: &mmtests::Options,
) -> String {
    let columns = KERNELS.map(|kernel| {
        let series = series(&format!("{directory}/{kernel}"), values, operation);
        mmtests::Column::new(series, options.compat)
    });
    "\n".to_owned() + &mmtests::table(&columns, options).expect("a table")
}

fn of_2014(higher_is_better: bool) -> mmtests::Options {
    mmtests::Options {
        edition: Edition::Of2014,
        higher_is_better,
        precision: 4,
        compat: true,
        ..mmtests::Options::default()
    }
}

/// "Misc page alloc, shmem, mark_page_accessed and page_waitqueue optimisations",
/// linux-mm, 1 May 2014. The archive folded blanks; their number follows from the
/// program.
#[test]
fn the_loopdd_tables_of_2014_come_out_of_the_reconstruction() {
    let expected = "
                     3.15.0-rc3            3.15.0-rc3
                        vanilla        lockpage-v2r33
Min         4096.0000 (  0.00%)   3891.2000 ( -5.00%)
Mean        4840.1067 (  0.00%)   5154.1333 (  6.49%)
TrimMean    4867.6571 (  0.00%)   5204.1143 (  6.91%)
Stddev       160.6807 (  0.00%)    275.1917 ( 71.27%)
Max         5017.6000 (  0.00%)   5324.8000 (  6.12%)
";
    let throughput = mmtests("loopdd", &["throughput="], None, &of_2014(true));
    assert_eq!(throughput, expected);
    let expected = "
                            3.15.0-rc3            3.15.0-rc3
                               vanilla        lockpage-v2r33
Min      elapsed      0.4100 (  0.00%)      0.3900 (  4.88%)
Mean     elapsed      0.4780 (  0.00%)      0.4203 ( 12.06%)
TrimMean elapsed      0.4796 (  0.00%)      0.4179 ( 12.88%)
Stddev   elapsed      0.0353 (  0.00%)      0.0379 ( -7.23%)
Max      elapsed      0.5100 (  0.00%)      0.4800 (  5.88%)
";
    let elapsed = mmtests("loopdd", &["elapsed"], None, &of_2014(false));
    assert_eq!(elapsed, expected);
}

#[test]
fn without_compat_the_trimmed_mean_is_one() {
    let options = mmtests::Options {
        compat: false,
        ..of_2014(true)
    };
    let text = mmtests("loopdd", &["throughput="], None, &options);
    let rows: Vec<&str> = text.lines().collect();
    let changed = "TrimMean    4867.6571 (  0.00%)   5204.1143 (  6.91%)";
    assert_eq!(rows.iter().filter(|row| **row == changed).count(), 0);
    let same = "Stddev       160.6807 (  0.00%)    275.1917 ( 71.27%)";
    assert!(rows.contains(&same), "{text}");
}

/// The same message.
#[test]
fn the_lat_mmap_table_of_2014_comes_out() {
    let options = mmtests::Options {
        value: Some("Procs".to_owned()),
        ..of_2014(false)
    };
    let text = mmtests("lat_mmap", &[], Some("1"), &options);
    assert_eq!(text, format!("\n{}", file("lat_mmap/published")));
}

/// Expected values: mmtests at commit b2d30513, run on the same samples.
#[test]
fn the_tables_of_2025_are_those_of_mmtests() {
    let options = |higher_is_better| mmtests::Options {
        higher_is_better,
        precision: 4,
        ..mmtests::Options::default()
    };
    let expected = "
                              3.15.0-rc3             3.15.0-rc3
                                 vanilla         lockpage-v2r33
Min       elapsed      0.4100 (   0.00%)      0.3900 (   4.88%)
Amean     elapsed      0.4780 (   0.00%)      0.4203 (  12.06%)
Stddev    elapsed      0.0360 (   0.00%)      0.0385 (  -7.23%)
CoeffVar  elapsed      7.5210 (   0.00%)      9.1713 ( -21.94%)
Max       elapsed      0.5100 (   0.00%)      0.4800 (   5.88%)
BAmean-50 elapsed      0.4520 (   0.00%)      0.3907 (  13.57%)
BAmean-95 elapsed      0.4757 (   0.00%)      0.4161 (  12.54%)
BAmean-99 elapsed      0.4769 (   0.00%)      0.4183 (  12.29%)
";
    let elapsed = mmtests("loopdd", &["elapsed"], None, &options(false));
    assert_eq!(elapsed, expected);
    let expected = "
                           3.15.0-rc3             3.15.0-rc3
                              vanilla         lockpage-v2r33
Min       tput   4096.0000 (   0.00%)   3891.2000 (  -5.00%)
Hmean     tput   4834.0976 (   0.00%)   5136.1481 (   6.25%)
HStddev   tput    181.2215 (   0.00%)    337.6745 ( -86.33%)
HCoeffVar tput      3.7488 (   0.00%)      6.5745 ( -75.37%)
Max       tput   5017.6000 (   0.00%)   5324.8000 (   6.12%)
BHmean-50 tput   4928.3251 (   0.00%)   5310.9153 (   7.76%)
BHmean-95 tput   4874.0063 (   0.00%)   5208.1554 (   6.86%)
BHmean-99 tput   4864.3235 (   0.00%)   5193.4442 (   6.77%)
";
    let throughput = mmtests("loopdd", &["throughput=tput"], None, &options(true));
    assert_eq!(throughput, expected);
}

/// Expected values: mmtests at commit b2d30513, run on the same samples.
#[test]
fn significant_changes_stand_between_asterisks() {
    let columns = ["stock", "patched"].map(|name| {
        let series = series(&format!("buildkernel/{name}"), &["sys", "user"], None);
        mmtests::Column {
            heading: ["13.0".to_owned(), name.to_owned()],
            series,
        }
    });
    let options = mmtests::Options {
        best: vec![],
        ..mmtests::Options::default()
    };
    let expected = "                                13.0                   13.0
                               stock                patched
Min      sys       567.74 (   0.00%)      304.76 (  46.32%)
Min      user     6769.18 (   0.00%)     6730.43 (   0.57%)
Amean    sys       569.50 (   0.00%)      305.85 *  46.30%*
Amean    user     6778.52 (   0.00%)     6733.95 *   0.66%*
Stddev   sys         1.61 (   0.00%)        1.40 (  13.25%)
Stddev   user        8.13 (   0.00%)        3.81 (  53.16%)
CoeffVar sys         0.28 (   0.00%)        0.46 ( -61.53%)
CoeffVar user        0.12 (   0.00%)        0.06 (  52.85%)
Max      sys       570.91 (   0.00%)      307.43 (  46.15%)
Max      user     6783.97 (   0.00%)     6737.99 (   0.68%)
";
    assert_eq!(
        mmtests::table(&columns, &options).expect("a table"),
        expected
    );
}

fn kernbench(name: &str, compat: bool) -> String {
    let path = format!("kernbench/{name}");
    let groups = Columns::default().kernbench(&path, &file(&path), None);
    kolivas::blocks(&groups.expect("readable"), compat)
}

/// "x86, mm: Allow highmem user page tables to be disabled at boot time", 17
/// February 2010, of which the text leaves the empty line away.
#[test]
fn both_kernbench_blocks_of_2010_come_out_of_the_reconstruction() {
    let high = "
Average Optimal load -j 4 Run (std deviation):
Elapsed Time 175.396 (0.238914)
User Time 515.983 (5.85019)
System Time 59.737 (1.26727)
Percent CPU 263.8 (71.6796)
Context Switches 39989.7 (4672.64)
Sleeps 42617.7 (246.307)

";
    let low = "
Average Optimal load -j 4 Run (std deviation):
Elapsed Time 174.278 (0.831968)
User Time 515.659 (6.07012)
System Time 55.9 (1.07799)
Percent CPU 263.8 (71.266)
Context Switches 39929.6 (4485.13)
Sleeps 42583.7 (373.039)

";
    for (name, block) in [("highpte", high), ("nohigh", low)] {
        let text = kernbench(name, true);
        assert!(text.ends_with(block), "{text}");
    }
}

#[test]
fn the_optimal_load_of_2010_alone_saves_as_much() {
    let system = |name| {
        let text = kernbench(name, false);
        let optimal = text.split("Optimal").nth(1).expect("a block").to_owned();
        let line = optimal.lines().find(|line| line.starts_with("System Time"));
        line.expect("a line").to_owned()
    };
    assert_eq!(system("highpte"), "System Time 60.934 (0.0288097)");
    assert_eq!(system("nohigh"), "System Time 56.86 (0.368511)");
}

fn sets(names: &[&str], column: &str) -> Vec<Series> {
    let set = |name: &&str| series(&format!("buildkernel/{name}"), &[column], None);
    let mut sets: Vec<Series> = names.iter().map(set).collect();
    for set in &mut sets {
        set.operations[0].name.clear();
    }
    sets
}

fn ministat(names: &[&str], column: &str, options: &ministat::Options) -> String {
    ministat::block(&sets(names, column), options).expect("blocks")
}

const NO_PLOT: ministat::Options = ministat::Options {
    confidence: ministat::Confidence::P95,
    plot: None,
    verdicts: true,
    compat: false,
};

/// "amd64 pmap: fine-grained pv list locking", D24217, 29 March 2020.
#[test]
fn the_nine_lines_of_the_build_of_2020_are_read_and_printed() {
    for name in ["stock", "patched", "pig1-stock"] {
        let path = format!("buildkernel/{name}");
        let series = series(&path, &[], None);
        let names: Vec<&str> = series
            .operations
            .iter()
            .map(|op| op.name.as_str())
            .collect();
        assert_eq!(names, freebsd_time::COLUMNS);
        assert_eq!(freebsd_time::lines(&series), Some(file(&path)));
    }
}

/// Expected values: ministat 20150715 of Debian with the same numbers, but for the
/// relative error. That is the one of FreeBSD since 2019, which takes the base's
/// own into account.
#[test]
fn the_verdicts_on_the_build_of_2020_are_ministats() {
    let system = ministat(&["stock", "patched"], "sys", &ministat::Options::default());
    let expected = "\
x stock
+ patched
+--------------------------------------------------------------------------+
|+                                                                        x|
|++                                                                      xx|
|A|                                                                      |A|
+--------------------------------------------------------------------------+
    N           Min           Max        Median           Avg        Stddev
x   3        567.74        570.91        569.86     569.50333     1.6148168
+   3        304.76        307.43        305.36        305.85     1.4008212
Difference at 95.0% confidence
\t-263.653 +/- 3.42621
\t-46.2953% +/- 0.463659%
\t(Student's t, pooled s = 1.51161)
";
    assert_eq!(system, expected);
    let real = ministat(&["stock", "patched"], "real", &ministat::Options::default());
    let expected = "\
x stock
+ patched
+--------------------------------------------------------------------------+
|+     +  +                                                           xx  x|
||____AM___|                                                         |_A__||
+--------------------------------------------------------------------------+
    N           Min           Max        Median           Avg        Stddev
x   3        237.39        238.08        237.53     237.66667    0.36473735
+   3         226.4        227.86        227.33     227.19667      0.739076
Difference at 95.0% confidence
\t-10.47 +/- 1.32093
\t-4.40533% +/- 0.55108%
\t(Student's t, pooled s = 0.582781)
";
    assert_eq!(real, expected);
    let second_machine = ministat(&["pig1-stock", "pig1-obm-pvc"], "sys", &NO_PLOT);
    let expected = "\
x pig1-stock
+ pig1-obm-pvc
    N           Min           Max        Median           Avg        Stddev
x   3         446.2        450.55        447.52        448.09     2.2303139
+   3         429.6        433.64        430.82     431.35333     2.0721326
Difference at 95.0% confidence
\t-16.7367 +/- 4.87925
\t-3.73511% +/- 1.06726%
\t(Student's t, pooled s = 2.15268)
";
    assert_eq!(second_machine, expected);
    let real = ministat(&["pig1-stock", "pig1-obm-pvc"], "real", &NO_PLOT);
    let verdict = "No difference proven at 95.0% confidence\n";
    assert!(real.ends_with(verdict), "{real}");
}

/// Expected values: ministat 20150715 of Debian, as above.
#[test]
fn three_sets_with_bars_of_their_own() {
    let options = ministat::Options {
        plot: Some(Plot {
            width: 40,
            separate_bars: true,
        }),
        ..NO_PLOT
    };
    let text = ministat(&["pig1-stock", "pig1-obm-pvc", "stock"], "real", &options);
    let expected = "\
x pig1-stock
+ pig1-obm-pvc
* stock
+----------------------------------------+
|+                                      *|
|*                                      *|
|*x                                     *|
|A|                                      |
|A                                       |
|                                       A|
+----------------------------------------+
    N           Min           Max        Median           Avg        Stddev
x   3        116.03        117.55        116.11     116.56333    0.85541413
+   3        115.68        116.64        115.82     116.04667    0.51858783
No difference proven at 95.0% confidence
*   3        237.39        238.08        237.53     237.66667    0.36473735
Difference at 95.0% confidence
\t121.103 +/- 1.49042
\t103.895% +/- 2.45004%
\t(Student's t, pooled s = 0.657559)
";
    assert_eq!(text, expected);
}

/// "Only obm" was run twice on the second machine.
#[test]
fn two_runs_are_too_few_for_a_verdict() {
    let refused = ministat::block(&sets(&["pig1-stock", "pig1-obm"], "sys"), &NO_PLOT);
    let said = refused.expect_err("refused").to_string();
    assert_eq!(said, "pig1-obm has 2 samples; at least 3 are needed");
}
