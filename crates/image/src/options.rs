//! How to build an image.

use crate::finish::FinishOptions;
use crate::size::Size;
use crate::source::SourceOptions;
use crate::sparse::Sparse;

/// How to build an image. The defaults give what `mke2fs -t ext4` would make, but for its identity
/// and size.
#[derive(Clone, Debug)]
pub struct BuildOptions {
    /// How to read the source.
    pub source: SourceOptions,
    /// The file system. `uuid`, `hash_seed`, `time` and `reserved_percent` in it are not used: the
    /// fields below replace them.
    pub mkfs: uext4_mkfs::Options,
    /// How large the image shall be.
    pub size: Size,
    /// Per cent of the blocks that only root may take; by default 5 as in mke2fs, but none if the
    /// image is as small as can be or has so much free.
    pub reserved_percent: Option<f64>,
    /// UUID; by default it follows from the names, attributes and sizes in the source.
    pub uuid: Option<[u8; 16]>,
    /// Seed of the hashes of directories; by default as the UUID.
    pub hash_seed: Option<[u8; 16]>,
    /// The time of everything the source does not date, such as the file system itself, in seconds
    /// since 1970 (`SOURCE_DATE_EPOCH`); by default the newest modification in the source.
    pub time: Option<i64>,
    /// No time stamp of the source is to be later than `time`.
    pub clamp_times: bool,
    /// Directories: the image has the access times of the source. By default these, like the times
    /// of the last change always, are the times of modification: a copy of the source has others.
    pub preserve_atime: bool,
    /// What is put around the file system; [`Size::Exact`] is then the size of all of it.
    pub finish: FinishOptions,
    /// Paths of files whose contents come first in the image, in this order, such as that in which
    /// a system reads them when it starts. All others follow in the order of the sources.
    pub order: Vec<Vec<u8>>,
    /// Which parts of files are holes; by default [`Sparse::Always`] for the smallest image, and
    /// [`Sparse::Auto`] for every other.
    pub sparse: Option<Sparse>,
}

impl Default for BuildOptions {
    fn default() -> Self {
        Self {
            source: SourceOptions::default(),
            mkfs: uext4_mkfs::Options::new([0; 16], [0; 16], 0),
            size: Size::Auto,
            reserved_percent: None,
            uuid: None,
            hash_seed: None,
            time: None,
            clamp_times: false,
            preserve_atime: false,
            finish: FinishOptions::default(),
            order: Vec::new(),
            sparse: None,
        }
    }
}
