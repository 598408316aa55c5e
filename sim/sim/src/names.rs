//! What lies where in a manager, as the core says while it makes it.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;

use vellum::sync::report::{Named, name_to};

use crate::heap::beside_filling;

thread_local! {
    /// By address, of the manager that this thread made last.
    static NAMES: RefCell<BTreeMap<usize, Named>> = const { RefCell::new(BTreeMap::new()) };
}

/// Forgets what this thread's last manager had where, and listens for the next.
pub(crate) fn begin() {
    NAMES.with_borrow_mut(BTreeMap::clear);
    name_to(|named| {
        // A manager is being made: the table is no part of it.
        beside_filling(|| NAMES.with_borrow_mut(|names| names.insert(named.address, named)));
    });
}

/// What is at an address, if the core has said so.
pub(crate) fn what_is_at(address: usize) -> Option<What> {
    NAMES.with_borrow(|names| {
        let (_, named) = names.range(..=address).next_back()?;
        let (index, field, offset) = named.at(address)?;
        Some(What {
            value: short(named.what),
            index,
            is_one: named.bytes == named.each,
            field,
            offset,
        })
    })
}

/// A type's name without where it is from and what it is made with. The record of a space is
/// what is called the space.
fn short(name: &'static str) -> &'static str {
    let plain = name.split('<').next().unwrap_or(name);
    let own = plain.rsplit("::").next().unwrap_or(plain);
    own.strip_suffix("Record").unwrap_or(own)
}

/// What a line begins with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct What {
    /// The type of the value, or what else the core calls it.
    pub value: &'static str,
    /// Its number among its like.
    pub index: usize,
    /// Whether there is only one.
    pub is_one: bool,
    /// The field, if it has a name.
    pub field: &'static str,
    /// The offset in the value in bytes.
    pub offset: usize,
}

impl What {
    /// What all values of the type have at this place.
    pub fn class(&self) -> String {
        format!("{}{}", self.value, Within(self))
    }
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.value)?;
        if !self.is_one {
            write!(f, "[{}]", self.index)?;
        }
        Within(self).fmt(f)
    }
}

/// The field, or else the offset in the value.
struct Within<'w>(&'w What);

impl fmt::Display for Within<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.0.field, self.0.offset) {
            ("", 0) => Ok(()),
            ("", offset) => write!(f, "+{offset:#x}"),
            (field, _) => write!(f, ".{field}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_known_by_type_number_and_field() {
        let named = Named {
            what: "vellum::frame::zones::Zone<u8>",
            address: 1000,
            bytes: 300,
            each: 100,
            fields: &[("info", 0), ("lists", 40)],
        };
        begin();
        NAMES.with_borrow_mut(|names| names.insert(named.address, named));
        let at = |address| what_is_at(address).map(|what| what.to_string());
        assert_eq!(at(1000).as_deref(), Some("Zone[0].info"));
        assert_eq!(at(1139).as_deref(), Some("Zone[1].info"));
        assert_eq!(at(1299).as_deref(), Some("Zone[2].lists"));
        assert_eq!(at(1300), None);
        assert_eq!(at(999), None);
        begin();
        assert_eq!(at(1000), None);
    }
}
