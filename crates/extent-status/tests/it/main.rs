//! Tests of the room as its users see it.

mod edges;
mod leaves;
mod listed;
mod model;
mod shrink;
mod threads;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use uext4_extent_status::{Extent, Options, Room, Shrinker, StatsMode, Status};
use uext4_ondisk::{Lblk, Pblk};

/// A room whose clock moves by a microsecond whenever it is read, and which counts all.
fn room_with(options: Options) -> Arc<Room> {
    let reads = AtomicU64::new(0);
    let options = Options {
        stats: StatsMode::On,
        shards: 2,
        ..options
    };
    Room::with_options(options, move || {
        Duration::from_micros(reads.fetch_add(1, Relaxed))
    })
}

fn room(shrinker: Shrinker) -> Arc<Room> {
    room_with(shrinker.into())
}

/// Runs a test in a room of every kind.
fn in_each_room(test: impl Fn(&Arc<Room>)) {
    for shrinker in Shrinker::ALL {
        test(&room(shrinker));
    }
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
