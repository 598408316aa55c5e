//! A directory for the files of one test.

use std::path::PathBuf;

/// A directory of the test's own, removed with everything in it at the end.
#[derive(Debug)]
pub struct Scratch(PathBuf);

impl Scratch {
    /// The directory of the test named `test`; the name is unique in its file.
    pub fn new(test: &str) -> Self {
        let name = format!("vellum-{test}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path).expect("a fresh directory");
        Self(path)
    }

    /// Its own path.
    pub fn directory(&self) -> &str {
        self.0.to_str().expect("the path is text")
    }

    /// A path in it.
    pub fn path(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }

    /// The names of what lies in it, in order.
    pub fn files(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.0).expect("a directory that can be read");
        let name = |entry: std::io::Result<std::fs::DirEntry>| {
            let name = entry.expect("a directory that can be read").file_name();
            name.to_string_lossy().into_owned()
        };
        let mut names: Vec<String> = entries.map(name).collect();
        names.sort();
        names
    }

    /// A file in it.
    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        let path = self.path(name);
        std::fs::write(&path, content).expect("a file in a fresh directory");
        path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Nothing depends on it being gone.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
