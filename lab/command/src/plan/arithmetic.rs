//! The arithmetic of the published text: how much memory the page tables that
//! fit into low memory can map.

use vellum_results::plan::Arithmetic;

/// Bytes of a frame, and of a page table, of `format=x86-pae`.
pub const FRAME: u64 = 4096;

/// Bytes that a lowest-level table maps: 512 entries, each a page.
pub const TABLE_MAPS: u64 = 512 * FRAME;

/// Bytes of the frame table for each frame.
pub const RECORD: u64 = 32;

/// The most memory that there can be: physical addresses have 36 bits.
pub const MOST_RAM: u64 = 1 << 36;

/// What the published text counts of `low_bytes` of low memory.
pub fn arithmetic(low_bytes: u64, slop: f64) -> Arithmetic {
    let tables = low_bytes / FRAME;
    let mappable = tables * TABLE_MAPS;
    Arithmetic {
        low_bytes,
        tables,
        table_maps: TABLE_MAPS,
        mappable,
        slop,
        with_slop: mappable as f64 / slop,
    }
}

/// Bytes of the frame table of a machine with `ram` bytes.
pub fn frame_table(ram: u64) -> u64 {
    ram / FRAME * RECORD
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_figures_come_out() {
        let published = arithmetic(768 << 20, 10.0);
        assert_eq!(published.tables, 196_608);
        assert_eq!(published.table_maps, 2 << 20);
        assert_eq!(published.mappable, 384 << 30);
        let gib = published.with_slop / f64::from(1 << 30);
        assert!((gib - 38.4).abs() < 1e-9, "{gib}");
    }

    #[test]
    fn the_frame_table_of_64_gib_is_half_a_gib() {
        assert_eq!(frame_table(64 << 30), 512 << 20);
    }
}
