//! What an embedder writes: handles of spaces, files, groups and mounts.
//!
//! A handle is a name and a borrow of the manager, free to make and to copy. Its methods are the
//! public interface: each is a line that hands the name to the step of the rooms below, where it
//! becomes a space, an object or a group that is there.

/// What every handle can: be copied, compared by name, and shown.
macro_rules! handle {
    ($handle:ident, $name:ident $(, $more:ident)?) => {
        impl<P: Platform, F: Format, R: ReverseMap> Clone for $handle<'_, P, F, R> {
            #[inline]
            fn clone(&self) -> Self {
                *self
            }
        }

        impl<P: Platform, F: Format, R: ReverseMap> Copy for $handle<'_, P, F, R> {}

        impl<P: Platform, F: Format, R: ReverseMap> PartialEq for $handle<'_, P, F, R> {
            /// Whether both have one name of one manager.
            fn eq(&self, other: &Self) -> bool {
                core::ptr::eq(self.vm, other.vm) && self.id == other.id
            }
        }

        impl<P: Platform, F: Format, R: ReverseMap> Eq for $handle<'_, P, F, R> {}

        impl<P: Platform, F: Format, R: ReverseMap> core::fmt::Debug for $handle<'_, P, F, R> {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                f.debug_tuple(stringify!($handle)).field(&self.id).finish()
            }
        }
    };
}

mod file;
mod group;
mod hooks;
mod manager;
mod mount;
mod pinned;
mod request;
mod space;

pub use file::File;
pub use group::Group;
pub use hooks::FaultHooks;
pub use mount::Mount;
pub use pinned::PinnedPages;
pub use request::{ReadRequest, Reads, WriteRequest, Writes};
pub use space::Space;
