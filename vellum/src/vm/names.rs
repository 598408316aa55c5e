//! What lies in a manager itself, by name, for those who look at accesses to it.

use crate::platform::Platform;
use crate::rmap::ReverseMap;
use crate::space::Vm;
use crate::sync::report::name;
use crate::table::Format;

impl<P: Platform, F: Format, R: ReverseMap> Vm<P, F, R> {
    /// Names what lies in the manager itself, which has come to the place where it stays.
    /// All else has been named when it was made.
    pub fn name_parts(&self) {
        self.memory.name_parts();
        self.spaces
            .name_parts(["arena of spaces: depot", "arena of spaces: chunks"]);
        self.regions
            .name_parts(["arena of regions: depot", "arena of regions: chunks"]);
        let nodes = &self.region_nodes;
        nodes.name_parts([
            "arena of region nodes: depot",
            "arena of region nodes: chunks",
        ]);
        let tracts = &self.tracts.items;
        tracts.name_parts(["arena of tracts: depot", "arena of tracts: chunks"]);
        self.objects.name_parts();
        name("reverse mapping", &[], &raw const self.rmap, 1);
    }
}
