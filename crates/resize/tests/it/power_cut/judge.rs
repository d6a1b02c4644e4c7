//! Whether what a power cut left is what it must be.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tempfile::TempDir;
use uext4::{Image, Volume};
use uext4_blockdev::{Access, BlockDevice, Clock, FileDevice, MemoryDevice, VirtualClock};
use uext4_resize::Resized;
use uext4_testkit::e2fsprogs::{assert_clean, e2fsck};
use uext4_testkit::loops::can_mount;

use crate::kernel::the_kernel_is_safe;
use crate::power_cut::cases::{Case, LATER, Work};
use crate::power_cut::{Often, mount_options};
use crate::tree::contents;

/// What was looked at.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    /// Images that cuts left.
    cuts: u64,
    /// How often each number of blocks was found.
    pub sizes: BTreeMap<u64, u64>,
    by_e2fsck: u64,
    /// Mounted by the kernel, and not mounted by it until e2fsck had replayed the journal.
    mounted: u64,
    refused: u64,
    again: u64,
}

impl Counts {
    /// The sizes differ from case to case.
    pub fn add(&mut self, other: &Self) {
        self.cuts += other.cuts;
        self.by_e2fsck += other.by_e2fsck;
        self.mounted += other.mounted;
        self.refused += other.refused;
        self.again += other.again;
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} cuts {:?}, {} by e2fsck, {} mounted by the kernel and {} refused, {} begun again",
            self.cuts, self.sizes, self.by_e2fsck, self.mounted, self.refused, self.again
        )
    }
}

/// The judge of one case.
#[derive(Debug)]
pub struct Judge {
    case: Case,
    dir: TempDir,
    before: BTreeMap<String, String>,
    resized: Resized,
    often: Often,
    pub counts: Counts,
    /// What is judged.
    what: String,
}

impl Drop for Judge {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("{}", self.what);
        }
    }
}

impl Judge {
    pub fn new(
        case: &Case,
        dir: TempDir,
        start: &MemoryDevice,
        resized: Resized,
        often: Often,
    ) -> Self {
        Self {
            case: case.clone(),
            dir,
            before: kept(case, contents(&shared(start))),
            resized,
            often,
            counts: Counts::default(),
            what: String::new(),
        }
    }

    /// Fails unless `left` is as it must be. All look at it, or those whose turn it is.
    pub fn judge(&mut self, left: &MemoryDevice, seed: u64, by_all: bool) {
        let nr = self.counts.cuts;
        let is_due = |often: u64| by_all || nr.is_multiple_of(often);
        self.counts.cuts += 1;
        self.what = format!("{}, {}. cut, seed {seed}", self.case, nr + 1);
        // Readers see what the log holds.
        self.must_be_whole(&shared(left));
        // The engine does not write to these.
        let is_bigalloc = self.case.options.contains("bigalloc");
        let replayed = match is_bigalloc {
            true => self.by_e2fsck(left),
            false => shared(left),
        };
        if !is_bigalloc {
            let clock: Arc<dyn Clock> = Arc::new(VirtualClock::default());
            let volume = Volume::open(Arc::clone(&replayed), clock, &mount_options()).unwrap();
            volume.close().unwrap();
        }
        let blocks = self.must_be_clean(&replayed);
        *self.counts.sizes.entry(blocks).or_default() += 1;
        if is_due(self.often.e2fsck) && !is_bigalloc {
            self.by_e2fsck(left);
        }
        // The kernel may be built without quotas.
        let fits_kernel = !is_bigalloc && !self.case.options.contains("quota");
        if is_due(self.often.kernel) && fits_kernel && can_mount() {
            let path = self.stored(left);
            match the_kernel_is_safe(&path, &self.dir) {
                true => self.counts.mounted += 1,
                false => self.counts.refused += 1,
            }
        }
        if is_due(self.often.again) && !is_bigalloc {
            self.counts.again += 1;
            self.begin_again(left);
        }
    }

    /// What was there, and must stay.
    fn kept(&self, device: &Arc<dyn BlockDevice>) -> BTreeMap<String, String> {
        kept(&self.case, contents(device))
    }

    fn must_be_whole(&self, device: &Arc<dyn BlockDevice>) {
        assert!(self.kept(device) == self.before, "{}", self.what);
    }

    /// Looked at by our own examination; its blocks.
    fn must_be_clean(&self, device: &Arc<dyn BlockDevice>) -> u64 {
        let found = uext4_fsck::findings(device).unwrap();
        assert!(found.is_empty(), "{}: {found:?}", self.what);
        self.must_be_whole(device);
        let image = Image::open(Arc::clone(device), &mount_options()).unwrap();
        image.geometry().blocks_count
    }

    /// What e2fsck makes of it, which is clean.
    fn by_e2fsck(&mut self, left: &MemoryDevice) -> Arc<dyn BlockDevice> {
        self.counts.by_e2fsck += 1;
        let path = self.stored(left);
        let replay = e2fsck(&path, "-y -E journal_only");
        assert!(replay.status.success(), "{}: {replay:?}", self.what);
        self.clear_mark(&path);
        assert_clean(&path);
        Arc::new(FileDevice::open(&path, Access::ReadOnly).unwrap())
    }

    /// e2fsck, when it only replays a journal, leaves the mark that an orphan file is in use, which
    /// a mount has set.
    fn clear_mark(&self, image: &Path) {
        let is_mounted = matches!(self.case.work, Work::GrowMounted(_));
        if !is_mounted || !self.case.options.contains("orphan_file") {
            return;
        }
        let done = e2fsck(image, "-fy");
        let said = String::from_utf8_lossy(&done.stdout);
        let only_that = said.matches("? yes").count() == said.matches("orphan_present").count();
        assert!(
            done.status.code() <= Some(1) && only_that,
            "{}: {said}",
            self.what
        );
    }

    /// The same work ends.
    fn begin_again(&self, left: &MemoryDevice) {
        let device = Arc::new(left.snapshot());
        let shared = Arc::clone(&device) as _;
        // Some of the new groups was written.
        let again = self.case.carry_out(&shared, left.len()).unwrap();
        let blocks = self.must_be_clean(&shared);
        assert_eq!(blocks, again.after, "{}", self.what);
        if !matches!(self.case.work, Work::Shrink(_)) {
            assert_eq!(blocks, self.resized.after, "{}", self.what);
        }
        assert_clean(&self.stored(&device));
    }

    /// An image file of it.
    fn stored(&self, left: &MemoryDevice) -> PathBuf {
        let path = self.dir.path().join("left");
        let file = File::create(&path).unwrap();
        file.set_len(left.len()).unwrap();
        let mut at = 0;
        while let Some(data) = left.next_data(at).unwrap() {
            let mut bytes = vec![0; (data.end - data.start) as usize];
            left.read_at(data.start, &mut bytes).unwrap();
            file.write_all_at(&bytes, data.start).unwrap();
            at = data.end;
        }
        path
    }
}

/// Of what is there, what must stay: not what is made meanwhile, nor the root's count of links.
fn kept(case: &Case, mut all: BTreeMap<String, String>) -> BTreeMap<String, String> {
    if matches!(case.work, Work::GrowMounted(_)) {
        all.retain(|path, _| !["", "/"].contains(&path.as_str()) && !path.contains(LATER));
    }
    all
}

/// A device of its own.
fn shared(image: &MemoryDevice) -> Arc<dyn BlockDevice> {
    Arc::new(image.snapshot())
}
