//! Quotas of a file system that is mounted for writing: the dquots in use, each once
//! in memory.
//!
//! They are counted wherever there is the feature, as the kernel counts them. `file` reads the
//! hidden files; `inode::dquot` counts. Left out: new entries in the files, which need handles
//! (`file::quota_change`).

pub(crate) mod file;

use std::sync::Arc;

use parking_lot::RwLock;
use rustc_hash::FxHashMap;
use uext4_blockdev::Clock;
use uext4_ondisk::features::RoCompat;

pub use crate::inode::dquot::{Quota, QuotaLimits};
pub use uext4_ondisk::quota::QuotaKind;

use crate::base::disk::Disk;
use crate::base::edit::Edit;
use crate::base::error::{Error, Result};
use crate::inode::MapBlocks;
use crate::inode::dquot::{Dquot, GracePeriods, Owners, Shared, quota_of};
use crate::quota::file::{Found, KINDS, QuotaFile, quota_inum};

/// Parts of the table, a power of two.
const SHARDS: usize = 64;
/// Dquots of one part that are stored although no thread uses them.
const IDLE_MAX: usize = 64;

/// The ids that pay: user, group and project.
pub(crate) type Ids = [u32; 3];

type Shard = RwLock<FxHashMap<(usize, u32), Arc<Dquot>>>;

/// The counts of a mounted file system.
#[derive(Debug)]
pub(crate) struct Quotas {
    files: [Option<RwLock<QuotaFile>>; 3],
    shards: [Shard; SHARDS],
    shared: Arc<Shared>,
}

pub(crate) fn index(kind: QuotaKind) -> usize {
    kind as usize
}

/// Whether anything is counted.
pub(crate) fn has_quotas(disk: &Disk) -> bool {
    let features = disk.geometry().features;
    features.ro_compat.contains(RoCompat::QUOTA)
}

pub(crate) fn not_counted(kind: QuotaKind) -> Error {
    let what = match kind {
        QuotaKind::User => "quotas of users",
        QuotaKind::Group => "quotas of groups",
        QuotaKind::Project => "quotas of projects",
    };
    Error::Unsupported {
        what: what.to_owned(),
    }
}

impl Quotas {
    /// Of a file system with the feature; limits are reported or refused as `enforced` says.
    pub(crate) fn open(
        disk: &Disk,
        map: MapBlocks,
        clock: Arc<dyn Clock>,
        enforced: bool,
    ) -> Result<Option<Self>> {
        if !has_quotas(disk) {
            return Ok(None);
        }
        let mut files = [None, None, None];
        for (file, kind) in files.iter_mut().zip(KINDS) {
            *file = QuotaFile::open(disk, map, kind)?.map(RwLock::new);
        }
        Ok(Some(Self {
            files,
            shards: std::array::from_fn(|_| RwLock::default()),
            shared: Arc::new(Shared::new(clock, enforced)),
        }))
    }

    /// The file of a kind, if that is counted.
    pub(crate) fn file(&self, kind: QuotaKind) -> Option<&RwLock<QuotaFile>> {
        self.files.get(index(kind))?.as_ref()
    }

    fn shard(&self, kind: QuotaKind, id: u32) -> &Shard {
        let spread = (id as usize).wrapping_mul(3).wrapping_add(index(kind));
        &self.shards[spread % SHARDS]
    }

    /// The dquot of an id, read from the file if no thread uses it; `None` if its kind is not
    /// counted.
    pub(crate) fn get(&self, disk: &Disk, kind: QuotaKind, id: u32) -> Result<Option<Arc<Dquot>>> {
        let Some(file) = self.file(kind) else {
            return Ok(None);
        };
        let key = (index(kind), id);
        let known = self.shard(kind, id).read().get(&key).map(Arc::clone);
        if known.is_some() {
            return Ok(known);
        }
        // Held while it is read: who reads it later must not bring back older numbers.
        let mut shard = self.shard(kind, id).write();
        if let Some(dquot) = shard.get(&key) {
            return Ok(Some(Arc::clone(dquot)));
        }
        if shard.len() >= 2 * IDLE_MAX {
            shard.retain(|_, dquot| Arc::strong_count(dquot) > 1);
        }
        let file = file.read();
        let header = &file.header;
        let grace = GracePeriods {
            space: header.dqi_bgrace.get(),
            inodes: header.dqi_igrace.get(),
        };
        let new = |entry| Dquot::new(&self.shared, kind, id, grace, entry);
        let dquot = match file.find(disk, id)? {
            Found::Way { .. } => new(None),
            Found::Entry(block, at, entry) => {
                let dquot = new(Some(&*entry));
                dquot.set_place(block.buffer, at, file.inode.ino);
                dquot
            }
        };
        let dquot = Arc::new(dquot);
        shard.insert(key, Arc::clone(&dquot));
        Ok(Some(dquot))
    }

    /// The payers of files that belong to these ids.
    pub(crate) fn owners(&self, disk: &Disk, ids: Ids) -> Result<Owners> {
        let mut dquots = [None, None, None];
        for ((dquot, kind), id) in dquots.iter_mut().zip(KINDS).zip(ids) {
            *dquot = self.get(disk, kind, id)?;
        }
        Ok(Owners::new(dquots))
    }

    /// Puts what was charged since the last commit into the files' blocks. New handles wait.
    pub(crate) fn rule(&self, closing: &impl Edit) {
        self.shared.rule(closing);
    }

    /// The count of an id in use.
    fn in_use(&self, kind: QuotaKind, id: u32) -> Option<Quota> {
        let shard = self.shard(kind, id).read();
        shard.get(&(index(kind), id)).map(|dquot| dquot.quota())
    }
}

/// What an id has and may have; nothing, if it was never counted. `counted` is what a file system
/// mounted for writing counts.
pub(crate) fn quota(
    disk: &Disk,
    counted: Option<&Quotas>,
    map: MapBlocks,
    kind: QuotaKind,
    id: u32,
) -> Result<Quota> {
    if let Some(quotas) = counted {
        let dquot = quotas.get(disk, kind, id)?;
        return Ok(dquot.ok_or_else(|| not_counted(kind))?.quota());
    }
    match open(disk, map, kind)?.find(disk, id)? {
        Found::Entry(_, _, entry) => Ok(quota_of(&entry)),
        Found::Way { .. } => Ok(Quota {
            id,
            ..Quota::default()
        }),
    }
}

/// What all ids of a kind have and may have, by id.
pub(crate) fn quotas(
    disk: &Disk,
    counted: Option<&Quotas>,
    map: MapBlocks,
    kind: QuotaKind,
) -> Result<Vec<Quota>> {
    let entries = match counted {
        Some(quotas) => {
            let file = quotas.file(kind).ok_or_else(|| not_counted(kind))?;
            file.read().entries(disk)?
        }
        None => open(disk, map, kind)?.entries(disk)?,
    };
    let in_use = |id| counted?.in_use(kind, id);
    let now = |stored: Quota| in_use(stored.id).unwrap_or(stored);
    let mut all: Vec<Quota> = entries.iter().map(quota_of).map(now).collect();
    all.sort_unstable_by_key(|quota| quota.id);
    Ok(all)
}

/// The file of a kind, of a file system mounted for reading.
fn open(disk: &Disk, map: MapBlocks, kind: QuotaKind) -> Result<QuotaFile> {
    let counted = has_quotas(disk) && quota_inum(disk, kind).is_some();
    let file = match counted {
        true => QuotaFile::open(disk, map, kind)?,
        false => None,
    };
    file.ok_or_else(|| not_counted(kind))
}
