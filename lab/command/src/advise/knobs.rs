//! What can be changed by a setting of Linux or by another kernel, and which option of a design
//! stands for it.

use vellum_results::advise::Audience;

/// How a change is made on this machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OnHost {
    /// Huge pages of 2 MiB wherever they fit, as with THP `always`.
    Thp,
    /// Large folios of so many KiB, as with a size of mTHP set to `always`.
    Mthp(u32),
}

/// Something that can be changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Knob {
    /// What it is.
    pub what: &'static str,
    /// Who can change it.
    pub audience: Audience,
    /// The option that stands for it; the default of each option is what it is held against.
    pub design: &'static str,
    /// How it is changed on this machine, if it can be.
    pub on_host: Option<OnHost>,
    /// How to try it.
    pub how: &'static [&'static str],
}

const THP: &str = "/sys/kernel/mm/transparent_hugepage";

/// Where THP is set.
pub fn thp_directory() -> &'static str {
    THP
}

/// All of them.
pub const KNOBS: [Knob; 7] = [
    Knob {
        what: "THP always instead of never (huge pages of 2 MiB)",
        audience: Audience::User,
        design: "superpage=eager",
        on_host: Some(OnHost::Thp),
        how: &[
            "echo always | sudo tee /sys/kernel/mm/transparent_hugepage/enabled",
            "or for one program: madvise(MADV_HUGEPAGE); glibc's malloc does so with \
             GLIBC_TUNABLES=glibc.malloc.hugetlb=1 where THP is `madvise`",
        ],
    },
    Knob {
        what: "mTHP of 16 KiB",
        audience: Audience::User,
        design: "folio=16k",
        on_host: Some(OnHost::Mthp(16)),
        how: &["echo always | sudo tee \
                /sys/kernel/mm/transparent_hugepage/hugepages-16kB/enabled"],
    },
    Knob {
        what: "mTHP of 64 KiB",
        audience: Audience::User,
        design: "folio=64k",
        on_host: Some(OnHost::Mthp(64)),
        how: &["echo always | sudo tee \
                /sys/kernel/mm/transparent_hugepage/hugepages-64kB/enabled"],
    },
    Knob {
        what: "mTHP of 256 KiB",
        audience: Audience::User,
        design: "folio=256k",
        on_host: Some(OnHost::Mthp(256)),
        how: &["echo always | sudo tee \
                /sys/kernel/mm/transparent_hugepage/hugepages-256kB/enabled"],
    },
    Knob {
        what: "fault-around of 256 KiB instead of 64",
        audience: Audience::Builder,
        design: "faultaround=64",
        on_host: None,
        how: &["echo 262144 | sudo tee /sys/kernel/debug/fault_around_bytes"],
    },
    Knob {
        what: "reverse mapping by a list of entries for each page instead of by regions",
        audience: Audience::Builder,
        design: "rmap=chains",
        on_host: None,
        how: &["vellum compare TRACE --a rmap=family --b rmap=chains -n 12"],
    },
    Knob {
        what: "fork that copies all entries of page tables, those of files, too",
        audience: Audience::Builder,
        design: "forkcopy=all",
        on_host: None,
        how: &["vellum compare TRACE --a forkcopy=needed --b forkcopy=all -n 12"],
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_knob_stands_for_an_option_that_is_not_the_default() {
        for knob in &KNOBS {
            let (name, value) = knob.design.split_once('=').expect("an option");
            let mut options = vellum_engine::options().iter();
            let option = options.find(|option| option.name == name);
            let option = option.unwrap_or_else(|| panic!("{name}: no such option"));
            assert_ne!(option.default, value, "{name}");
            assert!(
                vellum_engine::pages_of(knob.design).is_ok(),
                "{}",
                knob.design
            );
            assert!(!knob.how.is_empty());
        }
    }
}
