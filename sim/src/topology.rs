//! Who is near whom, and what a line from there costs.

use vellum::platform::NodeId;

use vellum_description::{Description, Time};

/// How far two things are from each other, by the smallest part that holds both.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Level {
    /// The same core.
    Core,
    /// Another core of the cluster.
    Cluster,
    /// Another cluster of the socket.
    Socket,
    /// Another socket of the board.
    Board,
    /// Another board.
    System,
}

impl Level {
    /// All, from the inside out.
    pub const ALL: [Level; 5] = [
        Level::Core,
        Level::Cluster,
        Level::Socket,
        Level::Board,
        Level::System,
    ];
}

/// The cores of a machine, numbered from the inside out, and the prices of lines in
/// picoseconds.
#[derive(Clone, Debug)]
pub(crate) struct Topology {
    pub(crate) cores: u32,
    threads: u32,
    /// Cores of a cluster, socket and board.
    cluster: u32,
    socket: u32,
    board: u32,
    /// Cores of a node.
    node: u32,
    /// A line from another core, by level.
    transfer: [u64; Level::ALL.len()],
    /// A line from memory, by level.
    memory: [u64; Level::ALL.len()],
}

impl Topology {
    pub(crate) fn new(machine: &Description) -> Topology {
        let topology = &machine.topology;
        let cluster = topology.cores_per_cluster;
        let socket = cluster * topology.clusters_per_socket;
        let board = socket * topology.sockets_per_board;
        let (lines, memory) = (&machine.lines, &machine.memory);
        // A level without a figure does not exist, and is never asked for.
        let ps = |time: &Option<Time>| time.as_ref().map_or(0, Time::ps);
        let own = memory.own.ps();
        Topology {
            cores: machine.cores() as u32,
            threads: topology.threads_per_core as u32,
            cluster: cluster as u32,
            socket: socket as u32,
            board: board as u32,
            node: (socket / topology.nodes_per_socket) as u32,
            transfer: [
                lines.sibling.as_ref().unwrap_or(&lines.hit).ps(),
                ps(&lines.cluster),
                ps(&lines.socket),
                ps(&lines.board),
                ps(&lines.system),
            ],
            memory: [
                own,
                own,
                memory.socket.as_ref().map_or(own, Time::ps),
                ps(&memory.board),
                ps(&memory.system),
            ],
        }
    }

    /// The core that a CPU is a thread of. The first threads of all cores come first.
    pub(crate) fn core_of(&self, cpu: u32) -> u32 {
        cpu % self.cores
    }

    /// The other thread of a CPU's core.
    pub(crate) fn sibling(&self, cpu: u32) -> Option<u32> {
        (self.threads == 2).then(|| (cpu + self.cores) % (2 * self.cores))
    }

    /// The node of a core.
    pub(crate) fn node_of(&self, core: u32) -> NodeId {
        NodeId((core / self.node) as u16)
    }

    /// The cluster of a core.
    pub(crate) fn cluster_of(&self, core: u32) -> u32 {
        core / self.cluster
    }

    /// The first core of a node.
    pub(crate) fn first_core(&self, node: NodeId) -> u32 {
        u32::from(node.0) * self.node
    }

    /// The cores that are as near to `core` as `level` or nearer.
    pub(crate) fn within(&self, core: u32, level: Level) -> (u32, u32) {
        let size = match level {
            Level::Core => 1,
            Level::Cluster => self.cluster,
            Level::Socket => self.socket,
            Level::Board => self.board,
            Level::System => self.cores,
        };
        (core / size * size, core / size * size + size)
    }

    pub(crate) fn between(&self, one: u32, other: u32) -> Level {
        let same = |size: u32| one / size == other / size;
        if one == other {
            Level::Core
        } else if same(self.cluster) {
            Level::Cluster
        } else if same(self.socket) {
            Level::Socket
        } else if same(self.board) {
            Level::Board
        } else {
            Level::System
        }
    }

    /// How far a node's memory is from a core.
    pub(crate) fn to_memory(&self, core: u32, home: NodeId) -> Level {
        let first = self.first_core(home);
        if core / self.node == u32::from(home.0) {
            Level::Cluster
        } else {
            self.between(core, first).max(Level::Socket)
        }
    }

    /// What a line that another core has costs `core`. Within a cluster the last cache
    /// knows where it is; beyond it the line's home is asked, so that a far home makes
    /// a near line expensive.
    pub(crate) fn transfer(&self, core: u32, owner: u32, home: NodeId) -> (Level, u64) {
        let mut level = self.between(core, owner);
        if level > Level::Cluster {
            level = level.max(self.to_memory(core, home));
        }
        (level, self.transfer[level as usize])
    }

    /// What a transfer at a level costs.
    pub(crate) fn transfer_at(&self, level: Level) -> u64 {
        self.transfer[level as usize]
    }

    /// What a line that only memory has costs.
    pub(crate) fn memory_price(&self, core: u32, home: NodeId) -> (Level, u64) {
        let level = self.to_memory(core, home);
        (level, self.memory[level as usize])
    }
}
