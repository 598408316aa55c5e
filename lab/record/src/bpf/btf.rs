//! Where members of the kernel's structures lie, from the type information (BTF) that the
//! kernel carries.
//!
//! The format is that of `include/uapi/linux/btf.h`: a header, types one after the other,
//! and strings. Types have numbers, from 1 in their order.

/// Parts of a `struct btf_header`.
const MAGIC: u16 = 0xeb9f;
const KIND_INT: u32 = 1;
const KIND_ARRAY: u32 = 3;
const KIND_STRUCT: u32 = 4;
const KIND_UNION: u32 = 5;
const KIND_ENUM: u32 = 6;
const KIND_FUNC_PROTO: u32 = 13;
const KIND_VAR: u32 = 14;
const KIND_DATASEC: u32 = 15;
const KIND_DECL_TAG: u32 = 17;
const KIND_ENUM64: u32 = 19;
/// Kinds after this one are of kernels to come.
const KIND_LAST: u32 = KIND_ENUM64;

/// Anonymous parts inside anonymous parts are followed this far.
const DEPTH: usize = 8;

/// Type information of a kernel.
pub struct Btf<'b> {
    strings: &'b [u8],
    /// Each type from its `struct btf_type` on; the first is number 1.
    types: Vec<&'b [u8]>,
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..at.checked_add(4)?)?;
    Some(u32::from_ne_bytes(bytes.try_into().ok()?))
}

/// Kind, number of members or the like, and whether members have bit fields.
fn info(of_type: &[u8]) -> Option<(u32, usize, bool)> {
    let info = u32_at(of_type, 4)?;
    let kind = info >> 24 & 0x1f;
    Some((kind, (info & 0xffff) as usize, info >> 31 != 0))
}

impl<'b> Btf<'b> {
    /// Reads what `/sys/kernel/btf/vmlinux` holds. `None` if it is not of that form, or has
    /// kinds of types that are not known here.
    pub fn parse(bytes: &'b [u8]) -> Option<Self> {
        if u16::from_ne_bytes(bytes.get(..2)?.try_into().ok()?) != MAGIC {
            return None;
        }
        let header = u32_at(bytes, 4)? as usize;
        let part = |at: usize| -> Option<&'b [u8]> {
            let (offset, length) = (u32_at(bytes, at)? as usize, u32_at(bytes, at + 4)? as usize);
            let begin = header.checked_add(offset)?;
            bytes.get(begin..begin.checked_add(length)?)
        };
        let (mut rest, strings) = (part(8)?, part(16)?);
        let mut types = Vec::new();
        while !rest.is_empty() {
            let (kind, members, _) = info(rest)?;
            let more = match kind {
                KIND_STRUCT | KIND_UNION | KIND_DATASEC | KIND_ENUM64 => 12 * members,
                KIND_ENUM | KIND_FUNC_PROTO => 8 * members,
                KIND_ARRAY => 12,
                KIND_INT | KIND_VAR | KIND_DECL_TAG => 4,
                1..=KIND_LAST => 0,
                _ => return None,
            };
            let (one, others) = rest.split_at_checked(12 + more)?;
            types.push(one);
            rest = others;
        }
        Some(Self { strings, types })
    }

    fn name(&self, at: u32) -> Option<&'b [u8]> {
        let rest = self.strings.get(at as usize..)?;
        rest.split(|byte| *byte == 0).next()
    }

    /// Offset of `member` in `struct name`, in bytes.
    pub fn offset(&self, name: &str, member: &str) -> Option<u16> {
        let found = self.types.iter().find(|of_type| {
            let kind = info(of_type).map(|(kind, ..)| kind);
            let named = u32_at(of_type, 0).and_then(|at| self.name(at));
            kind == Some(KIND_STRUCT) && named == Some(name.as_bytes())
        })?;
        let bits = self.bits(found, member.as_bytes(), DEPTH)?;
        (bits % 8 == 0).then(|| u16::try_from(bits / 8).ok())?
    }

    /// Offset in bits, looked for in anonymous parts, too.
    fn bits(&self, of_type: &[u8], member: &[u8], depth: usize) -> Option<u32> {
        let (kind, members, bit_fields) = info(of_type)?;
        if !matches!(kind, KIND_STRUCT | KIND_UNION) {
            return None;
        }
        (0..members).find_map(|number| {
            let at = 12 + 12 * number;
            let name = self.name(u32_at(of_type, at)?)?;
            let mut offset = u32_at(of_type, at + 8)?;
            if bit_fields {
                // The upper byte is the size of a bit field, which none of ours is.
                if offset >> 24 != 0 {
                    return None;
                }
                offset &= 0xff_ffff;
            }
            if name == member {
                return Some(offset);
            }
            if !name.is_empty() || depth == 0 {
                return None;
            }
            let inner = u32_at(of_type, at + 4)?.checked_sub(1)?;
            let inner = self.types.get(inner as usize)?;
            self.bits(inner, member, depth - 1)
                .and_then(|bits| bits.checked_add(offset))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two structures: `outer { long; struct { int; int wanted; }; int bits: 3; }`.
    fn made() -> Vec<u8> {
        let strings = b"\0outer\0first\0wanted\0bits\0";
        let at = |name: &[u8]| {
            let found = strings
                .windows(name.len())
                .position(|window| window == name);
            found.unwrap() as u32
        };
        let words = [
            // 1: int
            [0, KIND_INT << 24, 4].as_slice(),
            &[32],
            // 2: the anonymous part
            &[0, KIND_STRUCT << 24 | 2, 8],
            &[0, 1, 0],
            &[at(b"wanted"), 1, 32],
            // 3: outer, with bit fields
            &[at(b"outer"), 1 << 31 | KIND_STRUCT << 24 | 3, 20],
            &[at(b"first"), 1, 0],
            &[0, 2, 64],
            &[at(b"bits"), 1, 3 << 24 | 128],
        ]
        .concat();
        let types: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let mut bytes = MAGIC.to_ne_bytes().to_vec();
        bytes.extend([1, 0]);
        for word in [
            24,
            0,
            types.len() as u32,
            types.len() as u32,
            strings.len() as u32,
        ] {
            bytes.extend(word.to_ne_bytes());
        }
        bytes.extend(&types);
        bytes.extend(strings);
        bytes
    }

    #[test]
    fn members_of_anonymous_parts_are_found_at_their_place() {
        let bytes = made();
        let btf = Btf::parse(&bytes).unwrap();
        assert_eq!(btf.offset("outer", "first"), Some(0));
        assert_eq!(btf.offset("outer", "wanted"), Some(12));
        assert_eq!(btf.offset("outer", "bits"), None, "a bit field");
        assert_eq!(btf.offset("outer", "other"), None);
        assert_eq!(btf.offset("inner", "wanted"), None);
    }

    #[test]
    fn what_ends_early_is_refused_not_read_past() {
        let bytes = made();
        for length in 0..bytes.len() {
            assert!(Btf::parse(&bytes[..length]).is_none(), "{length} bytes");
        }
    }
}
