//! What `lat_mmap` is on the core and on the host's kernel alike.
//!
//! lmbench's program as mmtests' configuration `global-dhp__io-mmap` of 2014 runs it.

use vellum_results::bench::{Block, Operation};

/// Sizes that are measured.
const SIZES: u64 = 20;

/// Where the sizes begin; this one is not measured.
const BEGIN: u64 = 64 << 10;

/// Smaller sizes are not measured.
const LEAST: u64 = 320 << 10;

/// Bytes from one store to the next.
pub const STRIDE: u64 = 16 << 10;

/// How much of a file is mapped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Size {
    /// Bytes.
    pub bytes: u64,
}

impl Size {
    /// What lmbench calls it: `107M`. Sizes that are less than a million apart are
    /// told in thousands.
    pub fn label(self) -> String {
        match self.bytes / 1_000_000 {
            ..=20 => format!("{}K", self.bytes / 1000),
            millions => format!("{millions}M"),
        }
    }

    /// The bytes that are stored to.
    pub fn touched(self) -> impl Iterator<Item = u64> {
        (0..self.bytes / 10).step_by(STRIDE as usize)
    }
}

/// Twenty sizes up to `mebibytes`, evenly apart, in whole pages of 4 KiB.
pub fn sizes(mebibytes: u64) -> Vec<Size> {
    let step = ((mebibytes << 20) - BEGIN) / SIZES;
    (1..=SIZES)
        .map(|number| Size {
            bytes: (BEGIN + number * step) & !4095,
        })
        .filter(|size| size.bytes >= LEAST)
        .collect()
}

/// The table of mmtests, of the microseconds of each size by arm.
pub fn block_of(sizes: &[Size], arms: &[Vec<f64>]) -> Block {
    let operation = |(number, size): (usize, &Size)| Operation {
        name: size.label(),
        samples: arms.iter().map(|arm| vec![arm[number]]).collect(),
    };
    Block {
        title: "lat_mmap, microseconds".to_owned(),
        value: Some("Procs".to_owned()),
        higher_is_better: false,
        operations: sizes.iter().enumerate().map(operation).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sizes_are_those_that_were_published() {
        let sizes = sizes(2048);
        let labels: Vec<String> = sizes.iter().map(|size| size.label()).collect();
        let published = [
            107, 214, 322, 429, 536, 644, 751, 859, 966, 1073, 1181, 1288, 1395, 1503, 1610, 1717,
            1825, 1932, 2040, 2147,
        ];
        assert_eq!(labels, published.map(|size| format!("{size}M")));
        assert!(sizes.iter().all(|size| size.bytes.is_multiple_of(4096)));
        let last = sizes[19].touched().count();
        assert_eq!(last, 13_108, "about 13,100 faults");
    }

    #[test]
    fn sizes_that_lat_mmap_refuses_are_left_out() {
        let sizes = sizes(1);
        assert!(sizes.len() < 20 && sizes.iter().all(|size| size.bytes >= LEAST));
    }
}
