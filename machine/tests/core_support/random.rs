//! Random operation sequences over many spaces and CPUs, driven from one
//! thread: after each, what the core shows is compared with a model that
//! shares nothing with it. CPUs change from operation to operation, so a
//! forgotten flush leaves a translation behind that a later access uses.
//!
//! `VELLUM_CASES` sets the number of cases, `VELLUM_SEED` the only case to
//! run, `VELLUM_LENGTH` the operations of a case.

use super::run::run_cases;

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(
        text.parse()
            .unwrap_or_else(|_| panic!("{name}={text}: expected a number")),
    )
}

#[test]
fn random_sequences_match_the_model() {
    let length = number("VELLUM_LENGTH").unwrap_or(150) as usize;
    if let Some(seed) = number("VELLUM_SEED") {
        run_cases(std::iter::once(seed), length);
        return;
    }
    let cases = number("VELLUM_CASES").unwrap_or(180);
    let shortages = run_cases(0..cases, length);
    assert!(
        cases < 60 || shortages > 0,
        "memory never ran out: the small machines are too large"
    );
}
