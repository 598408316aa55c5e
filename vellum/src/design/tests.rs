use super::*;
use alloc::string::ToString;

use crate::rmap::ReverseMap;
use crate::table::Format;

#[test]
fn what_display_writes_parse_reads() {
    for info in OPTIONS {
        for value in info.built_in() {
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
    let design = Design::parse("forkcopy=all,faultaround=64").unwrap();
    assert_eq!((design.fork_copy, design.fault_around), (ForkCopy::All, 64));
    for text in [
        "forkcopy=all faultaround=64",
        "forkcopy=all, faultaround=64",
        " forkcopy=all ,\tfaultaround=64,\n",
    ] {
        assert_eq!(Design::parse(text).unwrap(), design, "{text:?}");
    }
}

#[test]
fn a_refusal_names_the_valid_values() {
    let error = Design::parse("aging=lur").unwrap_err();
    assert!(error.0.contains("lru, generations"), "{error}");
    let error = Design::parse("remap=family").unwrap_err();
    assert!(error.0.contains(" rmap "), "{error}");
    assert!(Design::parse("rmap").is_err());
}

#[cfg(feature = "published")]
#[test]
fn what_the_feature_brings_is_known_without_it() {
    let names = Rmap::ALL.iter().map(|rmap| rmap.name());
    let but_the_default: Vec<_> = names
        .filter(|name| *name != Design::default().rmap.name())
        .collect();
    assert_eq!(
        OptionInfo::named("rmap").unwrap().published,
        but_the_default
    );
    for info in OPTIONS {
        assert!(
            info.published
                .iter()
                .all(|value| info.values.contains(value))
        );
        assert!(!info.published.contains(&info.default));
    }
}

/// As values, too, which nothing has parsed.
#[cfg(not(feature = "published"))]
#[test]
fn what_is_not_built_in_is_refused_by_the_name_of_its_feature() {
    let published = OPTIONS.iter().flat_map(|info| {
        info.published
            .iter()
            .map(|value| format!("{}={value}", info.name))
    });
    let kernel = core::iter::once("as=linux-2.6.7".to_string());
    let mut refused = 0;
    for text in published.chain(kernel) {
        let error = Design::parse(&text).unwrap_err();
        assert!(
            error.0.contains(&text) && error.0.contains("feature `published`"),
            "{error}"
        );
        refused += 1;
    }
    assert!(refused > 10, "{refused}");
    let design = Design {
        file_io: FileIo::Pages,
        ..Design::default()
    };
    assert!(
        design
            .check_built_in()
            .unwrap_err()
            .0
            .contains("fileio=pages")
    );
    Design::default().check_built_in().unwrap();
}

#[cfg(feature = "published")]
#[test]
fn a_preset_gives_every_option_that_matters_to_it() {
    for (number, preset) in PRESETS.iter().enumerate() {
        let design = Design::parse(&format!("as={}", preset.name)).unwrap();
        assert_eq!(design, Design::parse(preset.settings).unwrap());
        let given: Vec<_> = preset.settings.split(',').collect();
        let value_of = |name: &str| {
            let mut pairs = given.iter().filter_map(|part| part.split_once('='));
            pairs.find(|pair| pair.0 == name).map(|pair| pair.1)
        };
        for info in OPTIONS {
            let matters = info.only_with.is_none_or(|(of, values)| {
                value_of(of).is_some_and(|value| values.contains(&value))
            });
            let times = given
                .iter()
                .filter(|part| part.starts_with(&format!("{}=", info.name)))
                .count();
            assert_eq!(
                times,
                usize::from(matters),
                "{}, {}",
                preset.name,
                info.name
            );
        }
        let before = &PRESETS[..number];
        assert!(before.iter().all(|other| other.name != preset.name));
        assert!(!preset.source.is_empty() && !preset.meaning.is_empty());
    }
}

#[cfg(feature = "published")]
#[test]
fn options_after_a_preset_change_it_and_it_sets_all_others() {
    let kernel = Design::parse("as=linux-2.5.65-mm2").unwrap();
    assert_eq!((kernel.rmap, kernel.fault_around), (Rmap::Partial, 1));
    assert_eq!(kernel.region_index, RegionIndex::List);
    assert_eq!(kernel.fork_copy, ForkCopy::All);
    let changed = Design::parse("as=linux-2.5.65-mm2,rmap=chains").unwrap();
    let rmap = Rmap::Chains;
    assert_eq!(changed, Design { rmap, ..kernel });
    let reset = Design::parse("faultaround=64 hint=off as=linux-2.5.65-mm2").unwrap();
    assert_eq!(reset, kernel);
    assert_eq!(Design::parse(&kernel.to_string()).unwrap(), kernel);
    let error = Design::parse("as=linux-1.0").unwrap_err();
    assert!(error.0.contains(" linux-2.6.8-ia64"), "{error}");
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
        let exists = |value| of.values.contains(value) || of.published.contains(value);
        assert!(values.iter().all(exists));
    }
}

#[test]
fn variants_are_all_values_and_what_changes_them() {
    let rmaps = variants("rmap");
    for name in Rmap::ALL.iter().map(|rmap| rmap.name()) {
        assert!(rmaps.contains(&format!("rmap={name}")), "{rmaps:?}");
    }
    for also in crate::testing::built_in([
        "rmap=chains,direct=off",
        "rmap=partial,direct=off",
        "rmap=family,hint=off",
        "rmap=family,kinstamp=off,hint=off",
    ]) {
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

#[test]
fn a_design_is_built_option_by_option_as_by_the_string() {
    let built = Design::default()
        .superpages(Superpages::Eager)
        .folio(Folio::UpTo64K)
        .reclaim(true)
        .page_aging(PageAging::Generations)
        .fault_around(4);
    let read =
        Design::parse("superpage=eager,folio=64k,reclaim=on,aging=generations,faultaround=4");
    assert_eq!(Ok(built), read);
}
