//! LEB128 integers and a byte cursor that never reads past its end.

/// Most bytes that an integer takes.
pub const MAX_VARINT_BYTES: usize = 10;

/// Appends `value`, seven bits to a byte, lowest first.
pub fn put(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Maps small magnitudes of either sign to small numbers: 0, -1, 1, -2, …
pub fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

/// The inverse of [`zigzag`].
pub fn unzigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

/// Reads bytes in order. Every method answers `None` at the end.
#[derive(Clone, Debug, Default)]
pub struct Cursor<'a> {
    bytes: &'a [u8],
}

impl<'a> Cursor<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Cursor { bytes }
    }

    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    pub fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.bytes.split_first()?;
        self.bytes = rest;
        Some(*first)
    }

    pub fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (head, tail) = self.bytes.split_at_checked(length)?;
        self.bytes = tail;
        Some(head)
    }

    pub fn u16(&mut self) -> Option<u16> {
        Some(u16::from_le_bytes(self.take(2)?.try_into().ok()?))
    }

    pub fn u32(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.take(4)?.try_into().ok()?))
    }

    pub fn u64(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.take(8)?.try_into().ok()?))
    }

    /// A LEB128 integer. `None` also when it does not fit in 64 bits.
    pub fn varint(&mut self) -> Option<u64> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                return None;
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    pub fn signed(&mut self) -> Option<i64> {
        self.varint().map(unzigzag)
    }

    /// A string: its length in bytes as a LEB128 integer, then UTF-8.
    pub fn string(&mut self) -> Option<String> {
        let length = usize::try_from(self.varint()?).ok()?;
        Some(str::from_utf8(self.take(length)?).ok()?.to_owned())
    }
}

/// Appends a string as [`Cursor::string`] reads it.
pub fn put_string(out: &mut Vec<u8>, text: &str) {
    put(out, text.len() as u64);
    out.extend_from_slice(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_survive_a_round_trip() {
        for shift in 0..64 {
            for value in [1u64 << shift, (1u64 << shift) - 1, !0 >> shift] {
                let mut bytes = Vec::new();
                put(&mut bytes, value);
                let mut cursor = Cursor::new(&bytes);
                assert_eq!(cursor.varint(), Some(value));
                assert!(cursor.is_empty());
                assert_eq!(zigzag(unzigzag(value)), value);
            }
        }
    }

    #[test]
    fn oversized_and_cut_integers_are_refused() {
        assert_eq!(Cursor::new(&[0x80; 12]).varint(), None);
        assert_eq!(Cursor::new(&[0xff, 0xff]).varint(), None);
        let mut too_big = vec![0xff; 9];
        too_big.push(2);
        assert_eq!(Cursor::new(&too_big).varint(), None);
    }
}
