//! The emulator.

use std::fmt;
use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::Arch;

/// The program, and the package of Debian that it is in.
fn program(arch: Arch) -> (&'static str, &'static str) {
    match arch {
        Arch::X86_64 => ("qemu-system-x86_64", "qemu-system-x86"),
        Arch::Aarch64 | Arch::Aarch64Pages16k => ("qemu-system-aarch64", "qemu-system-arm"),
    }
}

/// The package of Debian that has it.
pub fn package(arch: Arch) -> &'static str {
    program(arch).1
}

/// What the kernel ends with when all is well; the machine makes `2n + 1` of `n`.
const PASSED: i32 = 16;

/// Whether it can be started.
pub fn is_installed(arch: Arch) -> bool {
    let version = Command::new(program(arch).0)
        .arg("--version")
        .stdout(Stdio::null())
        .status();
    version.is_ok_and(|status| status.success())
}

/// What a machine is started from.
#[derive(Clone, Copy)]
pub enum Medium<'a> {
    /// QEMU loads a kernel, and nothing else.
    Kernel(&'a Path),
    /// QEMU loads the kernel and its RAM disk.
    Files { kernel: &'a Path, disk: &'a Path },
    /// A boot loader on a disc does, with a command line of its own: started by the
    /// firmware in this file, or by QEMU's BIOS.
    Disc {
        iso: &'a Path,
        firmware: Option<&'a Path>,
    },
}

/// A machine to start.
pub struct Machine<'a> {
    pub arch: Arch,
    pub medium: Medium<'a>,
    pub cpus: u32,
    pub memory_mib: u64,
    /// By the processor itself.
    pub kvm: bool,
    /// Virtual time is the number of instructions.
    pub icount: bool,
    pub patience: Duration,
}

/// How a machine ended.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    Passed,
    /// With this exit code.
    Failed(i32),
    /// It was stopped, because it took too long.
    Stopped,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Outcome::Passed => f.write_str("passed"),
            Outcome::Failed(code) => write!(f, "the machine ended with code {code}"),
            Outcome::Stopped => f.write_str("the machine took too long"),
        }
    }
}

impl Machine<'_> {
    /// Runs the kernel with a command line; how it ended, and what it printed.
    pub fn run(&self, command_line: &str) -> Result<(Outcome, String), String> {
        let (program, _) = program(self.arch);
        let mut command = Command::new(program);
        match self.arch {
            Arch::X86_64 => command
                .args([
                    "-machine",
                    if self.kvm {
                        "q35,accel=kvm"
                    } else {
                        "q35,accel=tcg"
                    },
                ])
                .args(["-cpu", if self.kvm { "host" } else { "max" }])
                .args([
                    "-device",
                    "isa-debug-exit,iobase=0xf4,iosize=4",
                    "-vga",
                    "none",
                    "-device",
                    "bochs-display",
                ]),
            Arch::Aarch64 | Arch::Aarch64Pages16k => {
                command.args(["-machine", "virt", "-cpu", "max", "-semihosting"])
            }
        };
        command
            .args(["-smp", &self.cpus.to_string()])
            .args(["-m", &format!("{}M", self.memory_mib)])
            .args(["-display", "none", "-nic", "none", "-no-reboot"])
            .args(["-serial", "stdio", "-monitor", "none"]);
        match self.medium {
            Medium::Kernel(kernel) => _ = command.arg("-kernel").arg(kernel),
            Medium::Files { kernel, disk } => {
                command.arg("-kernel").arg(kernel).arg("-initrd").arg(disk);
                command.args(["-append", command_line]);
            }
            Medium::Disc { iso, firmware } => {
                command.arg("-cdrom").arg(iso).args(["-boot", "d"]);
                if let Some(firmware) = firmware {
                    command.arg("-bios").arg(firmware);
                }
            }
        }
        if self.icount {
            command.args(["-icount", "shift=0,sleep=off"]);
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command
            .spawn()
            .map_err(|error| format!("{program}: {error}"))?;
        let mut output = child.stdout.take().ok_or("no output")?;
        let reader = std::thread::spawn(move || {
            let mut bytes = Vec::new();
            // What was read before an error is all that there is.
            let _ = output.read_to_end(&mut bytes);
            String::from_utf8_lossy(&bytes).replace('\r', "")
        });
        let start = Instant::now();
        let status = loop {
            if let Some(status) = child.try_wait().map_err(|error| error.to_string())? {
                break Some(status);
            }
            if start.elapsed() > self.patience {
                let _ = child.kill();
                let _ = child.wait();
                break None;
            }
            std::thread::sleep(Duration::from_millis(20));
        };
        let lines = reader.join().map_err(|_| "reading the output failed")?;
        let outcome = match status.map(|status| status.code().unwrap_or(-1)) {
            Some(code) if code == 2 * PASSED + 1 => Outcome::Passed,
            Some(code) => Outcome::Failed(code),
            None => Outcome::Stopped,
        };
        Ok((outcome, lines))
    }
}
