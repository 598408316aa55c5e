//! Machine descriptions: those that come with the program, and what is said of wrong ones.

use vellum_description::{Description, DescriptionError, SHIPPED, Work, WorkKind};

/// A machine of four cores, one cluster, whose every figure is round.
const ROUND: &str = include_str!("round.toml");

#[test]
fn every_shipped_description_is_valid_and_has_the_cpus_it_is_known_for() {
    let cpus = [
        ("numa-q-16", 16),
        ("altix-512", 512),
        ("xeon-e5-2690", 32),
        ("xeon-104", 104),
        ("xeon-8176-8s", 448),
        ("epyc-milan-1s", 96),
        ("epyc-milan-2s", 192),
        ("generated-512", 512),
    ];
    assert_eq!(cpus.len(), SHIPPED.len());
    for (name, cpus) in cpus {
        let machine = Description::named(name).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(machine.cpus(), cpus, "{name}");
        assert!(machine.bases().iter().sum::<usize>() > 20, "{name}");
    }
}

#[test]
fn a_name_that_no_machine_has_is_answered_with_those_there_are() {
    let error = Description::named("vax").expect_err("no such machine");
    assert!(error.to_string().contains("\"vax\""), "{error}");
    assert!(error.to_string().contains("numa-q-16"), "{error}");
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let error = Description::named("no/such/file.toml").expect_err("no such file");
    assert!(error.to_string().contains("no/such/file.toml"), "{error}");
}

/// What is said of the description after `from` was replaced by `to`.
fn complaint(from: &str, to: &str) -> String {
    assert!(ROUND.contains(from), "{from}");
    match Description::parse(&ROUND.replacen(from, to, 1), "mine.toml") {
        Ok(_) => panic!("{to} was accepted"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn a_wrong_description_is_refused_with_file_key_and_what_was_expected() {
    let hit = "hit = { ns = 1, source = \"assumed: test\" }";
    let cases = [
        // A key that does not exist, with its line.
        (hit, "hits = 1", ["mine.toml", "hits", "expected one of"]),
        // A key that is missing.
        (hit, "", ["mine.toml", "missing field", "hit"]),
        // A value of another type.
        (
            hit,
            "hit = \"fast\"",
            ["mine.toml", "hit", "expected struct Time"],
        ),
        // Free of charge.
        (
            "hit = { ns = 1,",
            "hit = { ns = 0,",
            ["mine.toml", "lines.hit.ns: 0", "expected 0.1 to"],
        ),
        (
            "hit = { ns = 1,",
            "hit = { ns = nan,",
            ["mine.toml", "lines.hit.ns: NaN", "expected 0.1 to"],
        ),
        // No source.
        (
            "hit = { ns = 1, source = \"assumed: test\"",
            "hit = { ns = 1, source = \"I think\"",
            [
                "mine.toml",
                "lines.hit.source: \"I think\"",
                "\"measured: \"",
            ],
        ),
        (
            "count = 34",
            "count = 33.5",
            ["mine.toml", "flush.full_from.count: 33.5", "whole number"],
        ),
        // Farther and faster.
        (
            "cluster = { ns = 40,",
            "cluster = { ns = 0.5,",
            ["mine.toml", "lines.cluster: 0.5 ns is less", "lines.hit"],
        ),
        // A level without its figure, and a figure without its level.
        (
            "boards = 1",
            "boards = 2",
            ["mine.toml", "lines.system: missing", "topology.boards"],
        ),
        (
            "cores_per_cluster = 4",
            "cores_per_cluster = 1",
            [
                "mine.toml",
                "lines.cluster: expected not to be there",
                "cores_per_cluster",
            ],
        ),
        (
            "cores_per_cluster = 4",
            "cores_per_cluster = 0",
            ["mine.toml", "topology.cores_per_cluster: 0", "from 1 to"],
        ),
        (
            "cores_per_cluster = 4",
            "cores_per_cluster = 1000",
            ["mine.toml", "topology.clusters_per_socket: 0", "from 1 to"],
        ),
        (
            "nodes_per_socket = 1",
            "nodes_per_socket = 2",
            ["mine.toml", "topology.nodes_per_socket: 2", "divisor"],
        ),
    ];
    for (from, to, said) in cases {
        let complaint = if to.ends_with("1000") {
            // More CPUs than there is room for need a second key.
            let text = ROUND.replacen("clusters_per_socket = 1", "clusters_per_socket = 0", 1);
            Description::parse(&text.replacen(from, to, 1), "mine.toml")
                .expect_err("no clusters")
                .to_string()
        } else {
            complaint(from, to)
        };
        for said in said {
            assert!(
                complaint.contains(said),
                "{to}: no {said:?} in\n{complaint}"
            );
        }
    }
}

#[test]
fn all_flaws_are_listed_at_once() {
    let wrong =
        ROUND
            .replacen("ns = 1,", "ns = -1,", 1)
            .replacen("gb_per_s = 10,", "gb_per_s = 0,", 1);
    let Err(DescriptionError::Flaws { flaws, .. }) = Description::parse(&wrong, "mine.toml") else {
        panic!("accepted, or no flaws");
    };
    let keys: Vec<&str> = flaws.iter().map(|flaw| flaw.key.as_str()).collect();
    assert_eq!(keys, ["lines.hit.ns", "bandwidth.zero.gb_per_s"]);
}

#[test]
fn what_a_description_prints_is_that_description() {
    for shipped in SHIPPED {
        let machine = Description::named(shipped.name).unwrap_or_else(|error| panic!("{error}"));
        let again = Description::parse(&machine.to_string(), "printed.toml");
        assert_eq!(again.unwrap_or_else(|error| panic!("{error}")), machine);
    }
    let mut machine = Description::parse(ROUND, "round.toml").expect("it is right");
    machine.title = "quotes \"\"\" and \\ \t".to_owned();
    machine.notes = "lines\nof '''text'''\r\n\u{7f}".to_owned();
    let again = Description::parse(&machine.to_string(), "printed.toml");
    assert_eq!(again.unwrap_or_else(|error| panic!("{error}")), machine);
}

/// A description with a table of work.
fn with_work(lines: &str) -> Result<Description, DescriptionError> {
    Description::parse(&format!("{ROUND}\n[work]\n{lines}"), "mine.toml")
}

#[test]
fn work_by_kind_may_be_there_or_not_and_what_is_wrong_with_it_is_said() {
    let plain = Description::parse(ROUND, "mine.toml").expect("it is right");
    assert_eq!(plain.work, Work::default());
    let source = "source = \"measured: a test\"";
    let some = with_work(&format!("fork = {{ ns = 2.5, {source} }}"));
    let some = some.unwrap_or_else(|error| panic!("{error}"));
    for kind in WorkKind::ALL {
        let expected = (kind == WorkKind::Fork).then_some(2.5);
        assert_eq!(some.work.of(kind).map(|time| time.ns), expected);
    }
    let again = Description::parse(&some.to_string(), "printed.toml");
    assert_eq!(again.unwrap_or_else(|error| panic!("{error}")), some);
    let appended = format!("{ROUND}\n{}", some.work);
    let appended = Description::parse(&appended, "appended.toml");
    assert_eq!(appended.unwrap_or_else(|error| panic!("{error}")), some);
    let cases = [
        (
            "spoon = 1".to_owned(),
            [
                "mine.toml",
                "spoon",
                "`fault`, `map`, `fork`, `exit`, `file`",
            ],
        ),
        (
            format!("exit = {{ ns = -1, {source} }}"),
            ["mine.toml", "work.exit.ns: -1", "expected 0.01 to 10000"],
        ),
        (
            "file = { ns = 1, source = \"guessed\" }".to_owned(),
            [
                "mine.toml",
                "work.file.source: \"guessed\"",
                "\"measured: \"",
            ],
        ),
        (
            "map = { ns = 1 }".to_owned(),
            ["mine.toml", "map", "missing field `source`"],
        ),
    ];
    for (lines, said) in cases {
        let error = with_work(&lines).expect_err("wrong").to_string();
        for said in said {
            assert!(error.contains(said), "{lines}: no {said:?} in\n{error}");
        }
    }
}

#[test]
fn pages_in_caches_have_all_their_figures_or_none_and_are_not_slower_than_memory() {
    let source = "source = \"assumed: test\"";
    let with = |zero: &str, copy: &str, cache: &str| {
        let bandwidth = format!("[bandwidth]\n{zero}\n{copy}");
        let processor = format!("[processor]\n{cache}");
        let text =
            ROUND
                .replacen("[bandwidth]", &bandwidth, 1)
                .replacen("[processor]", &processor, 1);
        Description::parse(&text, "mine.toml")
    };
    let rate = |key: &str, rate: f64| format!("{key} = {{ gb_per_s = {rate}, {source} }}");
    let (zero, copy) = (rate("zero_cached", 90.0), rate("copy_cached", 60.0));
    let cache = format!("cache = {{ count = 1024, {source} }}");
    let whole = with(&zero, &copy, &cache).unwrap_or_else(|error| panic!("{error}"));
    let again = Description::parse(&whole.to_string(), "printed.toml");
    assert_eq!(again.unwrap_or_else(|error| panic!("{error}")), whole);
    let slow = rate("copy_cached", 0.5);
    let cases = [
        (
            with(&zero, "", &cache),
            "bandwidth.copy_cached: missing: expected, because",
        ),
        (
            with(&zero, &copy, ""),
            "processor.cache: missing: expected, because",
        ),
        (
            with(&zero, &slow, &cache),
            "bandwidth.copy_cached: 0.5 GB/s is less than the",
        ),
    ];
    for (found, said) in cases {
        let error = found.expect_err("wrong").to_string();
        assert!(error.contains(said), "no {said:?} in\n{error}");
    }
}

#[test]
fn lines_that_a_core_has_lost_have_a_price_and_a_number_or_neither() {
    let source = "source = \"assumed: test\"";
    let with = |cached: Option<f64>, own: &str| {
        let cached = cached.map_or(String::new(), |ns| {
            format!("cached = {{ ns = {ns}, {source} }}")
        });
        let text = ROUND
            .replacen("[lines]", &format!("[lines]\n{cached}"), 1)
            .replacen("[processor]", &format!("[processor]\n{own}"), 1);
        Description::parse(&text, "mine.toml")
    };
    let own = format!("own_cache = {{ count = 512, {source} }}");
    let exposed = format!("exposed = {{ share = 0.5, {source} }}");
    let whole =
        with(Some(12.0), &format!("{own}\n{exposed}")).unwrap_or_else(|error| panic!("{error}"));
    let again = Description::parse(&whole.to_string(), "printed.toml");
    assert_eq!(again.unwrap_or_else(|error| panic!("{error}")), whole);
    let cases = [
        (
            with(None, &own),
            "lines.cached: missing: expected, because there is processor.own_cache",
        ),
        (
            with(Some(12.0), ""),
            "processor.own_cache: missing: expected, because there is lines.cached",
        ),
        (with(Some(1e6), &own), "lines.cached"),
        (
            with(None, &exposed),
            "processor.exposed: is of lines that are lost",
        ),
        (with(Some(0.01), &own), "lines.cached"),
    ];
    for (found, said) in cases {
        let error = found.expect_err("wrong").to_string();
        assert!(error.contains(said), "no {said:?} in\n{error}");
    }
}

/// A guest's table of translation, with a second level for pages of 4 KiB.
const TRANSLATION: &str = r#"
[translation]
levels = { count = 4, source = "assumed: test" }
memory = { ns = 100, source = "assumed: test" }
walk = { ns = 3, source = "assumed: test" }

[[translation.tlb]]
level = 1
holds = "all"
pages = ["4K", "2M"]
entries = { count = 64, source = "assumed: test" }
ways = { count = 4, source = "assumed: test" }

[[translation.tlb]]
level = 2
holds = "data"
pages = ["4K"]
entries = { count = 512, source = "assumed: test" }
ways = { count = 8, source = "assumed: test" }
hit = { ns = 3, source = "assumed: test" }

[[translation.walk_cache]]
level = 2
entries = { count = 32, source = "assumed: test" }
ways = { count = 4, source = "assumed: test" }

[[translation.cache]]
size = { count = 32, source = "assumed: test" }
hit = { ns = 1, source = "assumed: test" }

[translation.nested]
pages = "4K"
source = "assumed: test"
levels = { count = 4, source = "assumed: test" }
entries = { count = 16, source = "assumed: test" }
ways = { count = 16, source = "assumed: test" }
"#;

#[test]
fn translation_may_be_there_or_not_and_what_is_wrong_with_it_is_said() {
    let plain = Description::parse(ROUND, "mine.toml").expect("it is right");
    assert_eq!(plain.translation, None);
    let parse = |text: &str| Description::parse(&format!("{ROUND}{text}"), "mine.toml");
    let whole = parse(TRANSLATION).unwrap_or_else(|error| panic!("{error}"));
    let figures = whole.figures().len() - plain.figures().len();
    assert_eq!(figures, 3 + 2 + 3 + 2 + 2 + 3);
    let again = Description::parse(&whole.to_string(), "printed.toml");
    assert_eq!(again.unwrap_or_else(|error| panic!("{error}")), whole);
    let cases = [
        (
            "holds = \"all\"",
            "holds = \"text\"",
            "unknown variant `text`",
        ),
        ("\"4K\", \"2M\"", "\"8K\"", "unknown variant `8K`"),
        (
            "level = 1",
            "level = 0",
            "translation.tlb.1.level: 0: expected 1 to 3",
        ),
        (
            "\"4K\", \"2M\"",
            "\"2M\", \"4K\"",
            "translation.tlb.1.pages: expected sizes of pages, ascending",
        ),
        (
            "\"4K\", \"2M\"",
            "\"2M\"",
            "translation.tlb: expected one of level 1 that holds data and 4K",
        ),
        (
            "hit = { ns = 3, source = \"assumed: test\" }",
            "",
            "translation.tlb.2.hit: expected of levels after the first",
        ),
        (
            "count = 64",
            "count = 66",
            "translation.tlb.1.ways: 4: expected a divisor of 66 entries",
        ),
        (
            "count = 512, source = \"assumed: test\"",
            "count = 512, source = \"a guess\"",
            "translation.tlb.2.entries.source: \"a guess\"",
        ),
        (
            "count = 512",
            "count = 1e9",
            "translation.tlb.2.entries.count: 1000000000: expected 1 to 65536",
        ),
        (
            "[[translation.walk_cache]]\nlevel = 2",
            "[[translation.walk_cache]]\nlevel = 5",
            "translation.walk_cache.1.level: 5: expected 2 to 4",
        ),
        (
            "ns = 100",
            "ns = 0.5",
            "translation.cache: expected sizes and times that ascend",
        ),
        (
            "[translation.nested]\npages = \"4K\"",
            "[translation.nested]\npages = \"64K\"",
            "translation.nested.pages: 64K: expected 4K or 2M",
        ),
        (
            "pages = \"4K\"\nsource = \"assumed: test\"",
            "pages = \"4K\"\nsource = \"somebody\"",
            "translation.nested.source: \"somebody\": expected",
        ),
    ];
    for (from, to, said) in cases {
        assert!(TRANSLATION.contains(from), "{from}");
        let error = parse(&TRANSLATION.replacen(from, to, 1)).expect_err(to);
        assert!(
            error.to_string().contains(said),
            "{to}: no {said:?} in\n{error}"
        );
    }
}
