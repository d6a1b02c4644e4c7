//! What everything else stands on: errors, the file system on its device, small types.
//!
//! `disk` is the file system as it lies on its device, with the cache of its metadata; `rescue`
//! and `fast_commit` are laid over what the image says, where parts of it are lost or wait in the
//! journal. `edit` is how a block is changed, by a journal handle or directly; `owner` says what
//! a block is verified as; `memory` is the one budget of all caches; `lock_order` is the order of
//! all locks; `growth` is what a file system gets that grows.

pub(crate) mod acl_kind;
pub(crate) mod background;
pub(crate) mod caller;
pub(crate) mod disk;
pub(crate) mod edit;
pub(crate) mod error;
pub(crate) mod fast_commit;
pub(crate) mod growth;
pub(crate) mod invalid;
pub(crate) mod lock_order;
pub(crate) mod mapping;
pub(crate) mod memory;
pub(crate) mod owner;
pub(crate) mod policies;
pub mod rescue;
