//! Attributes within an inode: behind its extra fields, if a magic number says so.

use uext4_ondisk::inode::{GOOD_OLD_INODE_SIZE, RawInode};
use uext4_ondisk::xattr::{EXT4_XATTR_MAGIC, XATTR_IBODY_HEADER_LEN, pack_body};

use super::entries::{self, Region};
use super::{Owner, Xattrs};
use crate::error::Result;
use crate::state::State;

/// Examines the attributes within an inode, and packs anew what can be kept.
pub fn check(
    state: &State<'_>,
    owner: Owner,
    raw: &RawInode,
    bytes: &[u8],
    xattrs: &mut Xattrs,
) -> Result<()> {
    let Some(region) = region(raw, bytes) else {
        return Ok(());
    };
    let (start, body) = (region.shift - XATTR_IBODY_HEADER_LEN, region.bytes);
    let examined = entries::examine(state, owner, region)?;
    xattrs.has_context = examined.has_context;
    xattrs.values.add(examined.values);
    let Some(cause) = examined.cause else {
        return Ok(());
    };
    let kept = examined.kept(region);
    let mut packed = vec![0; body.len().saturating_add(XATTR_IBODY_HEADER_LEN)];
    // Those kept do not share bytes, so that they fit again. If not, nothing can be kept.
    if kept.is_empty() || pack_body(&mut packed, &kept).is_err() {
        packed.fill(0);
    }
    state.volume.update_inode(owner.ino, cause, |inode| {
        if let Some(place) = inode.get_mut(start..start.saturating_add(packed.len())) {
            place.copy_from_slice(&packed);
        }
    })
}

/// The entries behind the extra fields of an inode. The space may hold anything as long as the
/// magic number is not there; an inode without extra fields has never been given attributes.
pub fn region<'b>(raw: &RawInode, bytes: &'b [u8]) -> Option<Region<'b>> {
    let extra = usize::from(raw.i_extra_isize.get());
    let start = GOOD_OLD_INODE_SIZE.saturating_add(extra);
    let (magic, body) = bytes.get(start..)?.split_first_chunk::<4>()?;
    let is_there = extra != 0 && u32::from_le_bytes(*magic) == EXT4_XATTR_MAGIC;
    is_there.then_some(Region {
        bytes: body,
        first: 0,
        block: None,
        shift: start.saturating_add(XATTR_IBODY_HEADER_LEN),
    })
}
