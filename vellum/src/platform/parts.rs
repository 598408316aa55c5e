//! Which optional parts of the core are linked.

/// The optional parts of the core that a platform can use ([`Machine::PARTS`]). Which of
/// them are in use, the design says; what is left out here is not linked at all, and a
/// design that asks for it is refused.
///
/// ```
/// use vellum::platform::Parts;
/// const PARTS: Parts = Parts::LEAST.with_swap().with_reclaim();
/// ```
///
/// [`Machine::PARTS`]: super::Machine::PARTS
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Parts {
    pub(crate) published: bool,
    pub(crate) superpages: bool,
    pub(crate) reclaim: bool,
    pub(crate) swap: bool,
    pub(crate) commit: bool,
    pub(crate) hooks: bool,
    pub(crate) nodes: bool,
}

impl Parts {
    /// Everything.
    pub const ALL: Parts = Parts {
        published: cfg!(feature = "published"),
        superpages: true,
        reclaim: true,
        swap: true,
        commit: true,
        hooks: true,
        nodes: true,
    };

    /// What every manager needs.
    pub const LEAST: Parts = Parts {
        published: false,
        superpages: false,
        reclaim: false,
        swap: false,
        commit: false,
        hooks: false,
        nodes: false,
    };

    /// And lists of frames, and of pages of files, as published kernels kept them:
    /// `framelists=linked`, `fileio=pages`. In `ALL` only with the feature `published`.
    #[cfg(feature = "published")]
    #[must_use]
    pub const fn with_published(self) -> Parts {
        Parts {
            published: true,
            ..self
        }
    }

    /// And superpages and folios: `superpage=eager`, `superpage=reserve`, `folio=`.
    #[must_use]
    pub const fn with_superpages(self) -> Parts {
        Parts {
            superpages: true,
            ..self
        }
    }

    /// And taking memory back when it runs short: `reclaim=on`.
    #[must_use]
    pub const fn with_reclaim(self) -> Parts {
        Parts {
            reclaim: true,
            ..self
        }
    }

    /// And swap areas ([`Vm::swap_on`](crate::Vm::swap_on)).
    #[must_use]
    pub const fn with_swap(self) -> Parts {
        Parts { swap: true, ..self }
    }

    /// And commit accounting: `commit=heuristic`, `commit=always`, `commit=never`.
    #[must_use]
    pub const fn with_commit(self) -> Parts {
        Parts {
            commit: true,
            ..self
        }
    }

    /// And fault hooks ([`Space::hooks`](crate::space::Space::hooks)).
    #[must_use]
    pub const fn with_hooks(self) -> Parts {
        Parts {
            hooks: true,
            ..self
        }
    }

    /// And policies of which nodes pages lie on
    /// ([`Space::set_node_policy`](crate::space::Space::set_node_policy)).
    #[must_use]
    pub const fn with_nodes(self) -> Parts {
        Parts {
            nodes: true,
            ..self
        }
    }
}
