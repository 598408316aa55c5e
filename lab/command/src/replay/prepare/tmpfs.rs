//! Which of the recorded files lie on a tmpfs. A trace does not say it, but it has the device of
//! each file, and the paths of those that were mapped.

use std::collections::BTreeSet;

use vellum_trace::Header;

/// The device of the recorded files in `directory`, an absolute path.
///
/// # Errors
/// None was mapped by a path in there, or they lie on more than one device.
pub fn tmpfs_device(header: &Header, directory: &str) -> Result<u32, String> {
    let inside = |name: &str| {
        let rest = name.strip_prefix(directory.trim_end_matches('/'));
        rest.is_some_and(|rest| rest.starts_with('/'))
    };
    let files = header.files.iter().filter(|file| inside(&file.name));
    let devices: BTreeSet<u32> = files.map(|file| file.device).collect();
    match devices.iter().collect::<Vec<_>>()[..] {
        [&device] => Ok(device),
        [] => Err(format!(
            "no file in {directory} was mapped in this recording (paths of files that were only \
             read or written are not recorded)"
        )),
        ref several => Err(format!(
            "the recorded files in {directory} lie on {} file systems; name a directory of one",
            several.len()
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vellum_trace::File;

    fn header(files: &[(&str, u32)]) -> Header {
        let file = |&(name, device): &(&str, u32)| File {
            name: name.to_owned(),
            device,
            inode: 7,
            size: 0,
        };
        Header {
            files: files.iter().map(file).collect(),
            ..Header::default()
        }
    }

    #[test]
    fn a_directory_names_the_device_of_what_was_mapped_in_it() {
        let header = header(&[
            ("/usr/bin/cc", 8),
            ("/tmp/obj/fixdep", 45),
            ("", 45),
            ("/tmp/objects/a", 8),
            ("/tmp/obj/b/c", 45),
        ]);
        for directory in ["/tmp/obj", "/tmp/obj/", "/tmp/obj/b"] {
            assert_eq!(tmpfs_device(&header, directory), Ok(45), "{directory}");
        }
        for directory in ["/tmp/ob", "/srv", "tmp/obj", "/tmp/obj/fixdep"] {
            let error = tmpfs_device(&header, directory).unwrap_err();
            assert!(error.contains("was mapped"), "{directory}: {error}");
        }
        for directory in ["/", "/tmp"] {
            let error = tmpfs_device(&header, directory).unwrap_err();
            assert!(error.contains("2 file systems"), "{directory}: {error}");
        }
    }
}
