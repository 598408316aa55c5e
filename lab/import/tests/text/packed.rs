//! Texts that are compressed.

use std::io::Write;

use crate::common::{fixture, import, refusal};
use flate2::Compression;
use flate2::write::{GzEncoder, ZlibEncoder};
use vellum_import::Format;

fn gzip(text: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(text).unwrap();
    encoder.finish().unwrap()
}

fn zlib(text: &[u8]) -> Vec<u8> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(text).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn a_compressed_text_is_read_as_it_was() {
    let text = fixture("lackey.txt");
    let (format, plain, _) = import(&text);
    assert_eq!(format, Format::Lackey);
    let zstd = zstd::encode_all(text.as_slice(), 1).unwrap();
    let two = [gzip(&text[..1000]), gzip(&text[1000..])].concat();
    for packed in [gzip(&text), zlib(&text), zstd, two] {
        let (format, imported, report) = import(&packed);
        assert_eq!(format, Format::Lackey);
        assert_eq!(imported.events(), plain.events());
        assert_eq!(report.skipped, []);
    }
}

#[test]
fn what_is_cut_off_damaged_or_compressed_twice_is_an_error() {
    let text = fixture("lackey.txt");
    let packed = gzip(&text);
    let half = refusal(&packed[..packed.len() / 2]);
    assert!(half.contains("text: cannot read"), "{half}");
    let mut damaged = packed.clone();
    let middle = damaged.len() / 2;
    damaged[middle..middle + 8].fill(0xff);
    refusal(&damaged);
    let twice = refusal(&gzip(&packed));
    assert!(twice.contains("compressed twice"), "{twice}");
    let zstd = zstd::encode_all(text.as_slice(), 1).unwrap();
    refusal(&zstd[..zstd.len() / 2]);
}

#[test]
fn what_is_compressed_otherwise_is_refused_with_the_way_to_read_it() {
    for (magic, way) in [
        (b"\xfd7zXZ\0\0".as_slice(), "xzcat"),
        (b"BZh91AY", "bzcat"),
        (b"\x04\x22\x4d\x18ab", "lz4 -dc"),
    ] {
        let error = refusal(magic);
        assert!(error.contains(way), "{error}");
    }
}
