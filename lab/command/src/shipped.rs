//! The traces that come with the program.

use std::path::{Path, PathBuf};

use crate::failure::Failure;

/// A shipped trace: below the current directory, or below a directory that the
/// program itself lies in (`target/release/vellum` in the source tree), or where a package
/// has put it beside the program (`/usr/share/vellum/traces` beside `/usr/bin`).
///
/// # Errors
/// It is in neither.
pub(crate) fn shipped_trace(name: &str) -> Result<PathBuf, Failure> {
    let shipped = Path::new("traces").join(name);
    let program = std::env::current_exe().unwrap_or_default();
    let places = [shipped.clone(), Path::new("share/vellum").join(&shipped)];
    let beside = program
        .ancestors()
        .skip(1)
        .flat_map(|directory| places.each_ref().map(|place| directory.join(place)));
    std::iter::once(shipped.clone())
        .chain(beside)
        .find(|path| path.is_file())
        .ok_or_else(|| {
            Failure::usage(format!(
                "no trace named, and {} is neither here nor where the program lies; give the path \
                 of a trace, or record one with `vellum record`",
                shipped.display()
            ))
        })
}
