//! A kernel tree that is built over and over.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use crate::host::{HostError, scratch, tools};
use vellum_terminal::job::{self, Job, Usage};
use vellum_terminal::progress::Interrupt;

/// What building a kernel needs at least; the tree's own checks name the rest.
pub const TOOLS: &[tools::Tool] = &[
    tools::Tool {
        program: "make",
        package: "make",
    },
    tools::Tool {
        program: "gcc",
        package: "gcc",
    },
    tools::Tool {
        program: "ld",
        package: "binutils",
    },
    tools::Tool {
        program: "flex",
        package: "flex",
    },
    tools::Tool {
        program: "bison",
        package: "bison",
    },
    tools::Tool {
        program: "bc",
        package: "bc",
    },
];

/// One build.
#[derive(Clone, Copy, Debug)]
pub struct Build {
    /// Wall-clock seconds.
    pub elapsed_s: f64,
    /// What the whole tree of processes used.
    pub usage: Usage,
}

/// A kernel tree that can be built.
#[derive(Clone, Copy, Debug)]
pub struct Tree<'o> {
    path: &'o Path,
    /// Where it is built; none: in itself.
    objects: Option<&'o Path>,
    target: Option<&'o str>,
}

/// How a tree is configured.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Configuration {
    /// By a target of `make`, as `defconfig`.
    Target(String),
    /// As in this file; what it leaves open is as by default.
    File(PathBuf),
}

impl Configuration {
    /// What a user means by `text`: a file if there is one, otherwise a target.
    ///
    /// # Errors
    /// It is neither.
    pub fn named(text: &str) -> Result<Self, HostError> {
        if Path::new(text).is_file() {
            return Ok(Configuration::File(PathBuf::from(text)));
        }
        let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
        match text.ends_with("config") && text.chars().all(is_name) {
            true => Ok(Configuration::Target(text.to_owned())),
            false => Err(HostError::Unsupported(format!(
                "`{text}` configures no kernel: expected a target of make, as defconfig or \
                 tinyconfig, or the path of a file like .config"
            ))),
        }
    }
}

impl<'o> Tree<'o> {
    /// The tree at `path`, of which `target` will be built; none for what `make`
    /// builds by itself.
    ///
    /// # Errors
    /// A tool is missing, the directory is no kernel tree or not configured, or the
    /// target is not one.
    pub fn open(path: &'o Path, target: Option<&'o str>) -> Result<Self, HostError> {
        let tree = Tree::new(path, None, target)?;
        match path.join(".config").is_file() {
            true => Ok(tree),
            false => Err(tree.refused("not configured; run for instance `make tinyconfig` in it")),
        }
    }

    /// The same, built in the directory `objects`; the tree itself is not configured.
    ///
    /// # Errors
    /// As of [`Tree::open`], and the tree is configured, which `make` refuses.
    pub fn apart(
        path: &'o Path,
        objects: &'o Path,
        target: Option<&'o str>,
    ) -> Result<Self, HostError> {
        let tree = Tree::new(path, Some(objects), target)?;
        match path.join(".config").exists() {
            false => Ok(tree),
            true => Err(tree.refused(
                "it is configured, so that it could be built in itself only; run `make mrproper` \
                 in it, or name a clean tree",
            )),
        }
    }

    fn new(
        path: &'o Path,
        objects: Option<&'o Path>,
        target: Option<&'o str>,
    ) -> Result<Self, HostError> {
        tools::require(TOOLS)?;
        let tree = Tree {
            path,
            objects,
            target,
        };
        let makefile = fs::read_to_string(path.join("Makefile")).unwrap_or_default();
        if !makefile.contains("KERNELRELEASE") {
            return Err(tree.refused(
                "not a kernel tree; unpack one, for instance /usr/src/linux-source-*.tar.xz of \
                 Debian's linux-source package, and give its directory",
            ));
        }
        let no_target =
            |target: &&str| target.is_empty() || target.starts_with('-') || target.contains('=');
        if let Some(target) = target.filter(no_target) {
            return Err(tree.refused(&format!("`{target}` is not a target of make")));
        }
        Ok(tree)
    }

    fn refused(&self, what: &str) -> HostError {
        HostError::Tree {
            path: self.path.to_owned(),
            what: what.to_owned(),
        }
    }

    /// Configures what is built apart from the tree.
    ///
    /// # Errors
    /// As of [`Tree::build`], or the file cannot be copied.
    pub fn configure(
        &self,
        configuration: &Configuration,
        interrupt: &Interrupt,
    ) -> Result<(), HostError> {
        let target = match configuration {
            Configuration::Target(target) => target,
            Configuration::File(file) => {
                let to = self.objects.unwrap_or(self.path).join(".config");
                let doing = HostError::io(format!("copying {}", file.display()));
                fs::copy(file, to).map_err(doing)?;
                "olddefconfig"
            }
        };
        self.make(&["-s", target], interrupt).map(drop)
    }

    /// One build; `jobs` is what tells `make` how many jobs it may run at once.
    ///
    /// # Errors
    /// The build fails, or the user interrupts it.
    pub fn build(&self, jobs: &str, interrupt: &Interrupt) -> Result<Build, HostError> {
        self.build_with(&[jobs], interrupt)
    }

    /// One build with these options of `make`.
    ///
    /// # Errors
    /// As of [`Tree::build`].
    pub fn build_with(&self, options: &[&str], interrupt: &Interrupt) -> Result<Build, HostError> {
        let arguments = options.iter().copied().chain(self.target);
        self.make(&arguments.collect::<Vec<_>>(), interrupt)
    }

    /// Removes what builds have made.
    ///
    /// # Errors
    /// As of [`Tree::build`].
    pub fn clean(&self, interrupt: &Interrupt) -> Result<(), HostError> {
        self.make(&["clean"], interrupt).map(drop)
    }

    /// Reads every file of the tree, so that it is in memory; the history that git
    /// keeps is none of it.
    ///
    /// # Errors
    /// A file cannot be read, or the user interrupts.
    pub fn read(&self, interrupt: &Interrupt) -> Result<(), HostError> {
        let mut left: Vec<PathBuf> = vec![self.path.to_owned()];
        while let Some(directory) = left.pop() {
            let doing = || HostError::io(format!("reading {}", directory.display()));
            for entry in fs::read_dir(&directory).map_err(doing())? {
                if interrupt.requested() {
                    return Err(HostError::Interrupted);
                }
                let entry = entry.map_err(doing())?;
                let (kind, path) = (entry.file_type().map_err(doing())?, entry.path());
                // Links lead to what is read by its own name, or elsewhere.
                if kind.is_dir() && entry.file_name() != ".git" {
                    left.push(path);
                } else if kind.is_file() {
                    let read =
                        File::open(&path).and_then(|mut file| io::copy(&mut file, &mut io::sink()));
                    read.map_err(HostError::io(format!("reading {}", path.display())))?;
                }
            }
        }
        Ok(())
    }

    fn make(&self, arguments: &[&str], interrupt: &Interrupt) -> Result<Build, HostError> {
        let text = format!("make {} in {}", arguments.join(" "), self.path.display());
        let failed = || HostError::io(format!("running {text}"));
        let errors = scratch::unnamed_file().map_err(failed())?;
        let mut command = Command::new("make");
        command
            .args(arguments)
            .args(
                self.objects
                    .map(|objects| format!("O={}", objects.display())),
            )
            .current_dir(self.path)
            // A make that called this program must not hand on its options.
            .env_remove("MAKEFLAGS")
            .env_remove("MAKELEVEL")
            .env("LC_ALL", "C")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(errors.try_clone().map_err(failed())?);
        let begun = Instant::now();
        let mut jobs = [Job::start(&mut command).map_err(failed())?];
        job::finish(&mut jobs, interrupt, |_, ended| {
            match ended.status.success() {
                true => Ok(()),
                false => Err(HostError::Command {
                    command: text.clone(),
                    ending: ended.status.to_string(),
                    output: scratch::last_lines(errors.try_clone()),
                }),
            }
        })?;
        let ended = jobs[0].ended();
        let ended = ended.expect("a finished job has ended");
        Ok(Build {
            elapsed_s: (ended.at - begun).as_secs_f64(),
            usage: ended.usage,
        })
    }
}
