//! What the frames were whose records are in a profile.

use std::collections::BTreeMap;

use vellum::frame::Kind;
use vellum::platform::Platform;
use vellum::rmap::ReverseMap;
use vellum_sim::{LineProfile, ProfiledLine};

use crate::work::Manager;

/// What the core calls records of frames.
const FRAME: &str = "Frame";

/// What frames were at the end of a run, by their place in the table of frames, as far as
/// their records are in its profile.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct FrameKinds(BTreeMap<usize, &'static str>);

impl FrameKinds {
    pub(crate) fn new<R: ReverseMap>(vm: &Manager<R>, profile: &LineProfile) -> FrameKinds {
        let first = vm.platform().memory_map()[0].start;
        let frames = profile.lines.iter().filter_map(|line| line.what);
        let frames = frames.filter(|what| what.value == FRAME);
        let kinds = frames.map(|what| {
            let frame = vm.memory().frame(first.offset(what.index as u32));
            let kind = match frame.kind() {
                Kind::Anonymous => "private pages",
                Kind::Object => "pages of files",
                Kind::Table => "page tables",
                Kind::Slab => "the manager's own frames",
                Kind::Free | Kind::Cached => "free frames",
                Kind::Reserved | Kind::Allocated => "other frames",
            };
            (what.index, kind)
        });
        FrameKinds(kinds.collect())
    }

    /// What a line of the profile is: for records of frames, of which frames.
    pub(crate) fn name_of(&self, line: &ProfiledLine) -> String {
        let frame = line.what.filter(|what| what.value == FRAME);
        let kind = frame.and_then(|what| self.0.get(&what.index));
        match kind {
            Some(kind) => format!("records of {kind}"),
            None => line.to_string(),
        }
    }
}
