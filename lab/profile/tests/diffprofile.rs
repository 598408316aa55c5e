//! Profiles are read, compared, and printed as those that were posted.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

use vellum_profile::Profile;
use vellum_profile::diffprofile::{Options, Shown, body, diffprofile, text};
use vellum_profile::groups::Groups;
use vellum_profile::read::{self, Options as ReadOptions};

/// The profiles posted to linux-kernel on 22 March 2003.
const POSTED: &str = include_str!("data/diffprofile-2003-03-22.txt");

/// A posted list and the ticks below which it left lines out.
fn posted(workload: &str) -> (&'static str, u64) {
    let second = POSTED.find("diffprofile (sdet").expect("two lists");
    match workload {
        "kernbench" => (&POSTED[..second], 31),
        _ => (&POSTED[second..], 50),
    }
}

/// readprofile's text of the old and the new kernel from which a posted list may
/// have come.
fn reconstructed(list: &str) -> [String; 2] {
    let mut profiles = [String::new(), String::new()];
    let mut add = |name: &str, ticks: [u64; 2]| {
        for (profile, ticks) in profiles.iter_mut().zip(ticks) {
            if ticks > 0 {
                let _ = writeln!(profile, "{ticks:6} {name:<40} {:.4}", ticks as f64 / 1000.0);
            }
        }
    };
    // Lines that were not posted because little changed in them.
    add("schedule", [5000, 5003]);
    add("sys_read", [900, 880]);
    for line in list.lines().skip(1).filter(|line| *line != "...") {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let delta: i64 = fields[0].parse().expect("ticks");
        let percent: f64 = fields[1].trim_end_matches('%').parse().expect("percent");
        let old = match percent {
            0.0 => 0,
            -100.0 => -delta,
            _ => (100.0 * delta as f64 / percent).round() as i64,
        };
        let rounds = |old: i64| {
            format!("{:.1}", 100.0 * delta as f64 / old as f64) == format!("{percent:.1}")
        };
        let near = (0..1000).flat_map(|step| [old - step, old + step]);
        let old = match percent {
            0.0 => 0,
            _ => near
                .into_iter()
                .find(|old| *old > 0 && rounds(*old))
                .expect("some old value"),
        };
        add(fields[2], [old as u64, (old + delta) as u64]);
    }
    profiles
}

fn read(text: &str) -> Profile {
    read::text(text.as_bytes(), Path::new("p"), ReadOptions::default()).expect("read")
}

#[test]
fn the_posted_profiles_come_out_byte_for_byte() {
    for workload in ["kernbench", "sdet"] {
        let (list, threshold) = posted(workload);
        let [old, new] = reconstructed(list);
        let options = Options {
            shown: Shown::AtLeast(threshold),
            groups: Groups::none(),
            title: workload.to_owned(),
            ..Options::new("-mm3")
        };
        let difference = diffprofile(&read(&old), &read(&new), &options);
        assert_eq!(text(&difference, &options), list, "{workload}");
    }
}

#[test]
fn rmap_sums_of_the_posted_profiles_are_what_the_lines_add_up_to() {
    for (workload, sum, dirty) in [("kernbench", 122, -2), ("sdet", -1937, 16)] {
        let [old, new] = reconstructed(posted(workload).0);
        let given = ["dirty=set_page_dirty".to_owned()];
        let options = Options {
            groups: Groups::built_in().preceded_by(&given).expect("a group"),
            ..Options::new("-mm3")
        };
        let diff = diffprofile(&read(&old), &read(&new), &options);
        assert_eq!(diff.group("rmap").expect("rmap").delta, sum, "{workload}");
        // One function under two names: +1508 and -1492 are +16.
        assert_eq!(
            diff.group("dirty").expect("dirty").delta,
            dirty,
            "{workload}"
        );
    }
}

#[test]
fn a_real_capture_of_perf_script_is_read() {
    let capture = include_bytes!("data/perf-script-chains.txt");
    let profile = read::text(&capture[..], Path::new("capture"), ReadOptions::default());
    let profile = profile.expect("read");
    let headers = String::from_utf8_lossy(capture)
        .lines()
        .filter(|line| line.contains("cpu-clock:"))
        .count();
    assert_eq!(profile.total(), headers as u64);
    assert!(profile.has_callers());
    let flat: BTreeMap<&str, u64> = profile.flat();
    assert!(flat.contains_key("exc_page_fault"), "{flat:?}");
}

#[test]
fn a_threshold_keeps_only_what_changed_by_as_much() {
    let mut profiles = [Profile::new("old"), Profile::new("new")];
    for (name, ticks) in [
        ("a", [10, 60]),
        ("b", [10, 59]),
        ("c", [70, 20]),
        ("d", [69, 20]),
    ] {
        for (profile, ticks) in profiles.iter_mut().zip(ticks) {
            profile.add(vec![name.into()], ticks);
        }
    }
    let options = Options {
        shown: Shown::AtLeast(50),
        ..Options::new("new")
    };
    let lines = body(&diffprofile(&profiles[0], &profiles[1], &options), &options);
    assert_eq!(
        lines,
        ["        50   500.0% a", "...", "       -50   -71.4% c"]
    );
}
