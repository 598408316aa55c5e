//! The list fits the sources, and rewriting does what it says.

use std::path::Path;

use crate::list::{self, Mutant};
use crate::{report, root, tree};

fn mutant(original: &str, mutated: &str, after: Option<&str>) -> Mutant {
    Mutant {
        name: original.into(),
        file: "a.rs".into(),
        after: after.map(Into::into),
        original: original.into(),
        mutated: mutated.into(),
        why: "it is wrong".into(),
        equivalent: None,
        finding: false,
    }
}

fn rewritten(text: &str, mutants: &[Mutant]) -> Result<String, String> {
    let numbered: Vec<_> = mutants.iter().enumerate().collect();
    let text = tree::rewrite(text, &numbered)?;
    Ok(text.split_whitespace().collect::<Vec<_>>().join(" "))
}

#[test]
fn test_programs_are_where_they_are_looked_for() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
    for (package, folder, _) in crate::programs::PROGRAMS {
        let manifest = root.join(folder).join("Cargo.toml");
        let text = std::fs::read_to_string(&manifest)
            .unwrap_or_else(|error| panic!("{}: {error}", manifest.display()));
        assert!(text.contains(&format!("name = \"{package}\"")), "{folder}");
    }
}

#[test]
fn every_mutant_of_the_list_fits_the_sources() {
    let mutants = list::read(&root()).unwrap();
    tree::check(&root(), &mutants).unwrap();
    assert!(mutants.len() >= 150, "{} mutants", mutants.len());
}

#[test]
fn expressions_are_chosen_in_parentheses_and_statements_without() {
    let mutants = [mutant("a + 1", "a", None), mutant("drop(b);", "", None)];
    assert_eq!(
        rewritten("f(a + 1); drop(b);", &mutants).unwrap(),
        "f((if crate::mutants::is(0) { a } else { a + 1 })); \
         if crate::mutants::is(1) { } else { drop(b); }"
    );
}

#[test]
fn a_mutant_that_cuts_an_expression_is_named() {
    let cut = mutant(".get(1)", ".get(2)", None);
    let error = tree::parses("fn f() { g().get(1) }", &[(0, &cut)]).unwrap_err();
    assert!(
        error.starts_with("mutant `.get(1)` of a.rs: with it the file is no Rust"),
        "{error}"
    );
    let whole = mutant("g().get(1)", "g().get(2)", None);
    tree::parses("fn f() { g().get(1) }", &[(0, &whole)]).unwrap();
}

#[test]
fn of_a_condition_the_keyword_and_the_brace_stay() {
    let mutants = [mutant("if a {", "if b {", None)];
    let text = rewritten("if a { c() }", &mutants).unwrap();
    assert_eq!(
        text,
        "if (if crate::mutants::is(0) { b } else { a }) { c() }"
    );
}

#[test]
fn mutants_share_a_place_or_lie_within_one_another() {
    let mutants = [
        mutant("x", "y", None),
        mutant("f(x)", "1", None),
        Mutant {
            name: "other".into(),
            ..mutant("f(x)", "2", None)
        },
    ];
    assert_eq!(
        rewritten("f(x)", &mutants).unwrap(),
        "(if crate::mutants::is(1) { 1 } else if crate::mutants::is(2) { 2 } else { \
         f((if crate::mutants::is(0) { y } else { x })) })"
    );
}

#[test]
fn an_anchor_tells_equal_texts_apart() {
    let mutants = [mutant("x", "y", Some("second"))];
    let text = rewritten("first x second x third x", &mutants).unwrap();
    assert!(text.starts_with("first x second (if"), "{text}");
    assert!(text.ends_with("third x"), "{text}");
}

#[test]
fn a_text_that_is_missing_or_not_unique_names_the_mutant() {
    for (text, why) in [("b", "is not in the file"), ("a a", "more than once")] {
        let error = rewritten(text, &[mutant("a", "c", None)]).unwrap_err();
        assert!(
            error.contains("mutant `a` of a.rs") && error.contains(why),
            "{error}"
        );
    }
    let error = rewritten("a b", &[mutant("a", "c", Some("b"))]).unwrap_err();
    assert!(error.contains("does not follow"), "{error}");
    let cut = [mutant("a b", "c", None), mutant("b c", "d", None)];
    assert!(rewritten("a b c", &cut).unwrap_err().contains("overlap"));
}

#[test]
fn a_list_with_an_unknown_field_or_without_effect_is_refused() {
    let entry = "[[mutant]]\nname = 'n'\nfile = 'f'\noriginal = 'a'\nwhy = 'w'\n";
    assert!(list::parse(&format!("{entry}mutated = 'b'")).is_ok());
    assert!(list::parse(&format!("{entry}mutated = 'a'")).is_err());
    assert!(list::parse(&format!("{entry}mutated = 'b'\nothr = 1")).is_err());
    let binding = entry.replace("'a'", "'let a = 1;'");
    assert!(list::parse(&format!("{binding}mutated = ''")).is_err());
    let cut = entry.replace("'a'", "'if a { b();'");
    assert!(list::parse(&format!("{cut}mutated = ''")).is_err());
    let arm = entry.replace("'a'", "'A => a,'");
    assert!(list::parse(&format!("{arm}mutated = 'A => b,'")).is_err());
    let condition = entry.replace("'a'", "'while a {'");
    assert!(list::parse(&format!("{condition}mutated = 'loop {{'")).is_err());
    assert!(list::parse(&format!("{condition}mutated = ''")).is_err());
    let condition = entry.replace("'a'", "'if a {'");
    assert!(list::parse(&format!("{condition}mutated = 'if !a {{'")).is_ok());
}

#[test]
fn a_share_is_enough_from_98_percent_on() {
    assert!(report::is_enough(98, 100) && report::is_enough(49, 50) && report::is_enough(0, 0));
    assert!(!report::is_enough(97, 100) && !report::is_enough(48, 49));
}
