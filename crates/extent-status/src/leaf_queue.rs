//! Leaves in sharded queues after S3-FIFO: what is new goes first, what was used again stays.
//!
//! Source: ours; the queues follow "FIFO queues are all you need for cache eviction" (Yang, Zhang,
//! Qiu, Yue, Rashmi; SOSP 2023).
//!
//! - The unit is a leaf of up to 64 extents. Delayed extents are in leaves of their own, which are
//!   in no queue: no scan ever meets one.
//! - A new leaf is on probation, or in the main queue if it was dropped a short while ago. Probation
//!   holds a tenth of all; the leaf at its head goes, unless it was used: then it joins the main
//!   queue. The leaf at the head of that goes, unless it was used: then it goes round once more and
//!   one use is forgotten. At most three are kept in mind.
//! - Leaves of trees loaded in advance by request are in a queue that is looked at only if the others
//!   gave nothing.
//! - Each leaf belongs to one of a power of two of shards, and scans take the shards in turn. No step
//!   depends on how many trees or delayed extents there are.
//!
//! Differences from the paper: the ghost is a table in which a slot is taken over by whoever comes
//! next, and says how long ago a leaf went; look-ups in quick succession, as a reader makes who goes
//! through a file, are one use (a shard's clock ticks when one in 32 of its leaves has moved).
//!
//! Tunables: `es_shards`, a power of two from 1 to 256; two a processor.

use crate::queues::{Evicted, Queue, Queues, Taken};
use crate::room::Room;
use crate::scan::Scan;

/// Probation holds one leaf in so many.
const PROBATION: usize = 10;

/// Leaves of trees in use that a scan bears: where there are few trees, it may be all of them.
const BUSY: usize = 16;

/// Drops leaves until `nr` extents are gone, taking up to `nr` leaves off their queues.
pub(crate) fn scan(room: &Room, queues: &Queues, nr: usize) -> Scan {
    shards_in_turn(room, queues, nr, |probation, main| {
        if main == 0 || probation * PROBATION > probation + main {
            Queue::Probation
        } else {
            Queue::Main
        }
    })
}

/// Takes leaves from the shards in turn, and from the protected queues if the others gave nothing.
pub(crate) fn shards_in_turn(
    room: &Room,
    queues: &Queues,
    nr: usize,
    choose: impl Fn(usize, usize) -> Queue,
) -> Scan {
    let mut scan = Scan::default();
    round(room, queues, nr, &choose, &mut scan);
    if scan.freed == 0 && scan.leaves < nr as u64 {
        scan.second_rounds = 1;
        round(room, queues, nr, &|_, _| Queue::Protected, &mut scan);
    }
    scan
}

/// Until `nr` extents are gone, or as many leaves were taken, or all shards are empty.
fn round(
    room: &Room,
    queues: &Queues,
    nr: usize,
    choose: &impl Fn(usize, usize) -> Queue,
    scan: &mut Scan,
) {
    let (mut idle, mut busy) = (0, 0);
    while scan.freed < nr && scan.leaves < nr as u64 && idle < queues.shards() && busy < BUSY {
        idle = match queues.take(queues.next_shard(), choose, scan) {
            Taken::Empty => idle + 1,
            Taken::Gone => 0,
            Taken::Leaf(leaf, queue) => {
                let freq = leaf.freq();
                if freq > 0 {
                    leaf.set_freq(freq - 1);
                    let again = match queue {
                        Queue::Probation => Queue::Main,
                        same => same,
                    };
                    queues.put_back(&leaf, again, scan);
                    0
                } else {
                    match queues.evict(room, &leaf, queue, scan) {
                        Evicted::Busy => {
                            busy += 1;
                            0
                        }
                        Evicted::Yes | Evicted::Gone => 0,
                    }
                }
            }
        };
    }
}
