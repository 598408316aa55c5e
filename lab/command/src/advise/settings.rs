//! Settings of this machine that are changed for a while, and restored whatever happens.
//!
//! Before anything is changed, a file names what was set, and a shell waits for the end of this
//! process. Dropping [`Switched`] restores everything, after an error and a panic, too. If the
//! process is killed, the shell restores what the file names; if that is killed as well, the next
//! [`Switched::begin`] does.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::on_host::chosen;
use crate::host::scratch::Sweeper;

/// Where the file lies: only who may change settings may write there.
const DIRECTORY: &str = "/run/vellum-settings";

/// The name of the file.
const FILE: &str = "restore";

/// Waits for the end of its input; then restores what the file in its directory names: in each
/// line a path, a blank, and what was set.
const RESTORE: &str = "read -r line; while read -r path value; do \
                       [ -n \"$value\" ] && printf %s \"$value\" > \"$path\"; \
                       done < \"$0/restore\"; rm -rf -- \"$0\"";

/// Settings that may be changed.
#[derive(Debug)]
pub struct Switched {
    directory: PathBuf,
    /// What was set at the beginning.
    before: Vec<(PathBuf, String)>,
    /// What is set now, if it is another value.
    now: Vec<(PathBuf, String)>,
    /// Dropped after everything was restored.
    _sweeper: Sweeper,
}

/// What `begin` found.
#[derive(Debug)]
pub struct Begun {
    /// The settings.
    pub switched: Switched,
    /// What an earlier run had left changed, and is restored now.
    pub mended: Vec<PathBuf>,
}

impl Switched {
    /// Notes what `paths` are set to.
    ///
    /// # Errors
    /// One cannot be read, or another process has settings changed.
    pub fn begin(paths: &[PathBuf]) -> io::Result<Begun> {
        Self::begin_in(Path::new(DIRECTORY), paths)
    }

    /// The same with the file in another directory.
    ///
    /// # Errors
    /// As [`Switched::begin`].
    pub fn begin_in(directory: &Path, paths: &[PathBuf]) -> io::Result<Begun> {
        let mended = mend(directory)?;
        let before: Vec<(PathBuf, String)> = paths
            .iter()
            .map(|path| {
                let text = fs::read_to_string(path)?;
                Ok((
                    path.clone(),
                    chosen(&text).unwrap_or(text.trim()).to_owned(),
                ))
            })
            .collect::<io::Result<_>>()?;
        let lines = before
            .iter()
            .map(|(path, value)| format!("{} {value}\n", path.display()));
        let text = format!("{}{}\n", lines.collect::<String>(), std::process::id());
        fs::create_dir(directory)?;
        let written = fs::write(directory.join(FILE), text)
            .and_then(|()| Sweeper::running(RESTORE, directory));
        match written {
            Ok(sweeper) => Ok(Begun {
                switched: Switched {
                    directory: directory.to_owned(),
                    before,
                    now: Vec::new(),
                    _sweeper: sweeper,
                },
                mended,
            }),
            Err(error) => {
                fs::remove_dir_all(directory)?;
                Err(error)
            }
        }
    }

    /// From now on `values` are set, and everything else is as it was.
    ///
    /// # Errors
    /// A setting cannot be written, or is none of those that were noted.
    pub fn to(&mut self, values: &[(PathBuf, String)]) -> io::Result<()> {
        let is_kept = |path: &PathBuf| values.iter().any(|value| value.0 == *path);
        let (kept, over): (Vec<_>, Vec<_>) =
            self.now.drain(..).partition(|(path, _)| is_kept(path));
        self.now = kept;
        for (path, _) in over {
            let before = self.before.iter().find(|before| before.0 == path);
            if let Some((path, value)) = before {
                write(path, value)?;
            }
        }
        for (path, value) in values {
            if !self.before.iter().any(|before| before.0 == *path) {
                let text = format!(
                    "{}: not among the settings that are restored",
                    path.display()
                );
                return Err(io::Error::other(text));
            }
            if self.now.iter().any(|now| now.0 == *path && now.1 == *value) {
                continue;
            }
            // Noted first, so that it is restored even if writing it fails half-way.
            self.now.retain(|now| now.0 != *path);
            self.now.push((path.clone(), value.clone()));
            write(path, value)?;
        }
        Ok(())
    }

    /// Everything is as it was.
    ///
    /// # Errors
    /// A setting cannot be written; the others are restored all the same.
    pub fn restore(&mut self) -> io::Result<()> {
        self.now.clear();
        let written = self.before.iter().map(|(path, value)| write(path, value));
        written.fold(Ok(()), Result::and)
    }
}

impl Drop for Switched {
    fn drop(&mut self) {
        match self.restore() {
            // The shell has nothing left to restore.
            Ok(()) => _ = fs::remove_dir_all(&self.directory),
            Err(error) => eprintln!(
                "vellum: restoring settings: {error}; {} names what they were",
                self.directory.join(FILE).display()
            ),
        }
    }
}

fn write(path: &Path, value: &str) -> io::Result<()> {
    let named =
        |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
    fs::write(path, value).map_err(named)
}

/// Restores what a run that was killed has left.
fn mend(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let Ok(text) = fs::read_to_string(directory.join(FILE)) else {
        return Ok(Vec::new());
    };
    let (settings, owner): (Vec<&str>, Vec<&str>) =
        text.lines().partition(|line| line.contains(' '));
    let owner = owner.first().copied().unwrap_or("");
    if !owner.is_empty() && Path::new("/proc").join(owner).exists() {
        let text =
            format!("process {owner} has settings of this machine changed; wait for its end");
        return Err(io::Error::other(text));
    }
    let mut mended = Vec::new();
    for (path, value) in settings.iter().filter_map(|line| line.rsplit_once(' ')) {
        write(Path::new(path), value)?;
        mended.push(PathBuf::from(path));
    }
    fs::remove_dir_all(directory)?;
    Ok(mended)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::scratch::Scratch;

    /// Two settings and a place for the file, in place of `/sys` and `/run`.
    fn machine(name: &str) -> (Scratch, [PathBuf; 2], PathBuf) {
        let scratch = Scratch::new(&std::env::temp_dir(), name).expect("made");
        let paths = ["enabled", "size"].map(|name| scratch.path().join(name));
        fs::write(&paths[0], "always [madvise] never\n").expect("written");
        fs::write(&paths[1], "inherit\n").expect("written");
        let directory = scratch.path().join("run");
        (scratch, paths, directory)
    }

    fn read(paths: &[PathBuf; 2]) -> [String; 2] {
        paths
            .each_ref()
            .map(|path| fs::read_to_string(path).expect("there"))
    }

    #[test]
    fn settings_are_restored_when_they_are_dropped() {
        let (_scratch, paths, directory) = machine("settings-drop");
        let begun = Switched::begin_in(&directory, &paths).expect("begun");
        let mut switched = begun.switched;
        assert!(begun.mended.is_empty());
        let value = |path: usize, value: &str| (paths[path].clone(), value.to_owned());
        switched
            .to(&[value(0, "always"), value(1, "never")])
            .expect("set");
        assert_eq!(read(&paths), ["always", "never"]);
        switched.to(&[value(1, "always")]).expect("set");
        assert_eq!(read(&paths), ["madvise", "always"]);
        let other = (directory.join("other"), String::new());
        assert!(switched.to(&[other]).is_err());
        switched.to(&[value(0, "never")]).expect("set");
        drop(switched);
        assert_eq!(read(&paths), ["madvise", "inherit"]);
        assert!(!directory.exists());
    }

    #[test]
    fn a_panic_restores_them() {
        let (_scratch, paths, directory) = machine("settings-panic");
        let value = (paths[0].clone(), "always".to_owned());
        let ended = std::panic::catch_unwind(|| {
            let begun = Switched::begin_in(&directory, &paths).expect("begun");
            let mut switched = begun.switched;
            switched.to(&[value]).expect("set");
            panic!("on purpose");
        });
        assert!(ended.is_err());
        assert_eq!(read(&paths), ["madvise", "inherit"]);
    }

    #[test]
    fn what_a_killed_run_has_left_is_mended_by_the_next() {
        let (_scratch, paths, directory) = machine("settings-mend");
        fs::create_dir(&directory).expect("made");
        // No process has this number.
        let text = format!("{} never\n4194999\n", paths[1].display());
        fs::write(directory.join(FILE), text).expect("written");
        let begun = Switched::begin_in(&directory, &paths).expect("begun");
        assert_eq!(begun.mended, [paths[1].clone()]);
        assert_eq!(fs::read_to_string(&paths[1]).expect("there"), "never");
        // While this one lives, there is no other.
        let second = Switched::begin_in(&directory, &paths);
        let refused = second.expect_err("one at a time").to_string();
        assert!(
            refused.contains("has settings of this machine changed"),
            "{refused}"
        );
    }

    #[test]
    fn the_shell_restores_them_when_its_input_ends() {
        let (_scratch, paths, directory) = machine("settings-shell");
        let begun = Switched::begin_in(&directory, &paths).expect("begun");
        fs::write(&paths[0], "always").expect("written");
        // What the shell does at the end of this process, in the foreground.
        let mut shell = std::process::Command::new("/bin/sh");
        shell.args(["-c", RESTORE]).arg(&directory);
        shell.stdin(std::process::Stdio::null());
        assert!(shell.status().expect("a shell").success());
        assert_eq!(read(&paths), ["madvise", "inherit"]);
        assert!(!directory.exists());
        drop(begun);
        assert_eq!(read(&paths), ["madvise", "inherit"]);
    }
}
