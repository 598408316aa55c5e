//! Walking the stack of interrupted code by the unwind tables of the program and
//! its libraries, without frame pointers.
//!
//! The tables are read and indexed beforehand. A walk allocates nothing, so that
//! it can be done in a signal handler.

use std::fs;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use framehop::{
    CacheNative, ExplicitModuleSectionInfo, FrameAddress, Module, MustNotAllocateDuringUnwind,
    Unwinder, UnwinderNative,
};
use object::elf::PF_X;
use object::{Object, ObjectSection, ObjectSegment, SegmentFlags};

use super::SampleError;
use super::signal::Registers;

/// What a walk needs to itself.
pub(super) type Cache = CacheNative<MustNotAllocateDuringUnwind>;

/// An object file mapped into this process.
#[derive(Debug)]
pub(crate) struct Loaded {
    /// Where it is read from.
    pub(crate) path: PathBuf,
    /// Its name for people.
    pub(crate) name: String,
    /// Addresses of its mappings, from the first to the last.
    pub(crate) addresses: Range<u64>,
    /// Address in memory minus address in the file.
    pub(crate) bias: u64,
}

/// The code of this process.
pub(crate) struct Modules {
    loaded: Vec<Loaded>,
    unwinder: UnwinderNative<Arc<[u8]>, MustNotAllocateDuringUnwind>,
}

impl std::fmt::Debug for Modules {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(&self.loaded).finish()
    }
}

/// A mapping of a file, as `/proc/self/maps` has it.
struct Mapping<'m> {
    addresses: Range<u64>,
    executable: bool,
    offset: u64,
    path: &'m str,
}

impl Modules {
    /// What is mapped now. Libraries loaded later are unknown: walks end in them.
    pub(super) fn of_this_process() -> Result<Self, SampleError> {
        let maps =
            fs::read_to_string("/proc/self/maps").map_err(|source| SampleError::Modules {
                what: "/proc/self/maps cannot be read".to_owned(),
                source,
            })?;
        let mappings: Vec<Mapping<'_>> = maps.lines().filter_map(mapping).collect();
        let mut modules = Self {
            loaded: Vec::new(),
            unwinder: UnwinderNative::new(),
        };
        let program = fs::read_link("/proc/self/exe").unwrap_or_default();
        let executable = mappings.iter().filter(|mapping| mapping.executable);
        let mut paths: Vec<&str> = executable.map(|mapping| mapping.path).collect();
        paths.sort_unstable();
        paths.dedup();
        for path in paths {
            let of_file: Vec<&Mapping<'_>> = mappings
                .iter()
                .filter(|mapping| mapping.path == path)
                .collect();
            let is_program = Path::new(path) == program;
            // The link leads to the program even if its file has been replaced.
            let file = if is_program { "/proc/self/exe" } else { path };
            let added = modules.add(Path::new(file), path, &of_file);
            if let (Err(source), true) = (added, is_program) {
                return Err(SampleError::Modules {
                    what: format!("{path} cannot be read"),
                    source,
                });
            }
        }
        Ok(modules)
    }

    fn add(&mut self, file: &Path, name: &str, mappings: &[&Mapping<'_>]) -> io::Result<()> {
        let malformed = |error: object::Error| io::Error::new(io::ErrorKind::InvalidData, error);
        let bytes = fs::read(file)?;
        let object = object::File::parse(&*bytes).map_err(malformed)?;
        let bias = bias(&object, mappings).ok_or_else(|| {
            io::Error::new(io::ErrorKind::InvalidData, "no segment holds its code")
        })?;
        let begin = mappings.iter().map(|mapping| mapping.addresses.start).min();
        let end = mappings.iter().map(|mapping| mapping.addresses.end).max();
        let addresses = begin.unwrap_or(0)..end.unwrap_or(0);
        let section = |name: &str| {
            let section = object.section_by_name(name)?;
            let range = section.address()..section.address() + section.size();
            let data: Arc<[u8]> = section.data().ok()?.into();
            Some((range, data))
        };
        let (eh_frame, eh_frame_hdr) = (section(".eh_frame"), section(".eh_frame_hdr"));
        let text = object.section_by_name(".text");
        let info = ExplicitModuleSectionInfo {
            text_svma: text.map(|text| text.address()..text.address() + text.size()),
            eh_frame_svma: eh_frame.as_ref().map(|(range, _)| range.clone()),
            eh_frame: eh_frame.map(|(_, data)| data),
            eh_frame_hdr_svma: eh_frame_hdr.as_ref().map(|(range, _)| range.clone()),
            eh_frame_hdr: eh_frame_hdr.map(|(_, data)| data),
            ..Default::default()
        };
        let module = Module::new(name.to_owned(), addresses.clone(), bias, info);
        self.unwinder.add_module(module);
        self.loaded.push(Loaded {
            path: file.to_owned(),
            name: name.rsplit('/').next().unwrap_or(name).to_owned(),
            addresses,
            bias,
        });
        Ok(())
    }

    /// What is mapped at `address`.
    pub(crate) fn at(&self, address: u64) -> Option<&Loaded> {
        self.loaded
            .iter()
            .find(|loaded| loaded.addresses.contains(&address))
    }

    /// Writes the program counter and the return addresses above it to
    /// `addresses`, innermost first, until it would need a word outside of
    /// `stack`. Returns how many. Allocates nothing.
    ///
    /// # Safety
    /// The words in `stack` can be read.
    pub(super) unsafe fn walk(
        &self,
        registers: &Registers,
        stack: Range<u64>,
        cache: &mut Cache,
        addresses: &mut [u64],
    ) -> usize {
        let mut read = |address: u64| {
            let end = address.checked_add(8).ok_or(())?;
            if address < stack.start || end > stack.end || !address.is_multiple_of(8) {
                return Err(());
            }
            let word = std::ptr::with_exposed_provenance::<u64>(address as usize);
            // SAFETY: aligned, and inside `stack`, which the caller vouches for.
            // Volatile, because other code believes the word to be its own.
            Ok(unsafe { word.read_volatile() })
        };
        let (pc, unwind) = (registers.program_counter, registers.unwind);
        let mut frames = self.unwinder.iter_frames(pc, unwind, cache, &mut read);
        let mut depth = 0;
        while depth < addresses.len()
            && let Ok(Some(frame)) = frames.next()
        {
            addresses[depth] = match frame {
                FrameAddress::InstructionPointer(address) => address,
                FrameAddress::ReturnAddress(address) => address.get(),
            };
            depth += 1;
        }
        depth
    }
}

fn mapping(line: &str) -> Option<Mapping<'_>> {
    let mut fields = line.splitn(6, ' ');
    let (begin, end) = fields.next()?.split_once('-')?;
    let rights = fields.next()?;
    let offset = fields.next()?;
    let path = fields.nth(2)?.trim_start();
    let path = path.strip_suffix(" (deleted)").unwrap_or(path);
    let number = |text| u64::from_str_radix(text, 16).ok();
    path.starts_with('/').then_some(())?;
    Some(Mapping {
        addresses: number(begin)?..number(end)?,
        executable: rights.contains('x'),
        offset: number(offset)?,
        path,
    })
}

/// Where the file was loaded, from the segment that an executable mapping shows.
fn bias(object: &object::File<'_>, mappings: &[&Mapping<'_>]) -> Option<u64> {
    let code = mappings.iter().find(|mapping| mapping.executable)?;
    // The page in which the code begins may be the end of another segment.
    let mut executable = object.segments().filter(|segment| {
        matches!(segment.flags(), SegmentFlags::Elf { p_flags, .. } if p_flags.contains(PF_X))
    });
    executable.find_map(|segment| {
        let (offset, size) = segment.file_range();
        // A mapping begins at the page that the segment begins in.
        let page = offset & !0xfff;
        (page..offset + size).contains(&code.offset).then(|| {
            let address = segment.address() - (offset - page) + (code.offset - page);
            code.addresses.start.wrapping_sub(address)
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_maps_are_taken_apart() {
        let line = "7f0a7a640000-7f0a7a666000 r-xp 00001000 fe:00 1234   /usr/lib/a b.so (deleted)";
        let found = mapping(line).unwrap();
        assert_eq!(found.addresses, 0x7f0a_7a64_0000..0x7f0a_7a66_6000);
        assert_eq!((found.executable, found.offset), (true, 0x1000));
        assert_eq!(found.path, "/usr/lib/a b.so");
        for line in [
            "",
            "7f00-7f01 rw-p 00000000 00:00 0 ",
            "7f00-7f01 rw-p 0 00:00 0  [heap]",
        ] {
            assert!(mapping(line).is_none(), "{line}");
        }
    }

    #[test]
    fn this_program_is_found_where_its_functions_are() {
        let modules = Modules::of_this_process().unwrap();
        let function = this_program_is_found_where_its_functions_are as fn() as usize as u64;
        let found = modules.at(function).unwrap();
        assert_eq!(found.path, Path::new("/proc/self/exe"));
        assert!(modules.at(0x10).is_none());
        let mut symbols = crate::symbols::Symbols::new(&modules);
        let names = symbols.frames(function);
        assert!(
            names[0].ends_with("this_program_is_found_where_its_functions_are"),
            "{names:?}"
        );
    }
}
