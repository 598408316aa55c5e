//! `vellum stats` as a user meets it: published tables from files of numbers.

use std::io::Write;
use std::process::{Command, Stdio};

use crate::command::{Scratch, text, vellum};

/// A file of the crate whose formats these are.
fn published(path: &str) -> String {
    format!("{}/../tables/tests/data/{path}", env!("CARGO_MANIFEST_DIR"))
}

/// What `vellum stats` prints with `options`, separated by blanks, about `files`.
fn stats(options: &str, files: &[&str]) -> String {
    let output = vellum(&[&["stats"], &words(options)[..], files].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout)
}

/// What it says when it refuses.
fn refused(options: &str, files: &[&str]) -> String {
    let output = vellum(&[&["stats"], &words(options)[..], files].concat());
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stdout));
    text(&output.stderr)
}

fn words(options: &str) -> Vec<&str> {
    options.split_whitespace().collect()
}

#[test]
fn files_with_the_names_of_kernels_make_the_table_of_2014() {
    let files = ["3.15.0-rc3-vanilla", "3.15.0-rc3-lockpage-v2r33"];
    let files = files.map(|name| published(&format!("loopdd/{name}")));
    let files: Vec<&str> = files.iter().map(String::as_str).collect();
    let options = "--format mmtests --edition 2014 --precision 4 --compat -C elapsed";
    let printed = stats(options, &files);
    let expected = "
                            3.15.0-rc3            3.15.0-rc3
                               vanilla        lockpage-v2r33
Min      elapsed      0.4100 (  0.00%)      0.3900 (  4.88%)
Mean     elapsed      0.4780 (  0.00%)      0.4203 ( 12.06%)
TrimMean elapsed      0.4796 (  0.00%)      0.4179 ( 12.88%)
Stddev   elapsed      0.0353 (  0.00%)      0.0379 ( -7.23%)
Max      elapsed      0.5100 (  0.00%)      0.4800 (  5.88%)
";
    assert_eq!(format!("\n{printed}"), expected);
    let options = "--format mmtests --edition 2014 --precision 4 --higher-is-better \
                   --title loopdd -C throughput=";
    let printed = stats(options, &files);
    let begin = "loopdd\n                     3.15.0-rc3 ";
    assert!(printed.starts_with(begin), "{printed}");
    let row = "Mean        4840.1067 (  0.00%)   5154.1333 (  6.49%)\n";
    assert!(printed.contains(row), "{printed}");
}

#[test]
fn operations_in_one_file_are_rows_of_their_own() {
    let files = ["3.15.0-rc3-vanilla", "3.15.0-rc3-lockpage-v2r33"];
    let files = files.map(|name| published(&format!("lat_mmap/{name}")));
    let files: Vec<&str> = files.iter().map(String::as_str).collect();
    let options = "--format mmtests --edition 2014 --precision 4 -O 1 --value Procs";
    let expected = std::fs::read_to_string(published("lat_mmap/published"));
    assert_eq!(stats(options, &files), expected.expect("the table"));
}

#[test]
fn comma_separated_columns_are_chosen_by_name() {
    let scratch = Scratch::new("csv");
    let old = scratch.write("old.csv", "run,real,sys\n1,10.5,2\n2,11.5,2\n3,11,2\n");
    let new = scratch.write("new.csv", "run,real,sys\n1,5.5,1\n2,5.0,1\n3,6,1\n");
    let options = "--format mmtests -d , -C real=wall -C sys";
    let printed = stats(options, &[&old, &new]);
    let expected = "
                                  old                    new
Min       wall       10.50 (   0.00%)        5.00 (  52.38%)
Min       sys         2.00 (   0.00%)        1.00 (  50.00%)
Amean     wall       11.00 (   0.00%)        5.50 *  50.00%*
Amean     sys         2.00 (   0.00%)        1.00 *  50.00%*
";
    let printed = format!("\n{printed}");
    assert!(printed.starts_with(expected), "{printed}");
}

#[test]
fn lines_of_time_are_judged_as_ministat_judges_them() {
    let (stock, patched) = (
        published("buildkernel/stock"),
        published("buildkernel/patched"),
    );
    let named = "--name stock --name patched";
    let options = format!("--format ministat {named} --no-plot -C sys");
    let printed = stats(&options, &[&stock, &patched]);
    let expected = "\
x stock
+ patched
    N           Min           Max        Median           Avg        Stddev
x   3        567.74        570.91        569.86     569.50333     1.6148168
+   3        304.76        307.43        305.36        305.85     1.4008212
Difference at 95.0% confidence
\t-263.653 +/- 3.42621
\t-46.2953% +/- 0.463659%
\t(Student's t, pooled s = 1.51161)
";
    assert_eq!(printed, expected);
    let all = stats("--format ministat", &[&stock, &patched]);
    for operation in ["real", "user", "sys"] {
        let block = format!("{operation}\nx {stock}\n+ {patched}\n+----");
        assert!(all.contains(&block), "{all}");
    }
    let surer = stats("--format ministat -C sys -c 99 -A", &[&stock, &patched]);
    assert!(
        surer.contains("Difference at 99.0% confidence\n\t-263.653 +/- 5.68"),
        "{surer}"
    );
    let figures = stats("--format ministat -C sys -n", &[&stock, &patched]);
    assert_eq!(figures.lines().count(), 5, "{figures}");
}

/// The second machine of the same message, of which one kernel was built twice only.
#[test]
fn the_second_machine_saves_2_and_4_percent_of_system_time() {
    let [stock, obm, both] = ["pig1-stock", "pig1-obm", "pig1-obm-pvc"]
        .map(|name| published(&format!("buildkernel/{name}")));
    let printed = stats("--format ministat -A -C sys", &[&stock, &both]);
    assert!(printed.contains("\t-3.73511% +/- 1.06726%\n"), "{printed}");
    let printed = stats("--format ministat -A -C real", &[&stock, &both]);
    assert!(
        printed.ends_with("No difference proven at 95.0% confidence\n"),
        "{printed}"
    );
    let refused = refused("--format ministat -C sys", &[&stock, &obm]);
    assert!(refused.contains("has 2 samples"), "{refused}");
    let printed = stats("--format mmtests -C sys", &[&stock, &obm]);
    let row = printed.lines().find(|line| line.starts_with("Amean"));
    let row = row.expect("a mean");
    assert!(row.contains("448.09 (   0.00%)"), "{row}");
    assert!(row.contains("437.03") && row.contains("2.47%"), "{row}");
}

#[test]
fn columns_become_lines_of_time() {
    let stock = published("buildkernel/stock");
    let lines = std::fs::read_to_string(&stock).expect("lines");
    assert_eq!(stats("--format freebsd-time", &[&stock]), lines);
    let scratch = Scratch::new("columns");
    let columns = lines
        .replace(" real", "")
        .replace(" user", "")
        .replace(" sys", "");
    let columns = scratch.write("stock.txt", &columns);
    assert_eq!(stats("--format freebsd-time", &[&columns]), lines);
    let both = stats("--format freebsd-time", &[&stock, &columns]);
    assert_eq!(both, format!("stock\n{lines}stock\n{lines}"));
    let wrong = scratch.write("wrong", "1 2 -3\n");
    assert!(refused("--format freebsd-time", &[&wrong]).contains("a time is negative"));
}

#[test]
fn builds_make_a_block_for_each_load() {
    let high = published("kernbench/highpte");
    let published_block = "
Average Optimal load -j 4 Run (std deviation):
Elapsed Time 175.396 (0.238914)
User Time 515.983 (5.85019)
System Time 59.737 (1.26727)
Percent CPU 263.8 (71.6796)
Context Switches 39989.7 (4672.64)
Sleeps 42617.7 (246.307)

";
    let printed = stats("--format kolivas --compat", &[&high]);
    assert!(printed.ends_with(published_block), "{printed}");
    assert!(
        printed.starts_with("Average Half load -j 2 Run"),
        "{printed}"
    );
    let right = stats("--format kolivas", &[&high]);
    assert!(right.contains("Percent CPU 331.8 (0.447214)\n"), "{right}");
    let scratch = Scratch::new("load");
    let rows = scratch.write("rows", "1.5 2.5 3.5 400% 5 6\n");
    let one = stats("--format kolivas --load maximal", &[&rows]);
    assert!(
        one.contains("load -j Run (std deviation):\nElapsed Time 1.5\n"),
        "{one}"
    );
    assert!(refused("--format kolivas", &[&rows]).contains("needs the load there"));
}

#[test]
fn one_file_can_be_standard_input() {
    let scratch = Scratch::new("stdin");
    let old = scratch.write("old", "1\n2\n3\n");
    let mut command = Command::new(env!("CARGO_BIN_EXE_vellum"));
    let command = command.args(["stats", "--format", "ministat", "-A", &old, "-"]);
    let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().expect("started");
    let mut input = child.stdin.take().expect("piped");
    input.write_all(b"4\n5\n6\n").expect("written");
    drop(input);
    let output = child.wait_with_output().expect("ended");
    let printed = text(&output.stdout);
    assert!(printed.contains("\n+ <stdin>\n"), "{printed}");
    assert!(
        printed.contains("+   3             4             6 "),
        "{printed}"
    );
    let twice = refused("--format ministat", &["-", "-"]);
    assert!(twice.contains("only one of the files"), "{twice}");
}

#[test]
fn what_is_wrong_is_told_by_file_line_and_column() {
    let scratch = Scratch::new("wrong");
    let wrong = scratch.write("wrong", "1 2\n\n1 2x\n");
    let said = refused("--format ministat -C 2", &[&wrong]);
    let expected = format!("{wrong}, line 3: column 2 is `2x`; expected a number, as in 12.5");
    assert!(said.contains(&expected), "{said}");
    let rows = "single 1.5 2.5 3.5 400% 5 6\nsingle 1.5 -2.5 3.5 400% 5 6\n";
    let negative = scratch.write("negative", rows);
    let said = refused("--format kolivas", &[&negative]);
    let expected = "line 2: column 3 is `-2.5`; expected user seconds, as in 515.98";
    assert!(said.contains(expected), "{said}");
    let few = scratch.write("few", "1\n2\n");
    let said = refused("--format ministat", &[&few]);
    assert!(
        said.contains("has 2 samples; at least 3 are needed"),
        "{said}"
    );
    let said = refused("--format mmtests", &["no/such/file"]);
    assert!(said.contains("reading no/such/file: "), "{said}");
    let binary = scratch.write("binary", b"1\n\xff\n");
    let said = refused("--format mmtests", &[&binary]);
    assert!(said.contains("no text (UTF-8)"), "{said}");
}

#[test]
fn options_of_other_formats_are_refused() {
    for (options, expected) in [
        (
            "--format mmtests -c 99",
            "--confidence is for --format ministat",
        ),
        (
            "--format ministat --value Ops",
            "--value is for --format mmtests",
        ),
        ("--format ministat -c 97", "98, 99 and 99.5"),
        (
            "--format mmtests --load single",
            "--load is for --format kolivas",
        ),
        ("--format kolivas -C 1", "a load and six columns"),
        ("--format mmtests -C 0", "`0` is no column"),
        ("--format mmtests --name a --name b", "2 times for 1 files"),
        ("--format freebsd-time -C 1", "1 columns are chosen"),
    ] {
        let said = refused(options, &["x"]);
        assert!(said.contains(expected), "{options}: {said}");
    }
}
