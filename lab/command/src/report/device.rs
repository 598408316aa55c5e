//! Devices whose time is modelled, and what it comes to beside CPU time.

use vellum_engine::DeviceModel;
use vellum_results::compare::{self, Device};
use vellum_results::{Arms, replay};

use crate::compare::Pass;
use crate::stats::median;

/// Counters of the time of a device.
const TIMES: [&str; 2] = ["device: ns of reads", "device: ns of writes"];

/// The device of that name.
pub fn named(name: &str) -> Option<Device> {
    let model = DeviceModel::named(name)?;
    Some(Device {
        name: name.to_owned(),
        read_ns: model.read_ns,
        write_ns: model.write_ns,
        bytes_per_s: model.bytes_per_s,
    })
}

/// How it is modelled.
pub fn model(device: &Device) -> DeviceModel {
    DeviceModel {
        read_ns: device.read_ns,
        write_ns: device.write_ns,
        bytes_per_s: device.bytes_per_s,
    }
}

/// What it is like, in words.
pub fn sentence(device: &Device) -> String {
    sentence_of(&device.name, &model(device))
}

/// What a device of that name is like.
pub fn sentence_of(name: &str, device: &DeviceModel) -> String {
    format!(
        "Pages leave for and come from a device called {name}: {} us for a read, {} us for a \
         write, {} MB/s, one request at a time. Whoever asks waits for it.",
        device.read_ns as f64 / 1e3,
        device.write_ns as f64 / 1e3,
        device.bytes_per_s / 1_000_000,
    )
}

/// Time that a device took, by the counters of an engine, in nanoseconds.
pub fn device_ns<'c>(counters: impl Iterator<Item = (&'c str, u64)>) -> u64 {
    let times = counters.filter(|(name, _)| TIMES.contains(name));
    times.map(|(_, ns)| ns).sum()
}

/// What a replay took that took `core_ns` on so many CPUs, and counted that.
pub fn of_replay<'c>(
    device: Device,
    counters: impl Iterator<Item = (&'c str, u64)>,
    core_ns: u64,
    cpus: usize,
) -> replay::WithDevice {
    let device_ns = device_ns(counters);
    replay::WithDevice {
        device,
        device_ns,
        elapsed_ns: (cpus == 1).then_some(core_ns + device_ns),
    }
}

/// What arms took that took so much CPU time on so many CPUs.
pub fn of_arms(
    device: Device,
    passes: &[Pass],
    cpu_ns: [f64; 3],
    cpus: usize,
) -> compare::WithDevice {
    let of_arm = |arm: usize| {
        let passes = passes.iter();
        let times = passes.map(|pass| device_ns(pass.counters[arm].iter().copied()) as f64);
        median(&times.collect::<Vec<f64>>()).unwrap_or(0.0)
    };
    compare::WithDevice {
        device,
        device_ns: Arms::of(of_arm),
        elapsed_ns: (cpus == 1).then(|| Arms::of(|arm| cpu_ns[arm] + of_arm(arm))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COUNTERS: [(&str, u64); 4] = [
        ("faults", 9),
        ("device: ns of reads", 40),
        ("device: pages read", 3),
        ("device: ns of writes", 2),
    ];

    #[test]
    fn one_cpu_waits_for_the_device_and_several_may_work_meanwhile() {
        let disk = named("disk").expect("there is one");
        assert!(named("tape").is_none());
        assert_eq!(Some(model(&disk)), DeviceModel::named("disk"));
        let one = of_replay(disk.clone(), COUNTERS.into_iter(), 100, 1);
        assert_eq!((one.device_ns, one.elapsed_ns), (42, Some(142)));
        let two = of_replay(disk, COUNTERS.into_iter(), 100, 2);
        assert_eq!((two.device_ns, two.elapsed_ns), (42, None));
    }

    #[test]
    fn arms_have_the_median_of_their_passes() {
        let pass = |ns: u64| Pass {
            counters: vec![vec![("device: ns of reads", ns)]; 3],
            ..Pass::default()
        };
        let nvme = named("nvme").expect("there is one");
        let passes = [pass(10), pass(90), pass(20)];
        let arms = of_arms(nvme, &passes, [1.0, 2.0, 3.0], 1);
        assert_eq!(arms.device_ns.b, 20.0);
        let elapsed = arms.elapsed_ns.expect("one CPU");
        assert_eq!((elapsed.a, elapsed.b, elapsed.control), (21.0, 22.0, 23.0));
    }
}
