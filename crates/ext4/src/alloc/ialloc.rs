//! In which group a new inode goes, after Orlov: directories spread out, files stay with them.
//!
//! A directory at the top of a tree begins a new neighbourhood: it goes where few directories are
//! and enough inodes and blocks are free. Any other directory stays near its parent unless the
//! parent's neighbourhood is crowded. Everything that is no directory goes where its directory
//! is. A neighbourhood is a flex group, or a group where there are none.
//!
//! Only the choice is made here, from the counts in the descriptors; taking the inode is the
//! caller's business. Source: J. Corbet, "The Orlov block allocator", and the behaviour of the
//! kernel.

use uext4_ondisk::{Geometry, GroupNr};

/// What a flex group has, summed over its groups.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FlexStats {
    /// Free inodes.
    pub(crate) free_inodes: u64,
    /// Free blocks.
    pub(crate) free_blocks: u64,
    /// Directories.
    pub(crate) used_dirs: u64,
}

/// Where the parent is, and what its last directory found.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Parent {
    /// Group of its inode.
    pub(crate) group: GroupNr,
    /// The root, or a directory with the flag that says it is the top of unrelated trees.
    pub(crate) is_top: bool,
    /// Group that its last new directory got.
    pub(crate) last_group: Option<GroupNr>,
}

/// What a group has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct GroupCounts {
    /// Free inodes.
    pub(crate) free_inodes: u32,
    /// Free blocks.
    pub(crate) free_blocks: u32,
}

/// The counts of all groups. They may change while they are looked at: what comes of them is a
/// choice, not a reservation.
pub(crate) trait Counts {
    /// Groups, at least 1.
    fn groups(&self) -> u32;
    /// Of one group below that.
    fn group(&self, group: GroupNr) -> GroupCounts;
    /// Flex groups; as many as groups where there are none.
    fn flexes(&self) -> usize;
    /// Of one flex group below that.
    fn flex(&self, flex: usize) -> FlexStats;
    /// The sum of all.
    fn total(&self) -> FlexStats;
}

impl dyn Counts + '_ {
    /// The group for a directory; `None` if no inode is free anywhere.
    ///
    /// `hash` is any number that depends on the name: it reports where the search for a top-level
    /// directory's place begins.
    pub(crate) fn for_directory(
        &self,
        geometry: &Geometry,
        parent: Parent,
        hash: u32,
    ) -> Option<GroupNr> {
        let found = if parent.is_top {
            self.emptiest(hash)
        } else {
            self.uncrowded(geometry, parent)
        };
        if let Some(group) = found.and_then(|flex| self.first_free_in(geometry, flex)) {
            return Some(group);
        }
        // No neighbourhood is good: any group with as many free inodes as the average one, then
        // any.
        let average = self.total().free_inodes / u64::from(self.groups().max(1));
        self.from(parent.group.0, |counts| {
            counts.free_inodes > 0 && u64::from(counts.free_inodes) >= average
        })
        .or_else(|| self.from(parent.group.0, |counts| counts.free_inodes > 0))
    }

    /// The group for anything else; `None` if no inode is free anywhere.
    pub(crate) fn for_other(&self, geometry: &Geometry, parent: Parent) -> Option<GroupNr> {
        if geometry.log_groups_per_flex > 0 {
            let near = self.first_free_in(geometry, flex_of(geometry, parent.group.0));
            return near.or_else(|| {
                let parent = Parent {
                    is_top: false,
                    ..parent
                };
                self.for_directory(geometry, parent, 0)
            });
        }
        self.from(parent.group.0, |counts| {
            counts.free_inodes > 0 && counts.free_blocks > 0
        })
        .or_else(|| self.from(parent.group.0, |counts| counts.free_inodes > 0))
    }

    /// The flex group with the fewest directories among those with at least average free space.
    fn emptiest(&self, hash: u32) -> Option<usize> {
        let count = self.flexes();
        let average = self.averages();
        let start = hash as usize % count.max(1);
        (start..count)
            .chain(0..start)
            .map(|flex| (flex, self.flex(flex)))
            .filter(|(_, stats)| {
                stats.free_inodes > 0
                    && stats.free_inodes >= average.free_inodes
                    && stats.free_blocks >= average.free_blocks
            })
            .min_by_key(|(_, stats)| stats.used_dirs)
            .map(|(flex, _)| flex)
    }

    /// The first flex group from the parent's on that is not crowded.
    fn uncrowded(&self, geometry: &Geometry, parent: Parent) -> Option<usize> {
        let average = self.averages();
        let groups_per_flex = 1u64 << geometry.log_groups_per_flex.min(31);
        let flex_inodes = groups_per_flex * u64::from(geometry.inodes_per_group.get());
        let flex_blocks = groups_per_flex * u64::from(geometry.blocks_per_group.get());
        let max_dirs = average.used_dirs + flex_inodes / 16;
        let min_inodes = average.free_inodes.saturating_sub(flex_inodes / 4).max(1);
        let min_blocks = average.free_blocks.saturating_sub(flex_blocks / 4);
        let start = flex_of(geometry, parent.last_group.unwrap_or(parent.group).0);
        let start = start.min(self.flexes());
        (start..self.flexes()).chain(0..start).find(|&flex| {
            let stats = self.flex(flex);
            stats.used_dirs < max_dirs.max(1)
                && stats.free_inodes >= min_inodes
                && stats.free_blocks >= min_blocks
        })
    }

    /// What the average flex group has.
    fn averages(&self) -> FlexStats {
        let count = self.flexes().max(1) as u64;
        let total = self.total();
        FlexStats {
            free_inodes: total.free_inodes / count,
            free_blocks: total.free_blocks / count,
            used_dirs: total.used_dirs / count,
        }
    }

    fn first_free_in(&self, geometry: &Geometry, flex: usize) -> Option<GroupNr> {
        let bits = u32::from(geometry.log_groups_per_flex);
        let first = flex.checked_shl(bits).unwrap_or(usize::MAX);
        let per_flex = 1usize.checked_shl(bits).unwrap_or(usize::MAX);
        let end = first.saturating_add(per_flex).min(self.groups() as usize);
        (first..end)
            .map(|group| GroupNr(group as u32))
            .find(|group| self.group(*group).free_inodes > 0)
    }

    /// The first group from `start` on, going once round, that `good` accepts.
    fn from(&self, start: u32, good: impl Fn(GroupCounts) -> bool) -> Option<GroupNr> {
        let start = start.min(self.groups());
        (start..self.groups())
            .chain(0..start)
            .map(GroupNr)
            .find(|group| good(self.group(*group)))
    }
}

fn flex_of(geometry: &Geometry, group: u32) -> usize {
    group
        .checked_shr(geometry.log_groups_per_flex.into())
        .unwrap_or(0) as usize
}

#[cfg(test)]
mod tests {
    use uext4_ondisk::features::{Features, Incompat};
    use uext4_ondisk::group_desc::GroupDesc;
    use uext4_ondisk::superblock::{EXT4_SUPER_MAGIC, SuperBlock};

    use super::*;

    const INODES: u32 = 1024;

    fn geometry(groups: u32, log_groups_per_flex: u8) -> Geometry {
        let mut sb = SuperBlock::zeroed();
        sb.s_magic = EXT4_SUPER_MAGIC.into();
        sb.s_rev_level = 1.into();
        sb.s_first_ino = 11.into();
        sb.s_inode_size = 256.into();
        sb.s_log_block_size = 2.into();
        sb.s_blocks_count_lo = (groups * 32768).into();
        sb.s_blocks_per_group = 32768.into();
        sb.s_clusters_per_group = 32768.into();
        sb.s_inodes_per_group = INODES.into();
        sb.s_inodes_count = (groups * INODES).into();
        sb.s_log_groups_per_flex = log_groups_per_flex;
        if log_groups_per_flex > 0 {
            let incompat = Incompat::FLEX_BG;
            sb.set_features(Features {
                incompat,
                ..Features::default()
            });
        }
        Geometry::new(&sb).unwrap()
    }

    struct Model {
        geometry: Geometry,
        groups: Vec<GroupDesc>,
    }

    impl Model {
        fn new(groups: u32, log_groups_per_flex: u8) -> Self {
            let desc = GroupDesc {
                free_clusters: 30_000,
                free_inodes: INODES,
                ..GroupDesc::default()
            };
            Self {
                geometry: geometry(groups, log_groups_per_flex),
                groups: vec![desc; groups as usize],
            }
        }

        fn for_directory(&self, parent: Parent, hash: u32) -> Option<GroupNr> {
            let counts: &dyn Counts = self;
            counts.for_directory(&self.geometry, parent, hash)
        }

        fn for_other(&self, parent: Parent) -> Option<GroupNr> {
            let counts: &dyn Counts = self;
            counts.for_other(&self.geometry, parent)
        }

        fn directory(&mut self, parent: Parent, hash: u32) -> Option<u32> {
            let group = self.for_directory(parent, hash)?.0;
            let desc = &mut self.groups[group as usize];
            desc.free_inodes -= 1;
            desc.used_dirs += 1;
            Some(group)
        }
    }

    impl Counts for Model {
        fn groups(&self) -> u32 {
            self.groups.len() as u32
        }

        fn group(&self, group: GroupNr) -> GroupCounts {
            let desc = &self.groups[group.0 as usize];
            GroupCounts {
                free_inodes: desc.free_inodes,
                free_blocks: desc.free_clusters,
            }
        }

        fn flexes(&self) -> usize {
            self.groups
                .len()
                .div_ceil(1 << self.geometry.log_groups_per_flex)
        }

        fn flex(&self, flex: usize) -> FlexStats {
            let per_flex = 1 << self.geometry.log_groups_per_flex;
            let groups = self.groups.chunks(per_flex).nth(flex).unwrap();
            sum(groups)
        }

        fn total(&self) -> FlexStats {
            sum(&self.groups)
        }
    }

    fn sum(groups: &[GroupDesc]) -> FlexStats {
        let mut stats = FlexStats::default();
        for desc in groups {
            stats.free_inodes += u64::from(desc.free_inodes);
            stats.free_blocks += u64::from(desc.free_clusters);
            stats.used_dirs += u64::from(desc.used_dirs);
        }
        stats
    }

    fn parent(group: u32, is_top: bool) -> Parent {
        Parent {
            group: GroupNr(group),
            is_top,
            last_group: None,
        }
    }

    #[test]
    fn top_level_directories_spread() {
        let mut model = Model::new(8, 0);
        let mut groups: Vec<_> = (0..8)
            .map(|i| model.directory(parent(0, true), i * 77).unwrap())
            .collect();
        groups.sort_unstable();
        assert_eq!(groups, [0, 1, 2, 3, 4, 5, 6, 7]);
    }

    #[test]
    fn others_stay_with_their_parent() {
        let mut model = Model::new(32, 2);
        assert_eq!(model.directory(parent(9, false), 5), Some(8));
        assert_eq!(model.for_other(parent(9, false)), Some(GroupNr(8)));
        for group in 8..12 {
            model.groups[group].free_inodes = 0;
        }
        let elsewhere = model.for_other(parent(9, false)).unwrap();
        assert!(!(8..12).contains(&elsewhere.0));
    }

    #[test]
    fn crowded_neighbourhoods_are_left() {
        let mut model = Model::new(8, 0);
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..500 {
            seen.insert(model.directory(parent(3, false), 0).unwrap());
        }
        assert!(seen.len() > 1, "{seen:?}");
    }

    #[test]
    fn the_last_inode_is_found_and_then_none() {
        for log in [0, 1] {
            let mut model = Model::new(4, log);
            for desc in &mut model.groups {
                desc.free_inodes = 0;
            }
            model.groups[2].free_inodes = 1;
            model.groups[2].free_clusters = 0;
            for is_top in [false, true] {
                let asked = parent(0, is_top);
                assert_eq!(model.for_directory(asked, 1), Some(GroupNr(2)));
                assert_eq!(model.for_other(asked), Some(GroupNr(2)));
            }
            model.groups[2].free_inodes = 0;
            assert_eq!(model.for_directory(parent(0, true), 1), None);
            assert_eq!(model.for_other(parent(0, false)), None);
        }
    }
}
