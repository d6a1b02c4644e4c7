//! Operations on an ext4 file system that another process has open.
//!
//! A mount has its image to itself: the kernel caches for good what it was answered, and the engine
//! holds what was not written yet. So a command that is given the image, or a directory of the
//! mount, cannot open it a second time. It connects to the mount's daemon, and has it do its work:
//!
//! ```text
//! command ── Tree, Node ──┬── Local ──────────────────────────────► engine
//!                         └── Remote ── Client ═ socket ═ Server ──► engine
//!                                                           └─────► Observer: the kernel forgets
//! ```
//! * [`tree`], [`node`]: [`Tree`] and [`Node`], what commands are written against;
//! * [`client`], [`server`]: the two ends; [`wire`]: what passes between them; [`frame`]: how;
//! * [`grower`]: what makes the file system larger, which is of a crate above;
//! * [`rights`]: what a client may ask for; [`idle`]: which client makes room for another;
//! * [`entry`]: one name with all that belongs to it, made where the file system is open: `put` and
//!   `untar` send one request for each, do not wait for its answer, and pass the descriptor that
//!   the contents are read from, so that data cross no socket.
//!
//! A command that only reads asks for no operation: it reads the image itself, as it is at one
//! moment ([`snapshot`]).
//!
//! A path is resolved by the engine, as root: who may connect, and with which [`rights`], is
//! decided where the socket is. Nothing of a command line is parsed by the serving process.
//!
//! Left out: how the socket is found and made (the command), what the kernel has to forget (the
//! mount).

pub mod changes;
pub mod client;
pub mod entry;
pub mod frame;
pub mod gate;
pub mod grower;
pub mod idle;
mod listed;
mod mount_points;
pub mod node;
mod passed;
pub mod put_mode;
pub mod putter;
pub mod refusal;
mod requested;
pub mod rights;
pub mod server;
pub mod snapshot;
pub mod tree;
pub mod wire;

pub use node::Node;
pub use tree::{RemoteTree, Tree};
