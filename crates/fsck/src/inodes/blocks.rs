//! The blocks of an inode: claims them, and compares size and count with them.

use std::sync::atomic::Ordering;

use uext4_ondisk::extent::Extent;
use uext4_ondisk::features::RoCompat;
use uext4_ondisk::indirect::Reach;
use uext4_ondisk::inode::{FileType, InodeFlags};
use uext4_ondisk::num::{hi32, lo16, lo32};
use uext4_ondisk::{Ino, Lblk, Pblk};

use super::Repack;
use super::subject::Subject;
use super::worker::Worker;
use crate::directory_list::Run;
use crate::error::Result;
use crate::finding::{Finding, Place};
use crate::mapping::{self, ClusterCount, Form, Spot, Visitor};
use crate::problem::{InodeProblem, MappingProblem};
use crate::report::Cause;
use crate::state::State;
use crate::xattr::{self, Xattrs};

/// Claims what a walk shows.
struct Claims<'c, 's> {
    state: &'c State<'s>,
    ino: Ino,
    /// Takes the blocks, if the inode is a directory.
    runs: Option<&'c mut Vec<Run>>,
    /// Whether data blocks may have several owners.
    may_share: bool,
    seen: Seen,
}

/// What a walk has shown.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    count: ClusterCount,
    /// Blocks of the file so far.
    blocks: u32,
    /// The logical block behind the last one.
    end: u64,
    /// The logical block behind the last one that was written.
    end_written: u64,
    has_unwritten: bool,
    /// Blocks in the list of bad blocks that the file system itself needs.
    metadata: u64,
    /// The first problem.
    cause: Option<Cause>,
}

impl Visitor for Claims<'_, '_> {
    fn node(&mut self, block: Pblk) -> bool {
        let State { used, shared, .. } = self.state;
        self.seen.count.add_node();
        let mut is_first = true;
        used.add(used.of_blocks(block, 1), |again| {
            is_first = false;
            shared.add(again, |_| ());
        });
        // A tree that many inodes claim could be walked for ever.
        let repeats = &self.state.repeats;
        is_first || repeats.may_walk(self.state.geometry(), self.ino)
    }

    fn extent(&mut self, extent: Extent) {
        let State { used, shared, .. } = self.state;
        if self.ino == Ino::BAD_BLOCKS && self.state.touches_metadata(&extent) {
            self.seen.metadata += u64::from(extent.len);
            return;
        }
        let clusters = self.seen.count.add(self.state, &extent);
        let may_share = self.may_share;
        used.add(clusters, |again| {
            if !may_share {
                shared.add(again, |_| ());
            }
        });
        let end = u64::from(extent.lblk.0) + u64::from(extent.len);
        self.seen.end = end;
        let before = self.seen.blocks;
        self.seen.blocks = before.saturating_add(extent.len.into());
        if extent.unwritten {
            self.seen.has_unwritten = true;
        } else {
            self.seen.end_written = end;
        }
        if let Some(runs) = &mut self.runs {
            // Without the holes before it, as it will be.
            runs.push(Run {
                lblk: Lblk(before),
                pblk: extent.pblk,
                len: extent.len.into(),
            });
        }
    }

    fn problem(&mut self, problem: MappingProblem, spot: Spot) {
        let place = Place {
            lblk: spot.lblk,
            block: spot.block,
            ..Place::inode(self.ino)
        };
        let finding = Finding::new(problem, place);
        let cause = self
            .state
            .report(finding.found(spot.found).right(spot.right));
        self.seen.cause.get_or_insert(cause);
    }
}

impl Worker<'_, '_> {
    /// Walks the map of an inode, claims its blocks, and compares `i_size` and `i_blocks`.
    pub fn blocks(&mut self, subject: &mut Subject<'_>) -> Result<()> {
        self.runs.clear();
        let is_link = subject.file_type() == Some(FileType::Symlink);
        if is_link {
            self.fast_symlink(subject)?;
        }
        let mut seen = self.claim(subject)?;
        let mut form = mapping::form(self.state.geometry(), subject.ino, &subject.raw);
        if is_link {
            self.symlink(subject, form, seen.end)?;
            if form == Form::None && subject.file_type() == Some(FileType::Regular) {
                form = mapping::form(self.state.geometry(), subject.ino, &subject.raw);
                seen = self.claim(subject)?;
            }
            // The target is in the inode now.
            let is_moved = mapping::is_fast_symlink(&subject.raw) && form != Form::None;
            if is_moved && !subject.is_cleared {
                seen = Seen::default();
            }
        }
        if let Some(cause) = seen.cause {
            let ino = subject.ino;
            self.found.repacks.push(Repack::all(ino, cause));
        }
        if seen.metadata != 0 {
            let ino = subject.ino;
            let finding = subject.finding(InodeProblem::BadBlockMetadata);
            let cause = self.state.report(finding.found(seen.metadata));
            self.found.repacks.push(Repack::all(ino, cause));
        }
        match subject.file_type() {
            Some(FileType::Directory) => self.directory(subject, form, &seen)?,
            Some(FileType::Regular) => self.regular(subject, form, &mut seen)?,
            _ => {}
        }
        if subject.is_cleared {
            // Given back when all have claimed theirs: another thread may see these as its own.
            self.found.released.push((subject.ino, subject.raw));
            return Ok(());
        }
        let xattrs = self.attributes(subject)?;
        let attributes = u64::from(xattrs.block.is_some()) + u64::from(xattrs.values.clusters);
        let mut clusters = seen.count.clusters.saturating_add(attributes);
        if subject.ino == Ino::RESIZE {
            clusters = self.resize_blocks(&subject.raw)?;
        }
        let geometry = self.state.geometry();
        let bytes = clusters << geometry.cluster_bits << geometry.block_size.log2();
        self.count_usage(subject, bytes, xattrs.values.inodes);
        if seen.cause.is_some() || subject.ino == Ino::BAD_BLOCKS {
            return Ok(());
        }
        self.compare_blocks(subject, clusters)
    }

    fn claim(&mut self, subject: &Subject<'_>) -> Result<Seen> {
        let is_directory = subject.file_type() == Some(FileType::Directory);
        let features = self.state.geometry().features.ro_compat;
        let mut claims = Claims {
            state: self.state,
            ino: subject.ino,
            runs: is_directory.then_some(&mut self.runs),
            may_share: features.contains(RoCompat::SHARED_BLOCKS),
            seen: Seen::default(),
        };
        let Subject { ino, raw, .. } = subject;
        mapping::walk(self.state, *ino, raw, &mut self.buffers, &mut claims)?;
        Ok(claims.seen)
    }

    fn directory(&mut self, subject: &mut Subject<'_>, form: Form, seen: &Seen) -> Result<()> {
        if form == Form::None {
            return Ok(());
        }
        if seen.end == 0 {
            let finding = subject.finding(InodeProblem::EmptyDirectory);
            return self.clear(subject, finding);
        }
        if seen.has_unwritten && seen.cause.is_none() {
            let cause = self
                .state
                .report(subject.finding(InodeProblem::UnwrittenDirectory));
            let ino = subject.ino;
            self.found.repacks.push(Repack::all(ino, cause));
        }
        if seen.end != u64::from(seen.blocks) {
            let finding = subject.finding(InodeProblem::DirectoryHole);
            let finding = finding.found(seen.end - 1).right(seen.blocks);
            let cause = self.mend(subject, finding, |raw| {
                raw.i_flags = (raw.i_flags.get() & !InodeFlags::INDEX.bits()).into();
            })?;
            let ino = subject.ino;
            self.found.repacks.push(Repack::all(ino, cause));
        }
        let right = u64::from(seen.blocks) << self.state.geometry().block_size.log2();
        let size = subject.size();
        if size != right {
            self.set_size(subject, size, right)?;
        }
        Ok(())
    }

    fn regular(&mut self, subject: &mut Subject<'_>, form: Form, seen: &mut Seen) -> Result<()> {
        let size = subject.size();
        if size >> 31 != 0 {
            self.common.has_large_file.store(true, Ordering::Relaxed);
        }
        let log2 = self.state.geometry().block_size.log2();
        // Verity keeps its tree behind the end, and reserved inodes their blocks.
        let reserved = [Ino::RESIZE, Ino::BAD_BLOCKS].contains(&subject.ino);
        if subject.has(InodeFlags::VERITY) {
            self.verity(subject, seen)?;
        }
        if form == Form::None || subject.has(InodeFlags::VERITY) || reserved {
            return Ok(());
        }
        let blocks_max = match form {
            Form::Extents => u64::from(u32::MAX),
            _ => Reach::new(self.state.geometry().block_size).blocks_max(),
        };
        let blocks_max = blocks_max.min(u32::MAX.into());
        let last_written = seen.end_written.saturating_sub(1) << log2;
        if size < last_written && self.ends_at_size(subject)? {
            let end = self.state.geometry().block_size.blocks_for(size);
            let finding = subject.finding(InodeProblem::PastEnd);
            let cause = self.state.report(finding.found(seen.end).right(end));
            let ino = subject.ino;
            self.found.repacks.push(Repack { ino, cause, end });
            seen.cause = Some(cause);
            return Ok(());
        }
        if size < last_written || size > blocks_max << log2 {
            self.set_size(subject, size, seen.end_written << log2)?;
        }
        Ok(())
    }

    /// Whether the count of blocks says that the size is right, and that the map reaches too far:
    /// it counts the blocks before the end, and no others.
    fn ends_at_size(&self, subject: &Subject<'_>) -> Result<bool> {
        let geometry = self.state.geometry();
        if geometry.cluster_bits != 0 || subject.has(InodeFlags::HUGE_FILE) {
            return Ok(false);
        }
        let map = mapping::read(self.state, subject.ino, &subject.raw)?;
        let end = geometry.block_size.blocks_for(subject.size());
        let before = |extent: &Extent| {
            let left = end.saturating_sub(extent.lblk.0.into());
            left.min(extent.len.into())
        };
        let data: u64 = map.extents.iter().map(before).sum();
        let attributes = u64::from(subject.xattr_block().0 != 0);
        let blocks = data
            .saturating_add(map.nodes.len() as u64)
            .saturating_add(attributes);
        let found = u64::from(subject.raw.i_blocks_lo.get());
        Ok(data != 0 && found == mapping::blocks_field(geometry, blocks, false))
    }

    /// Without the feature the kernel does not open a file with the flag.
    fn verity(&self, subject: &mut Subject<'_>, seen: &Seen) -> Result<()> {
        let geometry = self.state.geometry();
        if geometry.features.ro_compat.contains(RoCompat::VERITY) {
            return Ok(());
        }
        if seen.end_written <= geometry.block_size.blocks_for(subject.size()) {
            let flags = subject.raw.i_flags.get() & !InodeFlags::VERITY.bits();
            let finding = subject.finding(InodeProblem::Verity);
            self.mend(subject, finding, |raw| raw.i_flags = flags.into())?;
            return Ok(());
        }
        let cause = self
            .state
            .report(subject.finding(InodeProblem::VerityFeature));
        self.state.volume.update_superblock(cause, |superblock| {
            let features = superblock.s_feature_ro_compat.get() | RoCompat::VERITY.bits();
            superblock.s_feature_ro_compat = features.into();
        })
    }

    pub fn set_size(&self, subject: &mut Subject<'_>, found: u64, right: u64) -> Result<()> {
        let finding = subject.finding(InodeProblem::Size);
        self.mend(subject, finding.found(found).right(right), |raw| {
            raw.i_size_lo = lo32(right).into();
            raw.i_size_high = hi32(right).into();
        })?;
        Ok(())
    }

    fn compare_blocks(&self, subject: &mut Subject<'_>, clusters: u64) -> Result<()> {
        let geometry = self.state.geometry();
        let huge_file = geometry.features.ro_compat.contains(RoCompat::HUGE_FILE);
        let is_huge = huge_file && subject.has(InodeFlags::HUGE_FILE);
        let high = match huge_file {
            true => subject.raw.i_blocks_high.get(),
            false => 0,
        };
        let found = u64::from(high) << 32 | u64::from(subject.raw.i_blocks_lo.get());
        let right = mapping::blocks_field(geometry, clusters, is_huge);
        if found == right {
            return Ok(());
        }
        let finding = subject.finding(InodeProblem::Blocks);
        self.mend(subject, finding.found(found).right(right), |raw| {
            raw.i_blocks_lo = lo32(right).into();
            if huge_file {
                raw.i_blocks_high = lo16(hi32(right)).into();
            }
        })?;
        Ok(())
    }

    /// Examines the attributes of an inode.
    fn attributes(&mut self, subject: &mut Subject<'_>) -> Result<Xattrs> {
        let xattrs = xattr::check(self.state, subject.ino, &subject.raw, subject.bytes)?;
        if xattrs.lost_encryption {
            // The names of a directory are judged as what they are from now on.
            let flags = subject.raw.i_flags.get() & !InodeFlags::ENCRYPT.bits();
            subject.raw.i_flags = flags.into();
        }
        Ok(xattrs)
    }
}
