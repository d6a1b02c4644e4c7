//! Logical clusters whose blocks lie in several places. With `bigalloc` a file has whole clusters,
//! so that its blocks of one logical cluster lie in one physical cluster, each at its own place:
//! the other blocks there are the file's too, and free to take what lies elsewhere.

use uext4_ondisk::extent::Extent;
use uext4_ondisk::{Lblk, Pblk};

use crate::error::Result;
use crate::mapping::MappedCluster;
use crate::report::Cause;
use crate::state::State;

/// The extents with each logical cluster in one place: blocks that lie elsewhere are copied to the
/// place of the first ones. Only once all owners are known; where another inode claims that place,
/// too, they stay where they are.
///
/// # Errors
/// Of the device and of the overlay.
pub fn join(state: &State<'_>, extents: &[Extent], cause: Cause) -> Result<Vec<Extent>> {
    let geometry = state.geometry();
    let bits = geometry.cluster_bits;
    if bits == 0 {
        return Ok(extents.to_vec());
    }
    let mut joined: Vec<Extent> = Vec::with_capacity(extents.len());
    let mut last = None;
    for extent in extents {
        let first = MappedCluster::of_block(geometry, extent, 0);
        let Some(place) = last.filter(|&last| first.is_torn_from(last)) else {
            last = Some(MappedCluster::of_end(geometry, extent));
            joined.push(*extent);
            continue;
        };
        let within = extent.lblk.0 & ((1 << bits) - 1);
        let len = extent
            .len
            .min(u16::try_from((1 << bits) - within).unwrap_or(u16::MAX));
        let head = Extent {
            len,
            pblk: Pblk((place.physical << bits).saturating_add(within.into())),
            ..*extent
        };
        // A place that another inode claims, too, may be the file's in the next round.
        joined.push(match copy(state, extent.pblk, &head, cause)? {
            true => head,
            false => Extent { len, ..*extent },
        });
        if len < extent.len {
            let rest = Extent {
                lblk: Lblk(extent.lblk.0.saturating_add(len.into())),
                len: extent.len - len,
                pblk: Pblk(extent.pblk.0.saturating_add(len.into())),
                unwritten: extent.unwritten,
            };
            last = Some(MappedCluster::of_end(geometry, &rest));
            joined.push(rest);
        }
    }
    Ok(joined)
}

/// Copies blocks from `from` on to where `to` says, and frees the cluster they were in. Whether
/// the place is the file's alone.
fn copy(state: &State<'_>, from: Pblk, to: &Extent, cause: Cause) -> Result<bool> {
    let State { used, shared, .. } = state;
    if shared.contains_any(used.of_blocks(to.pblk, to.len.into())) {
        return Ok(false);
    }
    state.free(used.of_blocks(from, to.len.into()));
    if to.unwritten {
        return Ok(true);
    }
    let mut block = vec![0; state.geometry().block_size.len()];
    for at in 0..u64::from(to.len) {
        let overlay = state.volume.overlay();
        overlay.read_block(Pblk(from.0.saturating_add(at)), &mut block)?;
        overlay.replace(Pblk(to.pblk.0.saturating_add(at)), cause, &block)?;
    }
    Ok(true)
}
