//! Pages as text: what is on them, what stays text, how large they become.

use serde_json::{Value, json};
use vellum_page::{Overview, headline, render};
use vellum_results::{Loaded, ReadError};

#[path = "results/mod.rs"]
mod results;

use results::{ALL, read, value};

fn page(results: &[Loaded]) -> String {
    render(results, &Overview::default())
}

fn of(value: Value) -> String {
    page(&[Loaded::of_value("result.json", value).expect("a result")])
}

#[test]
fn every_kind_of_result_says_how_it_was_made() {
    for name in ALL {
        let result = read(name);
        let page = page(std::slice::from_ref(&result));
        assert!(page.contains("How it was made"), "{name}");
        assert!(!headline(&result).sentence.is_empty(), "{name}");
        // Results of `replay --save` have no run of their own.
        if name != "saved" {
            assert!(page.contains("vellum "), "{name}");
            assert!(page.contains("2026-11-24T"), "{name}");
            assert!(
                page.contains("AMD EPYC, 2 CPUs, 23.5 GiB, Linux 6.18.44"),
                "{name}"
            );
        }
    }
    let page = page(&[read("compare")]);
    assert!(page.contains("3f513185599996c905ff923c57b8fb61d8ef36e166856b6856ab5e3d9a852088"));
    assert!(
        page.contains("recorded from"),
        "the trace says which command it is of"
    );
}

#[test]
fn several_results_begin_with_their_answers() {
    let page = page(&[read("compare"), read("bench"), read("scale")]);
    assert!(page.contains("<h1>3 results</h1>"));
    let answers = page.find("the answers;").expect("a table of answers");
    assert!(answers < page.find("<main").expect("results"));
    for number in 0..3 {
        assert!(page.contains(&format!("href=\"#result-{number}\"")));
        assert!(page.contains(&format!("<article id=\"result-{number}\"")));
    }
}

#[test]
fn nothing_on_a_page_comes_from_elsewhere() {
    for name in ALL {
        let page = page(&[read(name)]);
        for (place, _) in page.match_indices("http") {
            let rest = &page[place..];
            let harmless = rest.starts_with("http-equiv")
                // The names of SVG's elements, which nobody asks a server for.
                || rest.starts_with("http://www.w3.org/2000/svg");
            assert!(harmless, "{name}: {}", &rest[..60]);
        }
        for forbidden in ["<script src", "@import", "url(", "<img", "<iframe"] {
            assert!(!page.contains(forbidden), "{name}: {forbidden}");
        }
    }
}

/// Every text of a result replaced by one that is dangerous where it is not escaped.
fn poisoned(value: &mut Value, poison: &str) {
    // Words that say what a result is, not how something is called.
    const WORDS: [&str; 12] = [
        "schema", "outcome", "less", "reasons", "verdict", "pass", "on", "is", "stack", "audience",
        "basis", "said",
    ];
    match value {
        Value::String(text) => *text = format!("{text}{poison}"),
        Value::Array(values) => values.iter_mut().for_each(|value| poisoned(value, poison)),
        Value::Object(fields) => {
            for (name, value) in fields {
                if !WORDS.contains(&name.as_str()) {
                    poisoned(value, poison);
                }
            }
        }
        _ => {}
    }
}

#[test]
fn names_that_are_markup_stay_text_wherever_they_are() {
    let poison = "\"'><script>alert(1)</script><img src=x onerror=alert(2)>&lt;";
    for name in ALL {
        let clean = page(&[read(name)]);
        let mut value = value(name);
        poisoned(&mut value, poison);
        let page = of(value);
        let tags = |page: &str, tag: &str| page.matches(tag).count();
        assert!(
            tags(&page, "&lt;script&gt;") > 3,
            "{name}: the names are on the page"
        );
        assert_eq!(tags(&page, "<script"), tags(&clean, "<script"), "{name}");
        assert_eq!(tags(&page, "<img"), 0, "{name}");
        // An attribute could be left by a quotation mark only.
        let escaped = page.matches("alert(1)").count();
        let whole = page
            .matches("&lt;script&gt;alert(1)&lt;/script&gt;")
            .count();
        assert_eq!(escaped, whole, "{name}");
    }
}

#[test]
fn a_comparison_of_2000_slices_stays_under_3_megabytes() {
    let mut value = value("compare");
    let numbers = |of: fn(u64) -> u64| (0..2000).map(of).collect::<Vec<u64>>();
    value["slices"] = 2000.into();
    value["along"]["ops"] = json!((1..=2000).map(|n| n * 5000).collect::<Vec<u64>>());
    value["along"]["events"] = json!((1..=2000).map(|n| n * 4900).collect::<Vec<u64>>());
    for (arm, of) in [
        ("a", (|n| 1_000_000 + n * 7919 % 1000) as fn(u64) -> u64),
        ("b", |n| 900_000 + n * 104_729 % 1000),
        ("control", |n| 1_000_000 + n * 1_299_709 % 1000),
    ] {
        value["along"]["cpu_ns"][arm] = json!(numbers(of));
    }
    let page = of(value);
    assert!(page.len() < 3_000_000, "{} bytes", page.len());
    // All of them are there.
    let longest = page
        .split(" d=\"")
        .skip(1)
        .map(|path| path.matches('L').count());
    assert!(longest.max() >= Some(2000));
}

#[test]
fn figures_that_are_not_defined_are_left_out() {
    let mut value = value("bench");
    for arm in 1..3 {
        let figure = &mut value["runs"][0]["figures"][0]["arms"][arm];
        figure["ratio"] = Value::Null;
        figure["value"] = Value::Null;
    }
    let page = of(value);
    let drawn = page
        .split("<svg")
        .skip(1)
        .flat_map(|svg| svg.split(['<', '>']));
    let wrong: Vec<&str> = drawn.filter(|tag| tag.contains("=\"NaN")).take(3).collect();
    assert!(wrong.is_empty(), "{wrong:?}");
}

#[test]
fn a_picture_of_its_own_has_the_answer_and_its_marks() {
    for name in ["compare", "scale", "sweep", "plan", "memory"] {
        let picture = vellum_page::picture(&read(name)).expect("it has one");
        assert!(picture.starts_with("<svg xmlns="), "{name}");
        assert!(picture.ends_with("</svg>\n"), "{name}");
        assert!(picture.matches("class=\"mark ").count() > 5, "{name}");
        assert!(picture.contains("prefers-color-scheme: dark"), "{name}");
        assert_eq!(
            picture.matches("http").count(),
            1,
            "{name}: the name of SVG's elements"
        );
    }
    let compare = vellum_page::picture(&read("compare")).expect("it has one");
    assert!(compare.contains("No difference proven between rmap=family and rmap=chains"));
    assert!(vellum_page::picture(&read("bench")).is_none());
}

#[test]
fn a_plan_of_memory_says_what_a_compressed_store_did() {
    let without = of(value("memory"));
    assert!(!without.contains("compressed store"));
    let mut with = value("memory");
    with["compressed_percent"] = json!(20);
    with["rows"][3]["compressed"] = json!({
        "taken": 61446, "same": 12968, "bytes_each": 1330, "incompressible": 3181,
        "written_back": 26077, "set_aside": 10380800,
    });
    let page = of(with);
    let (_, section) =
        (page.split_once("20 % are set aside for a compressed store")).expect("what is set aside");
    for cell in ["9.900", "61,446", "12,968", "1,330", "3,181", "26,077"] {
        assert!(section.contains(&format!(">{cell}<")), "{cell}");
    }
}

#[test]
fn elements_of_pictures_are_closed() {
    for name in ALL {
        let page = page(&[read(name)]);
        for tag in [
            "line", "path", "rect", "use", "svg", "text", "g", "title", "td", "th",
        ] {
            let opened = page.matches(&format!("<{tag} ")).count()
                + page.matches(&format!("<{tag}>")).count();
            let closed = page.matches(&format!("</{tag}>")).count();
            let by_itself = page.matches("/>").count();
            assert!(
                opened == closed || (by_itself > 0 && opened > closed),
                "{name}: {opened} <{tag}>, {closed} </{tag}>"
            );
        }
    }
}

#[test]
fn what_is_no_result_is_refused_with_its_name_and_what_was_expected() {
    let refused = |text: &str| {
        let error = Loaded::parse("some.json", text).expect_err("no result");
        (error.to_string(), error)
    };
    let (text, error) = refused("{\"schema\": ");
    assert!(matches!(error, ReadError::NotJson { .. }), "{text}");
    assert!(
        text.contains("some.json") && text.contains("line 1"),
        "{text}"
    );
    let (text, error) = refused("{}");
    assert!(matches!(error, ReadError::NoSchema { .. }), "{text}");
    let (text, error) = refused("{\"schema\": \"vellum-compare/9\"}");
    assert!(matches!(error, ReadError::UnknownSchema { .. }), "{text}");
    assert!(text.contains("vellum-compare/1"), "{text}");
    let (text, error) = refused("{\"schema\": \"vellum-compare/1\", \"version\": 5}");
    assert!(matches!(error, ReadError::Damaged { .. }), "{text}");
    assert!(text.contains("some.json"), "{text}");
}

#[test]
fn results_cut_off_or_changed_anywhere_give_an_error_or_a_page() {
    for name in ALL {
        let text = value(name).to_string();
        for parts in 1..20 {
            let end = text.len() * parts / 20;
            let end = (0..=end)
                .rev()
                .find(|&end| text.is_char_boundary(end))
                .unwrap_or(0);
            assert!(Loaded::parse("cut.json", &text[..end]).is_err(), "{name}");
        }
        // Lists that are shorter than others, and numbers that nobody measured.
        let mut odd = value(name);
        shortened(&mut odd);
        if let Ok(result) = Loaded::of_value("odd.json", odd) {
            assert!(page(&[result]).contains("</html>"), "{name}");
        }
    }
}

/// Every list without its last element.
fn shortened(value: &mut Value) {
    match value {
        Value::Array(values) => {
            values.pop();
            values.iter_mut().for_each(shortened);
        }
        Value::Object(fields) => {
            // A verdict that is not proven has a reason.
            let lists = fields.iter_mut().filter(|(name, _)| *name != "reasons");
            lists.for_each(|(_, value)| shortened(value));
        }
        _ => {}
    }
}

/// The luminance of a colour `#rrggbb`, as the guidelines for accessible pages define it.
fn luminance(colour: &str) -> f64 {
    let part = |place: usize| {
        let digits = &colour[1 + 2 * place..3 + 2 * place];
        let share = f64::from(u8::from_str_radix(digits, 16).expect("a colour")) / 255.0;
        match share <= 0.04045 {
            true => share / 12.92,
            false => ((share + 0.055) / 1.055).powf(2.4),
        }
    };
    0.2126 * part(0) + 0.7152 * part(1) + 0.0722 * part(2)
}

fn contrast(one: &str, other: &str) -> f64 {
    let (one, other) = (luminance(one), luminance(other));
    (one.max(other) + 0.05) / (one.min(other) + 0.05)
}

#[test]
fn text_and_marks_stand_out_in_light_and_dark() {
    let page = page(&[read("compare")]);
    let blocks: Vec<&str> = page.split(":root {").skip(1).collect();
    for (name, block) in [("light", blocks[0]), ("dark", blocks[1])] {
        let block = &block[..block.find('}').expect("a block")];
        let colour = |wanted: &str| {
            let mut found = block
                .split(';')
                .filter_map(|entry| entry.trim().split_once(": "));
            let found = found.find(|(key, _)| key.trim() == wanted).expect(wanted);
            found.1.to_owned()
        };
        let paper = colour("--paper");
        for text in ["--ink", "--soft", "--link", "--good", "--bad"] {
            let contrast = contrast(&paper, &colour(text));
            assert!(contrast >= 4.5, "{name} {text}: {contrast:.2}");
        }
        for text in ["--ink", "--soft"] {
            let contrast = contrast(&colour("--raised"), &colour(text));
            assert!(
                contrast >= 4.5,
                "{name} {text} on what is raised: {contrast:.2}"
            );
        }
        for arm in (0..7)
            .map(|arm| format!("--arm-{arm}"))
            .chain(["--control".to_owned()])
        {
            let contrast = contrast(&paper, &colour(&arm));
            assert!(contrast >= 3.0, "{name} {arm}: {contrast:.2}");
        }
        assert!(
            contrast(&colour("--warn-paper"), &colour("--warn-ink")) >= 4.5,
            "{name}"
        );
    }
}

#[test]
fn a_benchmark_on_a_simulated_machine_shows_every_load_with_its_block_and_ratios() {
    let simulated = value("simulated");
    let load = |title: &str| {
        let mut load = simulated.clone();
        load["load"] = json!(title);
        load["block"] = json!(format!("Kernbench: ({title}) <script>\n"));
        load["against_base"] = json!([simulated["comparison"]]);
        load
    };
    let page = of(json!({
        "schema": "vellum-sim-bench/1",
        "benchmark": "kernbench",
        "loads": [load("light"), load("heavy")],
        "interrupted": false,
    }));
    for part in [
        "Kernbench: (light) &lt;script&gt;",
        "Kernbench: (heavy) &lt;script&gt;",
        "B / A: the median of the seeds",
        "light: ",
        "of the system time of",
    ] {
        assert!(page.contains(part), "{part} in\n{page}");
    }
}
