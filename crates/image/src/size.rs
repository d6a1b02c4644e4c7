//! How large an image must be: the smallest layout whose free blocks are enough.
//!
//! A larger file system has more free blocks, but not one more for each block it has more: a
//! group that begins costs its bitmaps and inode table, and at some sizes the journal grows. So
//! the search goes up from below by what is missing: each step is no longer than the shortest way
//! to enough, and the first layout that is enough is the smallest. It takes a handful of layouts,
//! which are cheap.

use uext4_mkfs::{BlockSizeWish, Layout, Options, UsageType, layout};
use uext4_ondisk::BlockSize;
use uext4_ondisk::features::Incompat;

use crate::error::Error;

/// How large the image shall be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Size {
    /// So many bytes, as the size argument of mke2fs; block size and number of inodes are then what
    /// mke2fs would choose. It is an error if the source does not fit.
    Exact(u64),
    /// As small as can be with so many bytes free for users other than root (as `df` reports it),
    /// and inodes in mke2fs's proportion.
    Free(u64),
    /// As small as can be: no free blocks, and no free inodes but those that fill their table.
    Min,
    /// A whole block device; for a file a tenth more than the contents, at least 16 MiB free, in
    /// whole MiB.
    #[default]
    Auto,
}

/// What an image takes in addition to what its layout takes empty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Need {
    /// Blocks.
    pub blocks: u64,
    /// Blocks that it may take in addition to those, depending on where things come to lie.
    pub slack: u64,
    /// Inodes.
    pub inodes: u64,
}

/// What the image's contents need under a layout.
pub type Needs<'a> = &'a mut dyn FnMut(&Layout) -> Result<Need, Error>;

/// Blocks of files under 4 KiB and 256 bytes of inode: what images have if no thread says
/// otherwise, however small they are (mke2fs takes 1 KiB below 512 MiB).
const BLOCK_SIZE: BlockSize = match BlockSize::from_bytes(4096) {
    Some(size) => size,
    None => BlockSize::MAX,
};
/// Least free space of [`Size::Auto`], and the unit its size is rounded up to.
const AUTO_FREE: u64 = 16 << 20;
const AUTO_UNIT: u64 = 1 << 20;
/// Inodes no file can have: ten reserved ones, and that of lost+found.
const INODES_TAKEN: u64 = 11;
/// Blocks that the last group has free when it is made.
const LAST_GROUP_FREE: u64 = 50;
/// More layouts than any search needs.
const LAYOUTS_MAX: u32 = 10_000;

/// Chooses the layout; `device_len` is that of a block device to be filled.
///
/// # Errors
/// [`Error::DoesNotFit`]; what mkfs says; what `needs` says.
pub fn choose(
    options: &Options,
    size: Size,
    device_len: Option<u64>,
    needs: Needs<'_>,
) -> Result<Layout, Error> {
    let size = match (size, device_len) {
        (Size::Auto, Some(len)) => Size::Exact(len),
        (size, _) => size,
    };
    let layout = match size {
        Size::Exact(len) => fixed(options, len, needs)?,
        Size::Free(bytes) => {
            let spare = |layout: &Layout| free_for_users(layout, bytes);
            search(&with_defaults(options), None, &spare, needs)?
        }
        Size::Min => smallest(&with_defaults(options), needs)?,
        Size::Auto => auto(&with_defaults(options), needs)?,
    };
    match device_len {
        Some(have) if layout.len_bytes() > have => {
            Err(Error::Mkfs(uext4_mkfs::Error::DeviceTooSmall {
                need: layout.len_bytes(),
                have,
            }))
        }
        _ => Ok(layout),
    }
}

/// Settled before the size is, so that they do not depend on it.
pub fn with_defaults(options: &Options) -> Options {
    let mut options = options.clone();
    if options.block_size.is_none() {
        options.block_size = Some(BlockSizeWish::Exactly(BLOCK_SIZE));
    }
    if options.usage.is_empty() {
        options.usage = vec![UsageType::Default];
    }
    options
}

fn fixed(options: &Options, len: u64, needs: Needs<'_>) -> Result<Layout, Error> {
    let mut layout = layout(options, len)?;
    let need = needs(&layout)?;
    if options.inodes.is_none() && need.inodes > u64::from(layout.free_inodes()) {
        layout = with_inodes(options, len, need.inodes)?;
    }
    let need = needs(&layout)?;
    check_inodes(&layout, need)?;
    if need.blocks > layout.free_blocks() {
        let block_len = layout.geometry.block_size.bytes();
        return Err(Error::DoesNotFit {
            what: "bytes",
            need: need.blocks.saturating_mul(block_len.into()),
            have: layout.free_blocks().saturating_mul(block_len.into()),
            brought: None,
        });
    }
    Ok(layout)
}

fn check_inodes(layout: &Layout, need: Need) -> Result<(), Error> {
    let have = u64::from(layout.free_inodes());
    match need.inodes > have {
        true => Err(Error::DoesNotFit {
            what: "inodes",
            need: need.inodes,
            have,
            brought: None,
        }),
        false => Ok(()),
    }
}

/// A layout with at least `inodes` free ones, as few more as rounding makes.
fn with_inodes(options: &Options, len: u64, inodes: u64) -> Result<Layout, Error> {
    let mut options = options.clone();
    let mut wish = inodes.saturating_add(INODES_TAKEN);
    loop {
        options.inodes = Some(wish);
        let layout = layout(&options, len)?;
        let have = u64::from(layout.free_inodes());
        if have >= inodes {
            return Ok(layout);
        }
        // Some are lost where groups hold only multiples of eight.
        wish = wish.saturating_add(inodes - have);
    }
}

/// Blocks that must stay free so that others than root have `bytes`: those reserved for root come
/// on top, and what the kernel keeps back from every user where there are extents (a fiftieth, at
/// most 4,096 blocks).
fn free_for_users(layout: &Layout, bytes: u64) -> u64 {
    let geometry = &layout.geometry;
    let kept = match geometry.features.incompat.contains(Incompat::EXTENTS) {
        true => (geometry.blocks_count / 50).min(4096),
        false => 0,
    };
    let wanted = geometry.block_size.blocks_for(bytes);
    wanted
        .saturating_add(layout.superblock.reserved_blocks_count())
        .saturating_add(kept)
}

/// As small as can be. The search asks for more inodes when it sees how many are needed.
fn smallest(options: &Options, needs: Needs<'_>) -> Result<Layout, Error> {
    let inodes = Some(INODES_TAKEN + 1);
    let layout = search(options, inodes, &|_| 0, needs)?;
    let need = needs(&layout)?;
    let (blocks, groups) = (layout.geometry.blocks_count, layout.groups.len() as u64);
    let spare = layout.free_blocks().saturating_sub(need.blocks);
    if spare <= blocks / 4 || groups == 1 || options.blocks_per_group.is_some() {
        return Ok(layout);
    }
    // So many inodes for so few blocks that whole groups are there for their inode tables only:
    // smaller groups, as many.
    let per_group = (blocks - spare).div_ceil(groups) + need.slack + LAST_GROUP_FREE;
    let mut options = options.clone();
    options.blocks_per_group = u32::try_from(per_group.next_multiple_of(8).max(256)).ok();
    match search(&options, inodes, &|_| 0, needs) {
        Ok(other) if other.geometry.blocks_count < blocks => Ok(other),
        _ => Ok(layout),
    }
}

fn auto(options: &Options, needs: Needs<'_>) -> Result<Layout, Error> {
    let mut blocks = 0;
    let mut counted = |layout: &Layout| {
        let need = needs(layout)?;
        blocks = need.blocks;
        Ok(need)
    };
    let least = search(options, None, &|l| free_for_users(l, 0), &mut counted)?;
    let placed: u64 = options.occupied.iter().map(|run| run.end - run.start).sum();
    let content = least
        .geometry
        .block_size
        .byte_offset(uext4_ondisk::Pblk(blocks.saturating_add(placed)));
    let free = (content.unwrap_or(u64::MAX) / 10).max(AUTO_FREE);
    let layout = search(options, None, &|l| free_for_users(l, free), needs)?;
    let len = layout.len_bytes().next_multiple_of(AUTO_UNIT);
    let inodes = u64::from(layout.free_inodes());
    match fixed(options, len, needs) {
        Ok(rounded) => Ok(rounded),
        // The explicit number of inodes of the search, if it had to ask for them.
        Err(Error::DoesNotFit { .. }) => with_inodes(options, len, inodes),
        Err(other) => Err(other),
    }
}

/// The smallest layout with what is needed and `spare(layout)` free blocks at the same time; with
/// at least `inodes` in all, or as many as the options say.
fn search(
    options: &Options,
    inodes: Option<u64>,
    spare: &dyn Fn(&Layout) -> u64,
    needs: Needs<'_>,
) -> Result<Layout, Error> {
    let mut search = Search {
        options,
        inodes: inodes.filter(|_| options.inodes.is_none() && options.inode_ratio.is_none()),
        block_len: match options.block_size {
            Some(BlockSizeWish::Exactly(size)) => size.bytes().into(),
            _ => BLOCK_SIZE.bytes().into(),
        },
    };
    let mut blocks = options.occupied.last().map_or(1, |last| last.end);
    for _ in 0..LAYOUTS_MAX {
        let layout = search.first_possible(blocks)?;
        let need = needs(&layout)?;
        let sure = need.blocks.saturating_add(need.slack);
        let wanted = sure.saturating_add(spare(&layout));
        let missing = wanted.saturating_sub(layout.free_blocks());
        if missing > 0 {
            let have = layout.geometry.blocks_count;
            blocks = match have.saturating_add(missing) {
                more if more > blocks => more,
                // The rest was too short for a group, and was left out.
                _ => search.next_group(blocks, have)?,
            };
            continue;
        }
        // Only now: where inodes go by size, a larger one may have had enough.
        if need.inodes <= u64::from(layout.free_inodes()) {
            return Ok(layout);
        }
        if options.inodes.is_some() {
            check_inodes(&layout, need)?;
        }
        search.ask_for_inodes(&layout, need.inodes);
    }
    Err(Error::TooMany {
        what: "sizes tried",
        limit: LAYOUTS_MAX.into(),
    })
}

struct Search<'a> {
    options: &'a Options,
    /// Inodes asked for beyond what the options say.
    inodes: Option<u64>,
    block_len: u64,
}

impl Search<'_> {
    fn layout(&self, blocks: u64) -> Result<Layout, uext4_mkfs::Error> {
        let mut options = self.options.clone();
        if self.inodes.is_some() {
            options.inodes = self.inodes;
        }
        // In blocks of its own: a device's length would be cut to pages.
        options.size = Some(blocks.saturating_mul(self.block_len));
        layout(&options, u64::MAX)
    }

    fn ask_for_inodes(&mut self, layout: &Layout, need: u64) {
        let asked = self.inodes.unwrap_or(0);
        let missing = need.saturating_sub(layout.free_inodes().into()).max(1);
        self.inodes = Some(asked.saturating_add(missing).max(need + INODES_TAKEN));
    }

    /// The fewest blocks, more than `blocks`, of which more than `used` are used.
    fn next_group(&self, blocks: u64, used: u64) -> Result<u64, Error> {
        let is_more = |blocks| match self.layout(blocks) {
            Ok(layout) => Ok(layout.geometry.blocks_count > used),
            Err(e) if is_about_size(&e) => Ok(false),
            Err(e) => Err(e.into()),
        };
        first(blocks, is_more)
    }

    /// The layout of `blocks` blocks, or of the fewest more that hold the metadata of a file
    /// system.
    fn first_possible(&self, blocks: u64) -> Result<Layout, Error> {
        match self.layout(blocks) {
            Err(e) if is_about_size(&e) => {}
            other => return Ok(other?),
        }
        let is_possible = |blocks| match self.layout(blocks) {
            Ok(_) => Ok(true),
            Err(e) if is_about_size(&e) && blocks < u64::MAX / 2 => Ok(false),
            Err(e) => Err(e.into()),
        };
        Ok(self.layout(first(blocks, is_possible)?)?)
    }
}

/// The first number above `bad` that is good, if all after it are: by steps that double, then
/// halve.
fn first(mut bad: u64, is_good: impl Fn(u64) -> Result<bool, Error>) -> Result<u64, Error> {
    let mut step = 1;
    while !is_good(bad.saturating_add(step))? {
        bad = bad.saturating_add(step);
        step *= 2;
    }
    let mut good = bad.saturating_add(step);
    while good - bad > 1 {
        let middle = bad + (good - bad) / 2;
        if is_good(middle)? {
            good = middle;
        } else {
            bad = middle;
        }
    }
    Ok(good)
}

/// True if more blocks may help.
fn is_about_size(error: &uext4_mkfs::Error) -> bool {
    use uext4_mkfs::Error as E;
    match error {
        E::TooSmall { .. } | E::TooManyInodes { .. } | E::NoSpace { .. } | E::Occupied { .. } => {
            true
        }
        E::JournalSize { why, .. } => why.contains("half"),
        _ => false,
    }
}

#[cfg(test)]
mod tests;
