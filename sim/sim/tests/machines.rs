//! How many CPUs of a description a simulation may have.

mod common;

use common::{flat, parse, text};
use vellum_sim::Simulation;

#[test]
fn no_machine_has_more_cpus_than_its_description() {
    let machine = flat(4);
    assert!(Simulation::new(&machine, 4).is_ok());
    for asked in [0, 5] {
        let error = Simulation::new(&machine, asked).expect_err("not 1 to 4");
        assert!(
            error.to_string().contains(&format!("{asked} CPUs")),
            "{error}"
        );
        assert!(error.to_string().contains("has 4"), "{error}");
    }
    assert_eq!(parse(&text(2, 4, 2, "")).cpus(), 16);
}
