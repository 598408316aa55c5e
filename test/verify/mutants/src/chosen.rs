
/// Which mutant this process runs with.
#[doc(hidden)]
#[allow(missing_docs, unused, reason = "belongs to a scratch copy")]
pub mod mutants {
    extern crate std;

    use std::io::Write as _;
    use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

    const UNKNOWN: u32 = u32::MAX;
    const NONE: u32 = u32::MAX - 1;
    const RECORDING: u32 = u32::MAX - 2;

    static CHOSEN: AtomicU32 = AtomicU32::new(UNKNOWN);
    static REACHED: [AtomicBool; 4096] = [const { AtomicBool::new(false) }; 4096];

    /// Whether mutant `number` is the chosen one.
    #[inline]
    pub fn is(number: u32) -> bool {
        let chosen = CHOSEN.load(Ordering::Relaxed);
        chosen == number || chosen >= RECORDING && is_chosen(number)
    }

    #[cold]
    fn is_chosen(number: u32) -> bool {
        if CHOSEN.load(Ordering::Relaxed) == UNKNOWN {
            let number = std::env::var("VELLUM_MUTANT").ok().and_then(|text| text.parse().ok());
            let record = std::env::var_os("VELLUM_MUTANTS_REACHED").is_some();
            let chosen = number.unwrap_or(if record { RECORDING } else { NONE });
            CHOSEN.store(chosen, Ordering::Relaxed);
        }
        let chosen = CHOSEN.load(Ordering::Relaxed);
        if chosen == RECORDING && !REACHED[number as usize].swap(true, Ordering::Relaxed) {
            if let Some(path) = std::env::var_os("VELLUM_MUTANTS_REACHED") {
                let file = std::fs::OpenOptions::new().append(true).create(true).open(path);
                // In one write, so that threads do not mix.
                let _ = file.and_then(|mut file| file.write_all(std::format!("{number}\n").as_bytes()));
            }
        }
        chosen == number
    }
}
