//! A disc that real machines start from: GRUB, which loads the kernel and its RAM disk by
//! Multiboot2, for BIOS and UEFI.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What makes it, as Debian has it.
const PACKAGES: &str = "grub-common grub-pc-bin grub-efi-amd64-bin xorriso mtools";

/// Where Debian's package `ovmf` has UEFI firmware for QEMU.
pub const UEFI: &str = "/usr/share/ovmf/OVMF.fd";

/// Writes a disc.
///
/// # Errors
/// A text says what failed, and what to install.
pub fn write(
    iso: &Path,
    out: &Path,
    (kernel, disk): (&Path, &Path),
    command_line: &str,
) -> Result<(), String> {
    let tree = out.join("iso");
    let boot = tree.join("boot");
    let fails = |path: &Path| {
        let path = path.display().to_string();
        move |error: std::io::Error| format!("{path}: {error}")
    };
    // What is left of the last one would be on this one.
    if tree.exists() {
        fs::remove_dir_all(&tree).map_err(fails(&tree))?;
    }
    fs::create_dir_all(boot.join("grub")).map_err(fails(&boot))?;
    for (from, to) in [(kernel, "kernel"), (disk, "disk")] {
        fs::copy(from, boot.join(to)).map_err(fails(from))?;
    }
    let config = format!(
        "set timeout=0\n\
         menuentry vellum {{\n    multiboot2 /boot/kernel {command_line}\n    module2 /boot/disk\n}}\n"
    );
    let file = boot.join("grub/grub.cfg");
    fs::write(&file, config).map_err(fails(&file))?;
    // It appears when it is complete.
    let mut part = PathBuf::from(iso);
    part.as_mut_os_string().push(".part");
    let made = Command::new("grub-mkrescue")
        .arg("-o")
        .arg(&part)
        .arg(&tree)
        .stdout(Stdio::null())
        .output()
        .map_err(|error| {
            format!("grub-mkrescue: {error}: apt-get install --no-install-recommends {PACKAGES}")
        })?;
    if !made.status.success() {
        let _ = fs::remove_file(&part);
        return Err(format!(
            "grub-mkrescue failed, perhaps for lack of one of {PACKAGES}:\n{}",
            String::from_utf8_lossy(&made.stderr)
        ));
    }
    fs::rename(&part, iso).map_err(fails(iso))
}
