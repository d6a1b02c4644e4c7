//! Real writers on a real file system on a device of a known speed.
//!
//! | file | what |
//! |---|---|
//! | [`disk`] | a loop device over a file in memory, held to a rate, with an empty ext4 |
//! | [`dd`] | the writers: processes of dd(1) |
//! | [`events`] | trace events of throttling: the kernel's, and ours, which have the same names |
//! | [`figures`] | what a run gave, the same for kernel, mount and model |
//! | [`probes`] | what else is done meanwhile: reads, fsyncs, small files; dirty memory |
//! | [`served`] | our mount, in a process of its own |

pub mod dd;
pub mod disk;
pub mod events;
pub mod figures;
pub mod probes;
pub mod served;
