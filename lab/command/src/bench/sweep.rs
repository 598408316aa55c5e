//! Sizes of blocks and numbers of CPUs, from the smallest to the largest, and what the
//! runs are called.

use super::request::Request;
use vellum_terminal::text::plural;

const MIB: u64 = 1 << 20;

/// Sizes of blocks asked for: the smallest, twice as much, and so on, and the largest.
///
/// # Errors
/// There are none, or blocks that the bytes of a CPU are no multiple of; the text says
/// what to choose.
pub fn blocks(request: &Request) -> Result<Vec<u64>, String> {
    let (least, most) = (request.sizes.get("least"), request.sizes.get("most"));
    let bytes = request.sizes.get("mebibytes") * MIB;
    if least > most || most > bytes {
        return Err(format!(
            "--size least={least} and most={most}: blocks go from the least to the most, which is \
             not more than the {} MiB of a CPU (--size mebibytes)",
            bytes / MIB
        ));
    }
    let powers = std::iter::successors(Some(least), |block| block.checked_mul(2));
    let mut blocks: Vec<u64> = powers.take_while(|block| *block < most).collect();
    blocks.push(most);
    Ok(blocks)
}

/// Numbers of CPUs from one to as many as are asked for: powers of two, and the last.
pub fn cpu_counts(request: &Request) -> Vec<usize> {
    let most = request.cpus.max(1);
    let powers = std::iter::successors(Some(1), |cpus| Some(2 * cpus));
    let mut counts: Vec<usize> = powers.take_while(|cpus| *cpus < most).collect();
    counts.push(most);
    counts
}

/// `writes, 2 CPUs, a file for each`.
pub fn title(what: &str, cpus: usize, shared: bool) -> String {
    let files = match shared {
        true => "one file",
        false => "a file for each",
    };
    format!("{what}, {}, {files}", plural(cpus, "CPU", "CPUs"))
}

/// `512 B`, `4 KiB`, `1 MiB`.
pub fn size_name(bytes: u64) -> String {
    match bytes {
        bytes if bytes >= MIB && bytes.is_multiple_of(MIB) => format!("{} MiB", bytes / MIB),
        bytes if bytes >= 1024 && bytes.is_multiple_of(1024) => format!("{} KiB", bytes / 1024),
        bytes => format!("{bytes} B"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_named_in_the_unit_that_fits() {
        let names = [512, 1024, 4096, 1536, 1500, 4 << 20].map(size_name);
        let expected = ["512 B", "1 KiB", "4 KiB", "1536 B", "1500 B", "4 MiB"];
        assert_eq!(names, expected);
    }
}
