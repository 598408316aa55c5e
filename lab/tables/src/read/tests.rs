use super::*;

fn columns(delimiters: &str, values: &[&str], operation: Option<&str>) -> Columns {
    Columns {
        delimiters: delimiters.to_owned(),
        values: values
            .iter()
            .map(|v| v.parse().expect("a column"))
            .collect(),
        operation: operation.map(|column| column.parse().expect("a column")),
    }
}

fn read(columns: &Columns, text: &str) -> Vec<(String, Vec<f64>)> {
    let operations = columns.parse("file", text).expect("readable").into_iter();
    operations.map(|op| (op.name, op.samples)).collect()
}

fn said(columns: &Columns, text: &str) -> String {
    columns
        .parse("file", text)
        .expect_err("refused")
        .to_string()
}

#[test]
fn the_first_column_is_taken_and_comments_are_not() {
    let text = "\u{feff}# kernel\r\n\n 1.5\t9\r\n-2e3 # cold\n#3\n0x\n";
    assert_eq!(
        said(&columns("", &[], None), text),
        "file, line 6: column 1 is `0x`; expected a number, as in 12.5"
    );
    let text = text.replace("0x", "");
    let expected = vec![(String::new(), vec![1.5, -2000.0])];
    assert_eq!(read(&columns("", &[], None), &text), expected);
}

#[test]
fn blanks_divide_once_and_commas_each() {
    assert_eq!(read(&columns("", &["2"], None), "1 \t 2\n")[0].1, [2.0]);
    assert_eq!(read(&columns(",", &["2"], None), "1 , 2 ,3\n")[0].1, [2.0]);
    assert_eq!(read(&columns(", ", &["3"], None), "1, 2 3\n")[0].1, [3.0]);
    assert_eq!(
        said(&columns(",", &["2"], None), "1,,3\n"),
        "file, line 1: column 2 is ``; expected a number, as in 12.5"
    );
}

#[test]
fn columns_have_names_in_the_first_row() {
    let text = "kernel,real,sys\nold,1,2\nold,3,4\n";
    let by_name = columns(",", &["sys", "real=wall"], None);
    let expected = vec![
        ("sys".to_owned(), vec![2.0, 4.0]),
        ("wall".to_owned(), vec![1.0, 3.0]),
    ];
    assert_eq!(read(&by_name, text), expected);
    assert_eq!(
        said(&columns(",", &["user"], None), text),
        "file, line 1: no column is called `user`; this row names the columns `kernel`, \
         `real`, `sys`"
    );
    let by_number = said(&columns(",", &["2"], None), text);
    assert!(by_number.contains("choose them by name"), "{by_number}");
}

/// As google-benchmark prints it with --benchmark_format=csv.
#[test]
fn a_comma_in_quotes_divides_no_columns() {
    let text = "name,iterations,real_time,cpu_time\n\
        \"BM_Map<int, long>/8\",1000,99.5,99.1\n\
        \"BM_Map<int, long>/8\",1000,99.6,99.2\n";
    let value = |column: &str| vec![column.parse::<Values>().unwrap()];
    let mut columns = Columns {
        delimiters: ",".to_owned(),
        values: value("real_time"),
        operation: None,
    };
    let samples = |columns: &Columns| columns.parse("in.csv", text).unwrap().remove(0);
    assert_eq!(samples(&columns).samples, [99.5, 99.6]);
    columns.operation = Some("name".parse().unwrap());
    assert_eq!(samples(&columns).name, "BM_Map<int, long>/8");
    // Without quotes nobody knows which column is which.
    let text = text.replace('"', "");
    let error = columns.parse("in.csv", &text).unwrap_err();
    assert!(
        matches!(
            error.what,
            Wrong::TooLong {
                columns: 5,
                wanted: 4,
                ..
            }
        ),
        "{error}"
    );
    let comma_at_the_end = "a,b\n1,2,\n";
    columns = Columns {
        values: value("b"),
        operation: None,
        ..columns
    };
    assert!(columns.parse("in.csv", comma_at_the_end).is_ok());
}

#[test]
fn the_log_of_kernbench_is_known() {
    let text = "Mon Jun  1 10:00:00 UTC 2026\n2.6.12\n\
        Average Half load -j 2 Run (std deviation):\nElapsed Time 175.39 (0.5)\n";
    for load in [None, Some("optimal-16".parse().unwrap())] {
        let columns = Columns::default();
        let error = columns.kernbench("kernbench.log", text, load).unwrap_err();
        assert_eq!((error.line, error.what), (Some(3), Wrong::KernbenchLog));
    }
    let error = Columns::default().parse("kernbench.log", text).unwrap_err();
    assert!(error.to_string().contains("log of kernbench"), "{error}");
}

#[test]
fn rows_name_their_operations() {
    let text = "read 1 10\nwrite 2 20\nread 3 30\n";
    let one = columns("", &[], Some("1"));
    let expected = vec![
        ("read".to_owned(), vec![1.0, 3.0]),
        ("write".to_owned(), vec![2.0]),
    ];
    assert_eq!(read(&one, text), expected);
    let two = columns("", &["2=user", "3=sys"], Some("1"));
    let names: Vec<String> = read(&two, text).into_iter().map(|op| op.0).collect();
    assert_eq!(names, ["read-user", "read-sys", "write-user", "write-sys"]);
}

#[test]
fn what_is_missing_is_told_by_line_and_column() {
    assert_eq!(
        said(&columns("", &["3"], None), "1 2 3\n1\n"),
        "file, line 2: there is 1 column; column 3 should be a number"
    );
    assert_eq!(
        said(&columns("", &[], None), "#\n\n"),
        "file: there are no numbers in it"
    );
    let named = columns("", &["real"], None);
    assert_eq!(said(&named, "real\n"), "file: there are no numbers in it");
    for wrong in ["inf", "nan", "1,5"] {
        let said = said(&columns("", &[], None), &format!("1\n{wrong}\n"));
        assert!(said.contains("expected a number, as in 12.5"), "{said}");
    }
}

#[test]
fn lines_of_time_have_their_three_columns() {
    let text = "  1.50 real  2.00 user  0.25 sys\n1 real 2 user 3 sys\n";
    assert_eq!(read(&columns("", &["sys"], None), text)[0].1, [0.25, 3.0]);
    let all = read(&columns("", &[], None), text);
    let names: Vec<&str> = all.iter().map(|op| op.0.as_str()).collect();
    assert_eq!(names, ["real", "user", "sys"]);
    assert_eq!(read(&columns("", &["3"], None), text)[0].1, [2.0, 2.0]);
    let broken = said(&columns("", &[], None), &format!("{text}stock\n"));
    assert!(
        broken.starts_with("file, line 3: this is no line of time(1)"),
        "{broken}"
    );
    let refused = said(&columns("", &["idle"], None), text);
    assert!(refused.contains("no column is called `idle`"), "{refused}");
}

#[test]
fn builds_of_kernbench_come_with_their_load_or_are_all_of_one() {
    let rows = "half-2 1 2 3 196% 5 6\noptimal-4 2 3 4 332 6 7\nhalf-2 9 9 9 9 9 9\n";
    let groups = Columns::default()
        .kernbench("file", rows, None)
        .expect("rows");
    assert_eq!(groups.len(), 2);
    assert_eq!(groups[0].runs[0], [1.0, 2.0, 3.0, 196.0, 5.0, 6.0]);
    let one = "1 2 3 196% 5 6\n";
    let groups = Columns::default().kernbench("file", one, Some(Load::Maximal));
    assert_eq!(groups.expect("a row")[0].load, Load::Maximal);
    let said = |text: &str| {
        let refused = Columns::default().kernbench("file", text, None);
        refused.expect_err("refused").to_string()
    };
    assert!(said(one).contains("needs the load there"), "{}", said(one));
    let text = said("half-2 1 2 3 4 5\n");
    assert!(
        text.contains("column 7 should be a number of sleeps"),
        "{text}"
    );
    let text = said("full 1 2 3 4 5 6\n");
    assert!(
        text.starts_with("file, line 1: column 1: `full` is no load"),
        "{text}"
    );
    let text = said("half-2 1 2 x 4 5 6\n");
    assert!(
        text.contains("column 4 is `x`; expected system seconds"),
        "{text}"
    );
    assert!(said("half-2 1 2 3 4 5 6 7\n").contains("there are 8 columns; expected 7"));
}

#[test]
fn names_of_columns() {
    assert_eq!("3".parse(), Ok(Column::Number(3)));
    assert_eq!("sys".parse(), Ok(Column::Name("sys".to_owned())));
    for wrong in ["", "0", "99999999999999999999999"] {
        assert!(wrong.parse::<Column>().is_err(), "{wrong}");
    }
    let values: Values = "throughput=".parse().expect("a column");
    assert_eq!(values.operation.as_deref(), Some(""));
}
