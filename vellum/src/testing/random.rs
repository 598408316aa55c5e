//! Random numbers that a seed decides.

/// Numbers for tests: the same for the same seed, on every machine.
pub(crate) struct Rng(u64);

impl Rng {
    /// The generator of a seed, which is printed so that a failure shows it.
    /// `VELLUM_SEED` in the environment takes its place.
    pub(crate) fn new(seed: u64) -> Rng {
        let seed = number("VELLUM_SEED").unwrap_or(seed);
        std::println!("seed {seed} (VELLUM_SEED={seed} repeats it)");
        Rng(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number below `limit`.
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        ((u128::from(self.next()) * limit as u128) >> 64) as usize
    }
}

/// The number in an environment variable, if it is set.
pub(crate) fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    let number = text.parse();
    Some(number.unwrap_or_else(|_| panic!("{name}={text}: expected a number")))
}
