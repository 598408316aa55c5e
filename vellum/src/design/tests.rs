use super::*;
use alloc::string::ToString;

use crate::rmap::ReverseMap;
use crate::table::Format;

#[test]
fn what_display_writes_parse_reads() {
    for info in OPTIONS {
        for value in info.values {
            let design = Design::parse(&format!("{}={value}", info.name)).unwrap();
            assert_eq!(Design::parse(&design.to_string()).unwrap(), design);
            assert!(
                design
                    .to_string()
                    .contains(&format!("{}={value}", info.name))
            );
        }
    }
}

#[test]
fn defaults_in_the_table_are_the_defaults() {
    let mut text = String::new();
    for info in OPTIONS {
        let _ = write!(text, "{}={},", info.name, info.default);
    }
    assert_eq!(Design::parse(&text).unwrap(), Design::default());
    assert_eq!(Design::default().to_string() + ",", text);
}

#[test]
fn commas_and_blanks_separate_alike() {
    let design = Design::parse("rmap=chains,faultaround=64").unwrap();
    assert_eq!((design.rmap, design.fault_around), (Rmap::Chains, 64));
    for text in [
        "rmap=chains faultaround=64",
        "rmap=chains, faultaround=64",
        " rmap=chains ,\tfaultaround=64,\n",
    ] {
        assert_eq!(Design::parse(text).unwrap(), design, "{text:?}");
    }
}

#[test]
fn a_refusal_names_the_valid_values() {
    let error = Design::parse("rmap=chain").unwrap_err();
    assert!(error.0.contains("chains, partial, "), "{error}");
    let error = Design::parse("remap=chains").unwrap_err();
    assert!(error.0.contains(" rmap "), "{error}");
    assert!(Design::parse("rmap").is_err());
}

#[test]
fn types_have_the_names_of_the_values_that_select_them() {
    for &rmap in Rmap::ALL {
        crate::with_rmap!(rmap, R => assert_eq!(R::NAME, rmap.name()));
    }
    for &format in TableFormat::ALL {
        crate::with_format!(format, F => assert_eq!(F::NAME, format.name()));
    }
}

#[test]
fn options_matter_with_values_that_exist() {
    for info in OPTIONS {
        let Some((of, values)) = info.only_with else {
            continue;
        };
        let of = OptionInfo::named(of).expect("an option");
        assert!(values.iter().all(|value| of.values.contains(value)));
    }
}

#[test]
fn variants_are_all_values_and_what_changes_them() {
    let rmaps = variants("rmap");
    for name in Rmap::ALL.iter().map(|rmap| rmap.name()) {
        assert!(rmaps.contains(&format!("rmap={name}")), "{rmaps:?}");
    }
    for also in [
        "rmap=chains,direct=off",
        "rmap=partial,direct=off",
        "rmap=family,hint=off",
        "rmap=family,kinstamp=off,hint=off",
    ] {
        assert!(rmaps.iter().any(|design| design == also), "{rmaps:?}");
    }
    assert!(
        !rmaps
            .iter()
            .any(|design| design.starts_with("rmap=anonmm,"))
    );
    let designs = rmaps.iter().map(|design| Design::parse(design).unwrap());
    let designs: Vec<Design> = designs.collect();
    for (number, design) in designs.iter().enumerate() {
        assert!(!designs[..number].contains(design), "{design} comes twice");
    }
    assert!(variants("colour").is_empty());
}
