//! Growing a file system that is in use: the engine carries out in one commit what is planned here.

use std::sync::Arc;

use parking_lot::Mutex;
use uext4::device::{Growth, GrowthTurn};
use uext4::{Image, Volume};
use uext4_ondisk::GroupNr;
use uext4_ondisk::superblock::SuperBlock;

use crate::grow::{Larger, Resized, Size, target};
use crate::state::State;
use crate::{Error, Result};

/// Grows a file system that is mounted for writing, and the file that it is in, while other threads
/// use it. Durable when this returns.
///
/// # Errors
/// [`Error`]. The file system has its old size, and so has its device, unless the error is
/// [`uext4::Error::NotDurable`]: then it has grown, and a power cut may undo that.
pub fn grow_mounted(volume: &Volume, size: Size) -> Result<Resized> {
    // Held throughout: no other thread gives the device another length.
    let turn = volume.growth_turn()?;
    let device = Arc::clone(volume.device());
    let had = device.measure()?;
    // What cannot be is refused before the file becomes longer.
    let state = State::mounted(volume.image().clone(), volume.superblock())?;
    let larger = Larger::new(&state, target(&state, size, had)?.after)?;
    check_blocks(larger.descriptor_blocks(&state), turn.blocks_max())?;
    let is_longer = larger.make_room(&*device)?;
    // While the operations of others go on.
    let zeroed = larger.zero_tables(&state, had);
    let grown = zeroed.and_then(|()| commit(volume, &turn, size, had));
    let is_within = volume.geometry().len_bytes() <= had;
    if is_longer && is_within {
        // The error that is returned is the one that matters.
        _ = device.set_len(had);
    }
    grown
}

/// Has a commit carry out what is planned then. Bytes of the device from `zero_from` on are new.
fn commit(volume: &Volume, turn: &GrowthTurn<'_>, size: Size, zero_from: u64) -> Result<Resized> {
    let planned = Arc::new(Mutex::new(None));
    let (to_plan, image, most) = (
        Arc::clone(&planned),
        volume.image().clone(),
        turn.blocks_max(),
    );
    turn.grow(move |superblock| {
        let plan = plan(image, superblock, size, zero_from, most);
        let (resized, growth) = match plan {
            Ok(Planned { resized, growth }) => (Ok(resized), growth),
            Err(error) => (Err(error), None),
        };
        *to_plan.lock() = Some(resized);
        growth
    })?;
    let resized = planned.lock().take();
    // A commit that succeeds has met the plan.
    resized.unwrap_or(Err(Error::Unsupported {
        what: "growing without a commit",
    }))
}

/// Fails if a growth may not change so many blocks.
fn check_blocks(needed: usize, most: u32) -> Result<()> {
    match needed > most as usize {
        true => Err(Error::TooMuchMounted { needed, most }),
        false => Ok(()),
    }
}

/// The size that was chosen, and what changes; nothing if it has that size.
struct Planned {
    resized: Resized,
    growth: Option<Growth>,
}

/// What changes, while nothing else does. Bytes of the device from `zero_from` on are new; `most`
/// blocks of the file system may change.
fn plan(
    image: Image,
    superblock: &SuperBlock,
    size: Size,
    zero_from: u64,
    most: u32,
) -> Result<Planned> {
    let state = State::mounted(image, superblock)?;
    let have = state.device().len();
    let resized = target(&state, size, have)?;
    if resized.after == resized.before {
        return Ok(Planned {
            resized,
            growth: None,
        });
    }
    let larger = Larger::new(&state, resized.after)?;
    let (changes, superblock) = larger.changes(&state, zero_from)?;
    let needed = changes.inside.len();
    check_blocks(needed, most)?;
    let first_new = GroupNr(state.geometry.groups_count.get());
    let growth = Growth {
        superblock,
        groups: changes
            .descs
            .range(first_new..)
            .map(|(_, desc)| *desc)
            .collect(),
        inside: changes.inside,
        behind: changes.behind,
        freed: changes.freed,
    };
    Ok(Planned {
        resized,
        growth: Some(growth),
    })
}
