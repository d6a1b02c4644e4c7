//! Orphans: inodes whose deletion or truncation had not ended when the file system was left.
//!
//! They are in a list through `i_dtime` that starts in the superblock, or in the slots of the
//! orphan file. This file reads them; `change` adds and removes them, inside a handle. Left out:
//! deleting and cutting (`file::evict`, `file::change`).

pub(crate) mod change;

use std::collections::HashSet;

use uext4_ondisk::features::Compat;
use uext4_ondisk::orphan::OrphanBlock;
use uext4_ondisk::{Damage, Ino, Lblk, Pblk};

use crate::base::disk::Disk;
use crate::base::error::{Error, Result};
use crate::base::mapping::MapState;
use crate::base::owner::{Kind, owned_tag};
use crate::inode::{MapBlocks, iget};

/// Bytes of an orphan file, at most: the kernel's limit.
const ORPHAN_FILE_MAX: u64 = 8 << 20;

/// All orphans, each once: first those of the list, then those of the orphan file.
pub(crate) fn orphans(disk: &Disk, map: MapBlocks) -> Result<Vec<Ino>> {
    let mut found = Vec::new();
    let mut seen = HashSet::new();
    let mut next = Ino(disk.superblock().s_last_orphan.get());
    while next.0 != 0 {
        if !seen.insert(next) {
            return Err(Error::Corrupt(Damage::Field {
                structure: "orphan list",
                field: "i_dtime",
                value: next.0.into(),
                why: "the list runs in a circle",
            }));
        }
        found.push(next);
        next = Ino(iget(disk, next)?.dtime);
    }
    in_orphan_file(disk, map, |ino| {
        if seen.insert(ino) {
            found.push(ino);
        }
    })?;
    Ok(found)
}

/// Calls `f` with every slot in use.
fn in_orphan_file(disk: &Disk, map: MapBlocks, mut f: impl FnMut(Ino)) -> Result<()> {
    let has_file = disk
        .geometry()
        .features
        .compat
        .contains(Compat::ORPHAN_FILE);
    let ino = Ino(disk.superblock().s_orphan_file_inum.get());
    if !has_file || ino.0 == 0 {
        return Ok(());
    }
    let file = iget(disk, ino)?;
    if file.size > ORPHAN_FILE_MAX {
        return Err(Error::Corrupt(Damage::InodeField {
            ino,
            field: "i_size",
            value: file.size,
            why: "the orphan file is larger than 8 MiB",
        }));
    }
    let blocks = disk.geometry().block_size.blocks_for(file.size) as u32;
    let seed = disk
        .geometry()
        .csum_seed
        .map(|s| s.inode(ino, file.generation));
    let tag = owned_tag(Kind::Orphan, 0, ino, file.generation);
    let mut next = 0;
    while next < blocks {
        let run = map(disk, &file, Lblk(next), blocks - next)?;
        if run.state != MapState::Written {
            return Err(Error::Corrupt(Damage::Field {
                structure: "orphan file",
                field: "logical block",
                value: next.into(),
                why: "is a hole",
            }));
        }
        for block in (run.pblk.0..run.pblk.0 + u64::from(run.len)).map(Pblk) {
            let buffer = disk.bread("orphan file", block, tag, |bytes| {
                OrphanBlock::parse(bytes, block, seed).map(|_| ())
            })?;
            OrphanBlock::parse(&buffer.data(), block, None)?
                .inodes()
                .for_each(&mut f);
        }
        next = run.end();
    }
    Ok(())
}
