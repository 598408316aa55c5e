//! Debian packages: the command with its manual pages, completions and documents, and the
//! traces, which are of use on every architecture, apart.
//!
//! Why not `cargo deb`: it packs files that are there, so that manual pages and completions, which
//! the packed program prints, would be written by code of ours before; and it would be compiled
//! wherever packages are tried.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::command::{cargo, succeed, target};
use crate::man;

/// Who answers for the packages.
const MAINTAINER: &str = "The Vellum maintainers <maintainers@vellum.invalid>";

const PURPOSE: &str = "\
virtual-memory manager's laboratory
 Records what a Linux workload asks of memory management, replays it under
 one memory-manager design or another and on the host's own kernel, and says
 which wins, by how much, how surely, and where the time went.";

const TRACES: &str = "\
recorded workloads for vellum
 Traces of a kernel build, of a server that forks and takes snapshots, and of
 scripts of small commands, for the vellum command to replay.";

/// Where packages go, and what is done with them.
#[derive(clap::Args)]
pub struct Args {
    /// Directory for the packages
    #[arg(short, long, value_name = "DIRECTORY", default_value = "target/deb")]
    output: PathBuf,
    /// The command to pack, with everything built in, instead of one that is built for release
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
    /// Install them, try the command, remove them again, and check that nothing is left
    /// (needs root)
    #[arg(long = "try")]
    tried: bool,
}

/// Builds the packages.
pub fn run(args: &Args) -> Result<(), String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let program = match &args.program {
        Some(program) => program.clone(),
        None => released(&root)?,
    };
    let architecture = output(Command::new("dpkg").arg("--print-architecture"))?;
    fs::create_dir_all(&args.output).map_err(failed(&args.output))?;
    let packages = [
        command_package(&root, &program, &architecture, &args.output)?,
        traces_package(&root, &args.output)?,
    ];
    for package in &packages {
        println!("{}", package.display());
    }
    match args.tried {
        true => try_out(&packages),
        false => Ok(()),
    }
}

/// Builds the command as it is installed.
fn released(root: &Path) -> Result<PathBuf, String> {
    let package = ["-p", "vellum-lab", "--features", "full"];
    let mut build = cargo();
    build.args(["build", "--release", "--quiet", "--locked"]);
    succeed(build.args(package).current_dir(root))?;
    Ok(target(root).join("release/vellum"))
}

fn command_package(
    root: &Path,
    program: &Path,
    architecture: &str,
    output_directory: &Path,
) -> Result<PathBuf, String> {
    let tree = Tree::new(output_directory, "vellum")?;
    let installed = tree.copy(program, "usr/bin/vellum", 0o755)?;
    // Names of functions stay: `--profile` tells where the time goes by them.
    succeed(Command::new("strip").arg("--strip-debug").arg(&installed))?;
    for (name, text) in man::pages()? {
        tree.write(&format!("usr/share/man/man1/{name}"), &text)?;
        tree.compress(&format!("usr/share/man/man1/{name}"))?;
    }
    for (shell, path) in [
        ("bash", "usr/share/bash-completion/completions/vellum"),
        ("zsh", "usr/share/zsh/vendor-completions/_vellum"),
        ("fish", "usr/share/fish/vendor_completions.d/vellum.fish"),
    ] {
        let script = output(Command::new(program).args(["completions", shell]))?;
        tree.write(path, &(script + "\n"))?;
    }
    for entry in fs::read_dir(root.join("docs")).map_err(failed(root))? {
        let path = entry.map_err(failed(root))?.path();
        if let Some(name) = path.file_name().filter(|_| path.is_file()) {
            let to = format!("usr/share/doc/vellum/{}", name.to_string_lossy());
            tree.copy(&path, &to, 0o644)?;
        }
    }
    tree.copy(
        &root.join("CHANGELOG.md"),
        "usr/share/doc/vellum/changelog",
        0o644,
    )?;
    tree.compress("usr/share/doc/vellum/changelog")?;
    let needs = format!("libc6 (>= {}), libgcc-s1", glibc());
    tree.build(
        root,
        architecture,
        "-Zxz",
        &[("Depends", &needs), ("Recommends", "vellum-traces")],
        PURPOSE,
    )
}

fn traces_package(root: &Path, output_directory: &Path) -> Result<PathBuf, String> {
    let tree = Tree::new(output_directory, "vellum-traces")?;
    let traces = root.join("traces");
    for entry in fs::read_dir(&traces).map_err(failed(&traces))? {
        let path = entry.map_err(failed(&traces))?.path();
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        if name.ends_with(".vellum") || name == "README.md" {
            tree.copy(&path, &format!("usr/share/vellum/traces/{name}"), 0o644)?;
        }
    }
    // Traces are compressed.
    tree.build(root, "all", "-Znone", &[("Enhances", "vellum")], TRACES)
}

/// The version of the C library here, with which the program was built.
fn glibc() -> String {
    // SAFETY: returns a string that is there for as long as the process.
    let version = unsafe { std::ffi::CStr::from_ptr(libc::gnu_get_libc_version()) };
    version.to_string_lossy().into_owned()
}

/// What a package installs.
struct Tree {
    root: PathBuf,
    name: &'static str,
    output: PathBuf,
}

impl Tree {
    fn new(output: &Path, name: &'static str) -> Result<Tree, String> {
        let root = output.join(format!("{name}.tree"));
        if root.exists() {
            fs::remove_dir_all(&root).map_err(failed(&root))?;
        }
        fs::create_dir_all(&root).map_err(failed(&root))?;
        Ok(Tree {
            root,
            name,
            output: output.to_owned(),
        })
    }

    fn place(&self, to: &str) -> Result<PathBuf, String> {
        let path = self.root.join(to);
        let directory = path.parent().unwrap_or(&self.root);
        fs::create_dir_all(directory).map_err(failed(directory))?;
        Ok(path)
    }

    fn copy(&self, from: &Path, to: &str, mode: u32) -> Result<PathBuf, String> {
        let path = self.place(to)?;
        fs::copy(from, &path).map_err(failed(from))?;
        let permissions = fs::Permissions::from_mode(mode);
        fs::set_permissions(&path, permissions).map_err(failed(&path))?;
        Ok(path)
    }

    fn write(&self, to: &str, text: &str) -> Result<(), String> {
        let path = self.place(to)?;
        fs::write(&path, text).map_err(failed(&path))?;
        let permissions = fs::Permissions::from_mode(0o644);
        fs::set_permissions(&path, permissions).map_err(failed(&path))
    }

    fn compress(&self, what: &str) -> Result<(), String> {
        succeed(
            Command::new("gzip")
                .args(["-9", "-n", "-f"])
                .arg(self.root.join(what)),
        )
    }

    /// Makes the package; the tree is gone afterwards.
    fn build(
        &self,
        source: &Path,
        architecture: &str,
        compression: &str,
        relations: &[(&str, &str)],
        description: &str,
    ) -> Result<PathBuf, String> {
        let (name, version) = (self.name, env!("CARGO_PKG_VERSION"));
        let mut copyright = String::from(
            "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\n\
             Upstream-Name: vellum\n\nFiles: *\nLicense: MIT or Apache-2.0\n\n",
        );
        for licence in ["LICENSE-MIT", "LICENSE-APACHE"] {
            let path = source.join(licence);
            copyright += &fs::read_to_string(&path).map_err(failed(&path))?;
            copyright.push('\n');
        }
        self.write(&format!("usr/share/doc/{name}/copyright"), &copyright)?;
        let mut control = format!(
            "Package: {name}\nVersion: {version}\nArchitecture: {architecture}\nSection: devel\n\
             Priority: optional\nMaintainer: {MAINTAINER}\n"
        );
        for (field, value) in relations {
            control += &format!("{field}: {value}\n");
        }
        control += &format!("Description: {description}\n");
        self.write("DEBIAN/control", &control)?;
        let package = self
            .output
            .join(format!("{name}_{version}_{architecture}.deb"));
        let build = ["--root-owner-group", compression, "--build"];
        output(
            Command::new("dpkg-deb")
                .args(build)
                .arg(&self.root)
                .arg(&package),
        )?;
        fs::remove_dir_all(&self.root).map_err(failed(&self.root))?;
        Ok(package)
    }
}

/// Installs packages, tries them and removes them.
fn try_out(packages: &[PathBuf]) -> Result<(), String> {
    let names = ["vellum", "vellum-traces"];
    for name in names {
        if output(Command::new("dpkg").args(["--status", name])).is_ok() {
            return Err(format!("{name} is installed here: it would be removed"));
        }
    }
    let mut files = Vec::new();
    for package in packages {
        let list = output(Command::new("dpkg-deb").arg("--contents").arg(package))?;
        let names = list.lines().filter(|line| !line.starts_with('d'));
        files.extend(names.filter_map(|line| line.rsplit(" ./").next().map(str::to_owned)));
    }
    let installed = (|| {
        let paths = packages.iter().map(fs::canonicalize);
        let paths: std::io::Result<Vec<PathBuf>> = paths.collect();
        let paths = paths.map_err(|error| format!("the packages: {error}"))?;
        output(apt().arg("install").args(paths))?;
        tried(&files)
    })();
    let removed = output(apt().arg("purge").args(names));
    installed?;
    removed?;
    let left = files
        .iter()
        .filter(|file| Path::new("/").join(file).exists());
    let left: Vec<&str> = left.map(String::as_str).collect();
    match left.is_empty() && !Path::new("/usr/share/vellum").exists() {
        true => Ok(()),
        false => Err(format!("the packages left {} behind", left.join(", "))),
    }
}

/// Whether what is installed works, away from the source tree.
fn tried(files: &[String]) -> Result<(), String> {
    let version = output(vellum().arg("--version"))?;
    let wanted = format!("vellum {}", env!("CARGO_PKG_VERSION"));
    if version != wanted {
        return Err(format!(
            "`vellum --version` says `{version}`, not `{wanted}`"
        ));
    }
    // The traces are found, and a manual page is where man looks for it.
    output(vellum().args(["doctor", "traces"]))?;
    output(vellum().args(["info", "/usr/share/vellum/traces/sdet-like.vellum"]))?;
    let page = "usr/share/man/man1/vellum-compare.1.gz";
    if !files.iter().any(|file| file == page) {
        return Err(format!("{page} is not among {files:?}"));
    }
    Ok(())
}

/// As users install packages: with what they depend on.
fn apt() -> Command {
    let mut command = Command::new("apt-get");
    command.env("DEBIAN_FRONTEND", "noninteractive").args([
        "--yes",
        "--quiet",
        "--no-install-recommends",
    ]);
    command
}

fn vellum() -> Command {
    let mut command = Command::new("/usr/bin/vellum");
    command.current_dir("/");
    command
}

/// What a command prints, which must succeed.
fn output(command: &mut Command) -> Result<String, String> {
    let output = command
        .output()
        .map_err(|error| format!("{command:?}: {error}"))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end().to_owned();
    match output.status.success() {
        true => Ok(text(&output.stdout)),
        false => Err(format!(
            "{command:?}: {}: {}",
            output.status,
            text(&output.stderr)
        )),
    }
}

fn failed(path: &Path) -> impl Fn(std::io::Error) -> String {
    let path = path.display().to_string();
    move |error| format!("{path}: {error}")
}
