//! What is grown and shrunk: chosen shapes, and random ones.

use std::fmt;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use tempfile::TempDir;
use uext4::{Creation, Volume};
use uext4_blockdev::{BlockDevice, Clock, MemoryDevice, SystemClock, VirtualClock};
use uext4_resize::{Error, Examination, Resized, Size, SmallerSize, grow, grow_mounted, shrink};
use uext4_testkit::e2fsprogs::{assert_e2fsck, debugfs_write, mke2fs};
use uext4_testkit::{SimDevice, SplitMix64, run};

use crate::grow::image;
use crate::power_cut::{mount_options, sim};
use crate::tree::fill;

/// What is done.
#[derive(Clone, Copy, Debug)]
pub enum Work {
    /// To so many MiB.
    Grow(u64),
    /// The same while it is mounted.
    GrowMounted(u64),
    Shrink(SmallerSize),
}

/// A file system, and what is done to it.
#[derive(Clone, Debug)]
pub struct Case {
    /// Options of mke2fs.
    pub options: String,
    /// Its size.
    pub mib: u64,
    pub work: Work,
    /// Directories with files that differ in all ways; without any, there are a few small files.
    pub dirs: u32,
    /// Its journal was made when much was full, and lies far from the beginning.
    pub is_far: bool,
    /// What is free lies in pieces.
    pub is_scattered: bool,
    /// Its journal must be replayed first.
    pub is_unclean: bool,
    /// Decides all that, for a random one.
    seed: Option<u64>,
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            options, mib, work, ..
        } = self;
        write!(f, "{options} {mib}M, {work:?}")?;
        let far = if self.is_far { ", journal far" } else { "" };
        let scattered = if self.is_scattered { ", scattered" } else { "" };
        let unclean = if self.is_unclean { ", unclean" } else { "" };
        write!(f, "{far}{scattered}{unclean}")?;
        match self.seed {
            Some(seed) => write!(f, ", UEXT4_SEED={seed}"),
            None => Ok(()),
        }
    }
}

impl Case {
    fn grow(options: &str, mib: u64, to: u64) -> Self {
        Self {
            options: options.into(),
            mib,
            work: Work::Grow(to),
            dirs: 0,
            is_far: false,
            is_scattered: false,
            is_unclean: false,
            seed: None,
        }
    }

    fn mounted(mut self) -> Self {
        if let Work::Grow(to) = self.work {
            self.work = Work::GrowMounted(to);
        }
        self
    }

    fn shrink(options: &str, mib: u64) -> Self {
        Self {
            options: options.into(),
            mib,
            work: Work::Shrink(SmallerSize::Least),
            dirs: 20,
            is_far: false,
            is_scattered: false,
            is_unclean: false,
            seed: None,
        }
    }

    /// The device before.
    pub fn start(&self, dir: &TempDir) -> MemoryDevice {
        let path = dir.path().join("image");
        let len = match self.work {
            Work::Grow(to) | Work::GrowMounted(to) => to,
            Work::Shrink(_) => self.mib,
        } << 20;
        if self.dirs == 0 {
            image(dir, &self.options, self.mib);
        } else {
            _ = fs::remove_file(&path);
            mke2fs(&path, self.options.split(' '), &format!("{}M", self.mib));
        }
        if self.is_far {
            make_journal_far(dir, &path, self.mib);
        }
        let mut bytes = fs::read(&path).unwrap();
        bytes.resize(len as usize, 0);
        let start = Arc::new(MemoryDevice::from_bytes(bytes));
        if self.dirs > 0 {
            fill(&(Arc::clone(&start) as _), self.dirs, 20_000);
        }
        if self.is_scattered {
            scatter(&start);
        }
        match self.is_unclean {
            true => left_open(&start),
            false => start.snapshot(),
        }
    }

    /// Does it. From `zero_from` on nothing was written.
    pub fn carry_out(
        &self,
        device: &Arc<dyn BlockDevice>,
        zero_from: u64,
    ) -> Result<Resized, Error> {
        let clock: Arc<dyn Clock> = Arc::new(VirtualClock::default());
        match self.work {
            Work::Grow(_) => {
                let skipped = Examination::Skipped;
                grow(device, &clock, Size::Device, zero_from, skipped)
            }
            Work::GrowMounted(_) => {
                let volume = Volume::open(Arc::clone(device), clock, &mount_options())?;
                let grown = grow_mounted(&volume, Size::Device)?;
                use_new_groups(&volume);
                volume.close()?;
                Ok(grown)
            }
            Work::Shrink(size) => {
                shrink(device, &clock, size, Examination::Skipped, &mut |_| Ok(()))
            }
        }
    }

    /// What a seed decides, mounted while it grows.
    pub fn random_mounted(seed: u64) -> Self {
        let case = Self::random(seed);
        let to = match case.work {
            Work::Grow(to) | Work::GrowMounted(to) => to,
            Work::Shrink(_) => case.mib + 1 + seed % 60,
        };
        Self {
            work: Work::GrowMounted(to),
            ..case
        }
    }

    /// One of these that a seed decides: shapes that mke2fs makes, sizes of a few groups.
    pub fn random(seed: u64) -> Self {
        let mut random = SplitMix64::new(seed);
        let block = [1024, 1024, 1024, 2048, 4096][random.index(5)];
        let group = (2 << random.below(3) << 20) / block;
        let layouts = [
            "",
            "",
            "^resize_inode",
            "^resize_inode,meta_bg",
            "^resize_inode,sparse_super2",
            "^resize_inode,^sparse_super",
        ];
        let is_ext3 = random.below(6) == 0;
        let mut features = vec![layouts[random.index(layouts.len())]];
        for feature in [
            "^metadata_csum",
            "^64bit",
            "^flex_bg",
            "orphan_file",
            "quota",
            "inline_data",
            "ea_inode",
        ] {
            if random.below(4) == 0 && !is_ext3 {
                features.push(feature);
            }
        }
        features.retain(|feature| !feature.is_empty());
        let kind = if is_ext3 { "ext3" } else { "ext4" };
        let inodes = 1500 + random.below(3000);
        let mut options = format!("-t {kind} -b {block} -g {group} -N {inodes} -I 256");
        if !features.is_empty() {
            options += &format!(" -O {}", features.join(","));
        }
        if block == 1024 && random.below(3) == 0 {
            options += " -J size=3";
        }
        let mib = 12 + random.below(14);
        let work = match random.below(4) {
            0 => Work::Shrink(SmallerSize::Least),
            1 => Work::Shrink(SmallerSize::Bytes(
                (mib << 20) * (50 + random.below(40)) / 100,
            )),
            _ => Work::Grow(mib + 1 + random.below(60)),
        };
        // tune2fs does not take such a journal away, and e2fsck, which only replays it, leaves the
        // mark of an orphan file in use.
        let has_orphan_file = options.contains("orphan_file");
        let is_far = random.below(3) == 0 && !has_orphan_file;
        Self {
            options,
            mib,
            work,
            is_far,
            dirs: 2 + random.below(4) as u32,
            is_scattered: random.below(3) == 0,
            is_unclean: random.below(3) == 0 && !has_orphan_file,
            seed: Some(seed),
        }
    }
}

/// The name of what is made in groups that were added.
pub const LATER: &str = "/later";

/// Transactions that change blocks of groups that were added, while the log has the one that added
/// them. A directory in the root is put where most is free.
fn use_new_groups(volume: &Volume) {
    _ = volume.remove_all(LATER);
    volume.create_dir(LATER, &Creation::directory()).unwrap();
    for nr in 0..6 {
        let bytes = vec![nr; 30_000 + usize::from(nr) * 2000];
        volume.write(format!("{LATER}/{nr}"), bytes).unwrap();
        volume.sync().unwrap();
    }
    volume.remove_all(LATER).unwrap();
    volume.sync().unwrap();
}

fn opened(device: Arc<dyn BlockDevice>) -> Volume {
    // e2fsck takes a file that was deleted soon after 1970 for an orphan.
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    Volume::open(device, clock, &mount_options()).unwrap()
}

/// Makes the journal anew, behind most of what is there.
fn make_journal_far(dir: &TempDir, image: &Path, mib: u64) {
    let large = dir.path().join("large");
    fs::write(&large, vec![1; (mib << 20) as usize / 2]).unwrap();
    let tune = |options: [&str; 2]| {
        run(
            "tune2fs",
            [options[0].as_ref(), options[1].as_ref(), image.as_os_str()],
        )
    };
    tune(["-O", "^has_journal"]);
    debugfs_write(image, [format!("write {} large", large.display())]);
    tune(["-O", "has_journal"]);
    debugfs_write(image, ["rm large"]);
    fs::remove_file(large).unwrap();
    assert_e2fsck(image, "-fy", 1);
}

/// Small files, of which every other one goes again.
fn scatter(start: &Arc<MemoryDevice>) {
    let volume = opened(Arc::clone(start) as _);
    let name = |nr: u32| format!("/small{nr}");
    for nr in 0..240 {
        let len = 700 + nr as usize % 3 * 1000;
        volume.write(name(nr), vec![nr as u8; len]).unwrap();
        // Where the next one lies behind it.
        if nr.is_multiple_of(50) {
            volume.sync().unwrap();
        }
    }
    for nr in (0..240).step_by(2) {
        volume.remove(name(nr)).unwrap();
    }
    volume.close().unwrap();
}

/// What is on the device while files are written, and the journal holds some of it.
fn left_open(start: &MemoryDevice) -> MemoryDevice {
    let device = Arc::new(SimDevice::new(start, sim()));
    let volume = opened(Arc::clone(&device) as _);
    for nr in 0..30 {
        volume.write(format!("/late{nr}"), vec![nr; 500]).unwrap();
    }
    volume.sync().unwrap();
    device.durable()
}

/// What grows after its journal was replayed.
pub fn unclean_grow() -> Case {
    Case {
        dirs: 3,
        is_unclean: true,
        ..Case::grow("-t ext4 -b 1024", 12, 40)
    }
}

/// All that are chosen.
pub fn chosen() -> Vec<Case> {
    let small_groups = "-b 1024 -g 4096 -N 4000";
    vec![
        Case::grow("-t ext4 -b 1024", 12, 40),
        Case::grow("-t ext4 -b 1024 -O ^resize_inode", 60, 80),
        Case::grow("-t ext4 -b 1024 -E resize=20000", 12, 140),
        Case::grow("-t ext4 -O bigalloc", 100, 130),
        Case::grow("-t ext3 -b 1024", 12, 40),
        Case::grow("-t ext4 -b 1024", 12, 40).mounted(),
        Case::grow("-t ext4 -b 1024 -O ^resize_inode", 60, 80).mounted(),
        // It gets meta_bg, and gives up the blocks of inode 7.
        Case::grow("-t ext4 -b 1024 -E resize=20000", 12, 140).mounted(),
        Case::grow("-t ext3 -b 1024", 12, 40).mounted(),
        unclean_grow(),
        Case::shrink(&format!("-t ext4 {small_groups}"), 24),
        Case::shrink(
            &format!("-t ext4 {small_groups} -O ^flex_bg,orphan_file"),
            24,
        ),
        // The journal's map has tables, before and after, or only after.
        Case {
            is_far: true,
            ..Case::shrink(&format!("-t ext3 {small_groups}"), 24)
        },
        // There is no room for two journals.
        Case {
            work: Work::Shrink(SmallerSize::Bytes(5_500 << 10)),
            dirs: 5,
            is_far: true,
            is_scattered: true,
            ..Case::shrink(&format!("-t ext4 {small_groups}"), 24)
        },
    ]
}
