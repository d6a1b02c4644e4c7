//! Blocks of files with extents: each run that goes is copied, and the tree is built anew.

use uext4_ondisk::checksum::CsumSeed;
use uext4_ondisk::extent::{
    EXT_INIT_MAX_LEN, EXT_UNWRITTEN_MAX_LEN, Extent, ExtentNode, update_tail,
};
use uext4_ondisk::inode::{I_BLOCK_LEN, RawInode};
use uext4_ondisk::pack::PackError;
use uext4_ondisk::pack::extent_tree::ExtentTree;
use uext4_ondisk::{Ino, Lblk, Pblk};

use crate::batch::Batch;
use crate::{Error, Result, quota};

/// What an inode's tree consists of.
#[derive(Debug, Default)]
pub struct Tree {
    /// In the order of the file.
    pub extents: Vec<Extent>,
    /// Blocks of nodes.
    pub nodes: Vec<Pblk>,
}

impl Tree {
    /// Reads the tree of an inode that owns `blocks` blocks: it has no more of either.
    ///
    /// # Errors
    /// [`Error::Unsound`] for a tree that cannot be, those of the device.
    pub fn read(batch: &Batch<'_>, raw: &RawInode, blocks: u64) -> Result<Self> {
        let mut tree = Self::default();
        tree.read_node(batch, &raw.i_block, None, None, blocks)?;
        Ok(tree)
    }

    fn read_node(
        &mut self,
        batch: &Batch<'_>,
        bytes: &[u8],
        at: Option<Pblk>,
        depth: Option<u16>,
        most: u64,
    ) -> Result<()> {
        match ExtentNode::parse(bytes, at, depth)? {
            ExtentNode::Leaf(entries) => {
                self.extents.extend(entries.iter().map(|entry| entry.get()));
            }
            ExtentNode::Index { depth, entries } => {
                for entry in entries {
                    self.nodes.push(entry.leaf());
                    self.must_fit(most)?;
                    let child = batch.block(entry.leaf())?;
                    self.read_node(batch, &child, Some(entry.leaf()), Some(depth - 1), most)?;
                }
            }
        }
        self.must_fit(most)
    }

    fn must_fit(&self, most: u64) -> Result<()> {
        let count = self.extents.len() + self.nodes.len();
        let what = "a file has more extents than blocks";
        (count as u64 <= most)
            .then_some(())
            .ok_or(Error::Unsound { what })
    }
}

/// Moves the blocks of an inode that lie past the limit. Returns whether there are such.
///
/// # Errors
/// [`Error::Full`], those of [`Tree::read`].
pub fn move_blocks(batch: &mut Batch<'_>, ino: Ino, bytes: &mut [u8]) -> Result<bool> {
    let mut raw = RawInode::parse(bytes, ino)?;
    let owned = quota::blocks_of(batch.geometry(), &raw);
    let tree = Tree::read(batch, &raw, owned)?;
    let limit = batch.limit.0;
    let goes = |extent: &Extent| extent.pblk.0 + u64::from(extent.len) > limit;
    if !tree.extents.iter().any(goes) && !tree.nodes.iter().any(|node| node.0 >= limit) {
        return Ok(false);
    }
    batch.make_room(tree.nodes.len().saturating_mul(2))?;
    let extents = move_runs(batch, &tree.extents)?;
    let seed = batch.geometry().csum_seed;
    let seed = seed.map(|seed| seed.inode(ino, raw.i_generation.get()));
    let nodes = rebuild(batch, &mut raw, &extents, &tree.nodes, seed)?;
    let before = tree.nodes.len() as i64;
    quota::charge_clusters(batch, ino, &mut raw, nodes as i64 - before)?;
    raw.store(bytes);
    Ok(true)
}

/// Copies runs that go, wholly or in part. Returns all of them as they are then.
///
/// # Errors
/// [`Error::Full`], those of the device.
pub fn move_runs(batch: &mut Batch<'_>, extents: &[Extent]) -> Result<Vec<Extent>> {
    Mover::new(batch).all(extents)
}

/// Builds the tree of these extents; the blocks of the old one that stay are used again. Returns
/// the number of its nodes.
fn rebuild(
    batch: &mut Batch<'_>,
    raw: &mut RawInode,
    extents: &[Extent],
    old: &[Pblk],
    seed: Option<CsumSeed>,
) -> Result<u64> {
    let size = batch.geometry().block_size;
    let tree = ExtentTree::new(size, seed);
    let count = extents.len() as u64;
    let too_many = PackError::TooManyExtents { extents: count };
    let need = tree.blocks(count).ok_or(too_many)? as usize;
    let stays = |node: &&Pblk| node.0 < batch.limit.0;
    let (stay, go): (Vec<Pblk>, Vec<Pblk>) = old.iter().partition(stays);
    let spare = stay.get(need..).unwrap_or_default();
    for node in go.iter().chain(spare) {
        batch.free(*node, 1)?;
    }
    let mut places: Vec<Pblk> = stay.into_iter().take(need).collect();
    while places.len() < need {
        places.push(batch.allocate(1)?.start);
    }
    let mut places = places.into_iter();
    let mut root = [0; I_BLOCK_LEN];
    tree.pack(&mut root, extents, |node| {
        let place = places.next().ok_or(Error::Full)?;
        let mut block = vec![0; size.len()];
        node.write(&mut block);
        batch.put(place, block);
        Ok::<_, Error>(place)
    })?;
    raw.i_block = root;
    Ok(need as u64)
}

/// Sums all nodes anew, for an inode that has another number.
///
/// # Errors
/// Those of [`Tree::read`].
pub fn sum_nodes(batch: &mut Batch<'_>, raw: &RawInode, seed: CsumSeed) -> Result<()> {
    let owned = quota::blocks_of(batch.geometry(), raw);
    for node in Tree::read(batch, raw, owned)?.nodes {
        update_tail(batch.edit(node)?, seed);
    }
    Ok(())
}

/// Moves runs. A cluster of `bigalloc` may hold blocks of several extents, which then follow each
/// other in the file.
struct Mover<'a, 'b> {
    batch: &'a mut Batch<'b>,
    moved: Vec<Extent>,
    /// The last cluster that was moved.
    last: Option<MovedCluster>,
}

/// First blocks of a cluster.
#[derive(Clone, Copy)]
struct MovedCluster {
    from: u64,
    to: u64,
}

impl<'a, 'b> Mover<'a, 'b> {
    fn new(batch: &'a mut Batch<'b>) -> Self {
        Self {
            batch,
            moved: Vec::new(),
            last: None,
        }
    }

    fn all(mut self, extents: &[Extent]) -> Result<Vec<Extent>> {
        for &extent in extents {
            let stays = self.batch.limit.0.saturating_sub(extent.pblk.0);
            let stays = stays.min(extent.len.into()) as u16;
            let part = |from: u16, len: u16| Extent {
                lblk: Lblk(extent.lblk.0 + u32::from(from)),
                pblk: Pblk(extent.pblk.0 + u64::from(from)),
                len,
                ..extent
            };
            if stays > 0 {
                push(&mut self.moved, part(0, stays));
            }
            if stays < extent.len {
                self.run(part(stays, extent.len - stays))?;
            }
        }
        Ok(self.moved)
    }

    /// Moves a run, in as few pieces as there is room for.
    fn run(&mut self, mut left: Extent) -> Result<()> {
        let bits = self.batch.geometry().cluster_bits;
        let ratio = 1 << bits;
        while left.len > 0 {
            let inside = left.pblk.0 & (ratio - 1);
            let from = left.pblk.0 - inside;
            let (to, blocks) = match self.last {
                Some(last) if last.from == from => (last.to, ratio - inside),
                _ => {
                    let clusters = (inside + u64::from(left.len)).div_ceil(ratio) as u32;
                    let run = self.batch.allocate(clusters)?;
                    if self.batch.copies.is_none() {
                        self.batch.free(Pblk(from), run.clusters)?;
                    }
                    let tail = u64::from(run.clusters - 1) << bits;
                    self.last = Some(MovedCluster {
                        from: from + tail,
                        to: run.start.0 + tail,
                    });
                    (run.start.0, (u64::from(run.clusters) << bits) - inside)
                }
            };
            let blocks = blocks.min(left.len.into());
            let target = Pblk(to + inside);
            if !left.unwritten {
                self.batch.copy(left.pblk, target, blocks)?;
            }
            let part = Extent {
                pblk: target,
                len: blocks as u16,
                ..left
            };
            push(&mut self.moved, part);
            left.lblk.0 += blocks as u32;
            left.pblk.0 += blocks;
            left.len -= blocks as u16;
        }
        Ok(())
    }
}

/// Adds a run, to the one before if it continues that.
pub fn push(extents: &mut Vec<Extent>, extent: Extent) {
    let most = match extent.unwritten {
        true => EXT_UNWRITTEN_MAX_LEN,
        false => EXT_INIT_MAX_LEN,
    };
    if let Some(last) = extents.last_mut()
        && last.unwritten == extent.unwritten
        && last.lblk.0 + u32::from(last.len) == extent.lblk.0
        && last.pblk.0 + u64::from(last.len) == extent.pblk.0
        && u32::from(last.len) + u32::from(extent.len) <= most.into()
    {
        last.len += extent.len;
        return;
    }
    extents.push(extent);
}
