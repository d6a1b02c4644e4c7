//! The answer to "where is this part of the file?".

use crate::extent::Extent;
use crate::units::{Lblk, Pblk};

/// What a run of logical blocks is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapState {
    /// Data lies there.
    Written,
    /// Blocks are allocated but read as zeroes.
    Unwritten,
    /// Nothing is allocated.
    Hole,
}

/// `len` blocks from `lblk` of a file, all of one state and, unless a hole, adjacent on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// First logical block.
    pub lblk: Lblk,
    /// Blocks, at least 1.
    pub len: u32,
    /// First physical block; 0 for a hole.
    pub pblk: Pblk,
    /// What they are.
    pub state: MapState,
}

impl Mapping {
    /// A hole of `len` blocks.
    pub fn hole(lblk: Lblk, len: u32) -> Self {
        Self {
            lblk,
            len,
            pblk: Pblk(0),
            state: MapState::Hole,
        }
    }

    /// First logical block after it; fits, as no file has more than 2³² − 1 blocks.
    pub fn end(&self) -> u32 {
        self.lblk.0.saturating_add(self.len)
    }

    /// The part from `lblk` on, at most `len` blocks; `lblk` lies within.
    pub fn part(&self, lblk: Lblk, len: u32) -> Self {
        let skip = lblk.0.saturating_sub(self.lblk.0).min(self.len);
        Self {
            lblk,
            len: self.len.saturating_sub(skip).min(len),
            pblk: match self.state {
                MapState::Hole => Pblk(0),
                _ => Pblk(self.pblk.0.saturating_add(skip.into())),
            },
            state: self.state,
        }
    }
}

impl From<Extent> for Mapping {
    fn from(extent: Extent) -> Self {
        Self {
            lblk: extent.lblk,
            len: extent.len.into(),
            pblk: extent.pblk,
            state: match extent.unwritten {
                true => MapState::Unwritten,
                false => MapState::Written,
            },
        }
    }
}
