//! Which file is behind a descriptor.
//!
//! With `strace -y` each line says it. Without, it follows from the calls that
//! open, duplicate and close descriptors, as far as they were traced. A file
//! has no inode here; its path stands for it.

use std::collections::HashMap;
use std::rc::Rc;

use super::text;
use crate::tree::Tree;
use vellum_record::Identity;

/// Descriptors of one process.
type Table = Tree<Rc<str>>;

/// Descriptors of all processes, and the numbers of files.
#[derive(Default)]
pub struct Files {
    tables: HashMap<u32, Table>,
    numbers: HashMap<Rc<str>, u64>,
}

impl Files {
    /// The path that a descriptor argument stands for: `3</etc/passwd>`, or 3.
    pub fn path(&self, process: u32, argument: &str) -> Option<Rc<str>> {
        if let Some(path) = text::path_of_descriptor(argument) {
            return path.starts_with('/').then(|| Rc::from(path));
        }
        let number = text::number(argument)?;
        self.tables.get(&process)?.get(number).cloned()
    }

    /// The identity of the file at a path.
    pub fn identify(&mut self, path: &Rc<str>) -> Identity {
        let next = self.numbers.len() as u64 + 1;
        let inode = *self.numbers.entry(path.clone()).or_insert(next);
        Identity { device: 0, inode }
    }

    /// A call on descriptors succeeded. False: it is no such call.
    pub fn call(&mut self, process: u32, name: &str, args: &[&str], result: &str) -> bool {
        let table = self.tables.entry(process).or_default();
        let argument = |index: usize| args.get(index).copied().unwrap_or("");
        let opened = match name {
            "open" | "creat" => text::string(argument(0)),
            "openat" | "openat2" => text::string(argument(1)),
            "memfd_create" => text::string(argument(0)).map(|name| format!("/memfd:{name}")),
            "dup" | "dup2" | "dup3" => {
                let from = text::number(argument(0)).and_then(|from| table.get(from));
                from.map(|path| path.to_string())
            }
            "fcntl" if argument(1).starts_with("F_DUPFD") => {
                let from = text::number(argument(0)).and_then(|from| table.get(from));
                from.map(|path| path.to_string())
            }
            "close" => {
                if let Some(number) = text::number(argument(0)) {
                    table.remove(number);
                }
                return true;
            }
            _ => return false,
        };
        if let Some(number) = text::number(result) {
            match opened {
                // Relative paths tell no file apart from others of the name.
                Some(path) if path.starts_with('/') => table.insert(number, path.into()),
                _ => table.remove(number),
            };
        }
        true
    }

    /// A process got a copy of its creator's descriptors, which costs the same
    /// however many they are.
    pub fn fork(&mut self, from: u32, to: u32) {
        if from != to
            && let Some(table) = self.tables.get(&from).cloned()
        {
            self.tables.insert(to, table);
        }
    }

    /// A process is known under another id from now on.
    pub fn rename(&mut self, from: u32, to: u32) {
        if let Some(table) = self.tables.remove(&from) {
            self.tables.insert(to, table);
        }
    }

    /// A process ended.
    pub fn forget(&mut self, process: u32) {
        self.tables.remove(&process);
    }
}
