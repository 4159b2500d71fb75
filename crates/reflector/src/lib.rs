//! List and watch, as client-go's reflector does it: a watch that restarts with backoff, and local caches that it feeds.
//!
//! [`watch()`] turns a kind's API into [`Delta`]s. [`Table`] keeps what its user needs of each object and finds out what a
//! later list no longer contains; [`Cache`] keeps the objects and reports what each event changed. [`WatchAges`] says
//! how old all that is. Must not depend on any kind.

mod age;
mod backoff;
mod cache;
mod delta;
mod error;
mod guarded;
mod page;
mod selection;
mod table;
mod watch;

pub use age::{Age, WatchAges};
pub use cache::{Cache, Change, Key, key_of};
pub use delta::Delta;
pub use error::WatchError;
pub use guarded::{Guarded, Unreadable, metadata_of};
pub use selection::Selection;
pub use table::Table;
pub use watch::{PAUSE_MAX, watch};
