//! Whether a machine can be simulated.

use vellum_description::Description;
use vellum_terminal::progress::{Interrupt, Style};

use super::Missing;
use crate::scale::{self, Kept};

pub(super) fn simulate() -> Result<String, Missing> {
    let name = "numa-q-16";
    let machine = Description::named(name).map_err(|error| Missing::new(error.to_string(), ""))?;
    let workload = vellum_scale::WORKLOADS.first();
    let workload = workload.ok_or_else(|| Missing::new("there is no workload", ""))?;
    let plan = scale::Plan {
        machine_name: name.to_owned(),
        machine,
        workload,
        cpus: vec![1, 2],
        designs: vec!["rmap=family".to_owned()],
        seeds: vec![1],
        warm_up_ns: vellum_scale::WARM_UP_NS,
        window_ns: 10_000,
        jobs: 1,
    };
    let interrupt = Interrupt::manual();
    let found = scale::measure(&plan, &mut Kept::default(), Style::Quiet, &interrupt);
    let found = found.map_err(|failure| Missing::new(failure.message(), ""))?;
    match found.control == 1.0 {
        true => Ok(format!(
            "{} machines described; the same seed repeats",
            vellum_description::SHIPPED.len()
        )),
        false => Err(Missing::new(
            "the same seed does not give the same result",
            "",
        )),
    }
}
