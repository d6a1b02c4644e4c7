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
    let extra = usize::from(raw.i_extra_isize.get());
    // An inode without extra fields has never been given attributes.
    if extra == 0 {
        return Ok(());
    }
    let start = GOOD_OLD_INODE_SIZE.saturating_add(extra);
    let Some((magic, body)) = bytes.get(start..).and_then(<[u8]>::split_first_chunk::<4>) else {
        return Ok(());
    };
    // The space may hold anything as long as the magic number is not there.
    if u32::from_le_bytes(*magic) != EXT4_XATTR_MAGIC {
        return Ok(());
    }
    let region = Region {
        bytes: body,
        first: 0,
        block: None,
        shift: start.saturating_add(XATTR_IBODY_HEADER_LEN),
    };
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
