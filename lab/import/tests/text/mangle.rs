//! Damage to texts.

use crate::common::Random;

const PIECES: [&str; 10] = [
    "18446744073709551615",
    "0xffffffffffffffff",
    "-1",
    "\0",
    "\n",
    "(",
    " <unfinished ...>",
    "4611686018427387904",
    "99999999999999999999999",
    "\u{fffd}",
];

/// Damages a text in one to eight places.
pub fn mangle(text: &[u8], random: &mut Random) -> Vec<u8> {
    let mut text = text.to_vec();
    for _ in 0..=random.below(8) {
        let at = random.below(text.len());
        let end = (at + 1 + random.below(40)).min(text.len());
        match random.below(7) {
            0 => drop(text.drain(at..end)),
            1 => text[at] = random.next() as u8,
            2 => {
                let piece = PIECES[random.below(PIECES.len())];
                text.splice(at..at, piece.bytes());
            }
            3 => {
                // Another number where there is one.
                let digit = text[at..].iter().position(u8::is_ascii_digit);
                if let Some(digit) = digit {
                    let piece = PIECES[random.below(PIECES.len())];
                    text.splice(at + digit..at + digit + 1, piece.bytes());
                }
            }
            4 => text.truncate(at.max(1)),
            5 => {
                let copy = text[at..end].to_vec();
                let to = random.below(text.len());
                text.splice(to..to, copy);
            }
            _ => {
                // Lines out of order.
                let mut lines: Vec<&[u8]> = text.split(|byte| *byte == b'\n').collect();
                let (a, b) = (random.below(lines.len()), random.below(lines.len()));
                lines.swap(a, b);
                text = lines.join(&b'\n');
            }
        }
        if text.is_empty() {
            text.push(b'x');
        }
    }
    text
}
