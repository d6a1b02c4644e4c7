//! Requests for the data of files.

use uext4_ondisk::{Lblk, Pblk};

/// Blocks wanted for a part of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataRequest {
    /// The file's number: spreads streams over goals.
    pub file: u64,
    /// First block of the file wanted; it and the others are a hole.
    pub lblk: Lblk,
    /// Blocks wanted, at least 1.
    pub len: u32,
    /// Where they should start if the file's neighbours do not say: near the inode.
    pub goal: Pblk,
    /// The mapped block next before `lblk`, if any: its number in the file and where it lies.
    pub left: Option<(Lblk, Pblk)>,
    /// The mapped block next after them, if any.
    pub right: Option<(Lblk, Pblk)>,
    /// Blocks of the file's size, what is dirty included.
    pub size: u64,
    /// They are for `fallocate`: nothing is written to them yet.
    pub unwritten: bool,
    /// No user has the file open for writing any more: it will not grow.
    pub closed: bool,
}

impl DataRequest {
    /// The block of the file behind the last one wanted.
    pub fn end(&self) -> u64 {
        u64::from(self.lblk.0) + u64::from(self.len)
    }

    /// Whether it is for the last part of a file that will not grow.
    pub fn is_last(&self) -> bool {
        self.closed && self.end() >= self.size
    }

    /// Whether the file is a stream of its own: longer than `stream_req` blocks
    /// ([`Options::stream_req`](crate::Options::stream_req)), and this is not its last part.
    pub fn is_stream(&self, stream_req: u32) -> bool {
        !self.is_last() && self.size.max(self.end()) > stream_req.into()
    }

    /// The same, cut or moved into the longest file.
    pub(crate) fn within_file(&self) -> Self {
        let lblk = self.lblk.min(Lblk::LAST);
        let most = Lblk::LAST.0 - lblk.0 + 1;
        Self {
            lblk,
            len: self.len.clamp(1, most),
            ..*self
        }
    }
}
