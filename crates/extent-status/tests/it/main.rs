//! Tests of the room as its users see it.

mod edges;
mod model;
mod shrink;
mod threads;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use uext4_extent_status::{Extent, Room, Status};
use uext4_ondisk::{Lblk, Pblk};

/// A room whose clock moves by a microsecond whenever it is read.
fn room() -> Arc<Room> {
    let reads = AtomicU64::new(0);
    Room::new(move || Duration::from_micros(reads.fetch_add(1, Relaxed)))
}

fn extent(lblk: u32, len: u32, pblk: u64, status: Status) -> Extent {
    Extent {
        lblk: Lblk(lblk),
        len,
        pblk: Pblk(pblk),
        status,
    }
}

fn written(lblk: u32, len: u32, pblk: u64) -> Extent {
    extent(lblk, len, pblk, Status::Written)
}

fn delayed(lblk: u32, len: u32) -> Extent {
    extent(lblk, len, 0, Status::Delayed)
}

fn hole(lblk: u32, len: u32) -> Extent {
    extent(lblk, len, 0, Status::Hole)
}
