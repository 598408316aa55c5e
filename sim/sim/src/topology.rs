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

/// The parts of a machine that a core is in, by number.
#[derive(Clone, Copy, Debug)]
struct Parts {
    cluster: u32,
    socket: u32,
    board: u32,
    node: u32,
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
    /// Where each core is.
    parts: Vec<Parts>,
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
        let node = socket / topology.nodes_per_socket;
        let parts = |core: usize| Parts {
            cluster: (core / cluster) as u32,
            socket: (core / socket) as u32,
            board: (core / board) as u32,
            node: (core / node) as u32,
        };
        Topology {
            parts: (0..machine.cores()).map(parts).collect(),
            cores: machine.cores() as u32,
            threads: topology.threads_per_core as u32,
            cluster: cluster as u32,
            socket: socket as u32,
            board: board as u32,
            node: node as u32,
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
    #[inline]
    pub(crate) fn node_of(&self, core: u32) -> NodeId {
        NodeId(self.parts[core as usize].node as u16)
    }

    /// The cluster of a core.
    #[inline]
    pub(crate) fn cluster_of(&self, core: u32) -> u32 {
        self.parts[core as usize].cluster
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

    #[inline]
    pub(crate) fn between(&self, one: u32, other: u32) -> Level {
        if one == other {
            return Level::Core;
        }
        let (one, other) = (self.parts[one as usize], self.parts[other as usize]);
        if one.cluster == other.cluster {
            Level::Cluster
        } else if one.socket == other.socket {
            Level::Socket
        } else if one.board == other.board {
            Level::Board
        } else {
            Level::System
        }
    }

    /// How far a node's memory is from a core.
    #[inline]
    pub(crate) fn to_memory(&self, core: u32, home: NodeId) -> Level {
        match self.node_of(core) == home {
            true => Level::Cluster,
            false => self.between(core, self.first_core(home)).max(Level::Socket),
        }
    }

    /// What a line that another core has costs `core`. Within a cluster the last cache
    /// knows where it is; beyond it the line's home is asked, so that a far home makes
    /// a near line expensive.
    #[inline]
    pub(crate) fn transfer(&self, core: u32, owner: u32, home: NodeId) -> (Level, u64) {
        let mut level = self.between(core, owner);
        if level > Level::Cluster {
            level = level.max(self.to_memory(core, home));
        }
        (level, self.transfer[level as usize])
    }

    /// What a transfer at a level costs.
    #[inline]
    pub(crate) fn transfer_at(&self, level: Level) -> u64 {
        self.transfer[level as usize]
    }

    /// What a line that only memory has costs.
    #[inline]
    pub(crate) fn memory_price(&self, core: u32, home: NodeId) -> (Level, u64) {
        let level = self.to_memory(core, home);
        (level, self.memory[level as usize])
    }
}
