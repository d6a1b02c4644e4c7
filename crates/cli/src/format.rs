//! The flags that `mkfs` and `build` share: those of mke2fs, spelled as mke2fs spells them.

use std::env;

use clap::Args;
use rustix::process::{getgid, getuid};
use sha2::{Digest, Sha256};
use uext4_blockdev::{Clock, SystemClock};
use uext4_mkfs::{
    ALIASES, Alias, BlockSizeWish, ErrorsBehavior, FsType, Options, PROFILES, Profile, UsageType,
    parse_extended, parse_features, parse_journal, parse_size, parse_uuid, profile,
};
use uext4_ondisk::BlockSize;
use uuid::Builder;

use crate::failure::{Exit, Failure};
use crate::mke2fs;

/// Seconds since 1970 that everything is dated, for reproducible images.
const EPOCH_VARIABLE: &str = "SOURCE_DATE_EPOCH";

/// Properties of the file system.
#[derive(Args, Debug)]
#[command(next_help_heading = "File system options, as those of mke2fs")]
pub struct FormatArgs {
    /// Type: ext2, ext3 or ext4 [default: ext4]
    #[arg(short = 't', value_name = "TYPE")]
    fs_type: Option<String>,
    /// Usage: floppy, small, default, big, huge, news, largefile, largefile4; or a type, as -t
    #[arg(short = 'T', value_name = "USAGE", value_delimiter = ',')]
    usage: Vec<String>,
    /// Block size, 1024 to 65536; -SIZE for at least this
    #[arg(short, value_name = "BYTES", allow_hyphen_values = true)]
    block_size: Option<String>,
    /// Cluster size, with -O bigalloc
    #[arg(short = 'C', value_name = "BYTES")]
    cluster_size: Option<String>,
    /// Blocks in a group
    #[arg(short = 'g', value_name = "BLOCKS")]
    group_blocks: Option<u32>,
    /// Groups in a flex group
    #[arg(short = 'G', value_name = "GROUPS")]
    flex_groups: Option<u32>,
    /// One inode for each BYTES of the file system
    #[arg(short = 'i', value_name = "BYTES")]
    inode_ratio: Option<String>,
    /// Inode size
    #[arg(short = 'I', value_name = "BYTES")]
    inode_size: Option<u16>,
    /// Number of inodes
    #[arg(short = 'N', value_name = "INODES")]
    inodes: Option<u64>,
    /// Percentage of the blocks that are reserved for root
    #[arg(short = 'm', value_name = "PERCENT")]
    reserved: Option<f64>,
    /// Features, separated by commas; ^NAME disables one
    #[arg(short = 'O', value_name = "FEATURES")]
    features: Vec<String>,
    /// What must mount the image, such as debian-12 or syslinux; -O wins; see `uext4 help profiles`
    #[arg(long, value_name = "NAME")]
    profile: Option<String>,
    /// Extended options, separated by commas: root_owner[=UID:GID], hash_seed=UUID, offset=BYTES, …
    #[arg(short = 'E', value_name = "OPTIONS")]
    extended: Vec<String>,
    /// Add a journal, whatever the type
    #[arg(short = 'j')]
    journal: bool,
    /// Journal options: size=MIB, location=BLOCK, fast_commit_size=KIB
    #[arg(short = 'J', value_name = "OPTIONS")]
    journal_options: Vec<String>,
    /// Volume label, at most 16 bytes
    #[arg(short = 'L', value_name = "LABEL")]
    label: Option<String>,
    /// UUID: a UUID, "random" or "clear"
    #[arg(short = 'U', long = "uuid", value_name = "UUID")]
    uuid: Option<String>,
    /// Last mounted directory, at most 64 bytes
    #[arg(short = 'M', value_name = "DIRECTORY")]
    last_mounted: Option<String>,
    /// What the kernel does when it finds damage: continue, remount-ro or panic
    #[arg(short = 'e', value_name = "BEHAVIOR")]
    errors: Option<String>,
}

/// What the flags say.
#[derive(Debug)]
pub struct Format {
    /// For mkfs. UUID, hash seed and time are still zero.
    pub options: Options,
    /// `-U`, if one was spelled out.
    pub uuid: Option<[u8; 16]>,
    /// `-U random`.
    pub random_uuid: bool,
    /// `-m`, if said.
    pub reserved: Option<f64>,
    /// `SOURCE_DATE_EPOCH`, if set.
    pub epoch: Option<i64>,
    /// What to print about flags that have no effect.
    pub notes: Vec<&'static str>,
}

impl FormatArgs {
    /// True if a flag names the owner of the root directory.
    pub fn has_root_owner(&self) -> bool {
        let mut items = self.extended.iter().flat_map(|list| list.split(','));
        items.any(|item| item.starts_with("root_owner"))
    }

    /// Reads the flags and the environment.
    ///
    /// # Errors
    /// Exit 2, naming the flag.
    pub fn read(&self) -> Result<Format, Failure> {
        let mut options = Options::new([0; 16], [0; 16], 0);
        self.read_type(&mut options)?;
        options.block_size = self.block_size.as_deref().map(block_size).transpose()?;
        options.cluster_size = self
            .cluster_size
            .as_deref()
            .map(|t| bytes("-C", t))
            .transpose()?;
        options.blocks_per_group = self.group_blocks;
        options.groups_per_flex = self.flex_groups;
        options.inode_ratio = self
            .inode_ratio
            .as_deref()
            .map(|t| bytes("-i", t))
            .transpose()?;
        options.inode_size = self.inode_size;
        options.inodes = self.inodes;
        options.reserved_percent = self.reserved.unwrap_or(options.reserved_percent);
        for list in &self.features {
            options
                .features
                .extend(parse_features(list).map_err(usage)?);
        }
        if let Some(name) = &self.profile {
            named_profile(name)?.apply(&mut options);
        }
        let mut notes = Vec::new();
        let owner = format!("{}:{}", getuid().as_raw(), getgid().as_raw());
        for list in &self.extended {
            let mut items = mke2fs::extended(list, &owner)?;
            parse_extended(&items.rest, &mut options.extended).map_err(usage)?;
            notes.append(&mut items.notes);
        }
        options.journal.wanted = self.journal;
        for list in &self.journal_options {
            parse_journal(list, &mut options.journal).map_err(usage)?;
        }
        fill("-L", &mut options.label, self.label.as_deref())?;
        fill(
            "-M",
            &mut options.last_mounted,
            self.last_mounted.as_deref(),
        )?;
        if let Some(name) = &self.errors {
            options.errors = ErrorsBehavior::from_name(name).ok_or_else(|| unknown("-e", name))?;
        }
        let uuid = match self.uuid.as_deref() {
            None | Some("random" | "time") => None,
            Some("clear" | "null") => Some([0; 16]),
            Some(text) => Some(parse_uuid("-U", text).map_err(usage)?),
        };
        Ok(Format {
            options,
            uuid,
            random_uuid: matches!(self.uuid.as_deref(), Some("random" | "time")),
            reserved: self.reserved,
            epoch: epoch()?,
            notes,
        })
    }
}

impl FormatArgs {
    /// Reads `-t` and `-T`.
    fn read_type(&self, options: &mut Options) -> Result<(), Failure> {
        if let Some(name) = &self.fs_type {
            options.fs_type = FsType::from_name(name).ok_or_else(|| unknown("-t", name))?;
        }
        for name in &self.usage {
            // The configuration file of mke2fs has the types among the usages.
            if let Some(fs_type) = FsType::from_name(name) {
                if self.fs_type.is_none() {
                    options.fs_type = fs_type;
                }
                continue;
            }
            options
                .usage
                .push(UsageType::from_name(name).ok_or_else(|| unknown("-T", name))?);
        }
        Ok(())
    }
}

impl Format {
    /// Fills in UUID, hash seed and time for a file system made of nothing.
    ///
    /// They are random and now, except where the user wants to know beforehand: with
    /// `SOURCE_DATE_EPOCH`, what is not said follows from what is.
    ///
    /// # Errors
    /// Exit 8 if the system has no random numbers.
    pub fn settle(mut self) -> Result<Options, Failure> {
        let derived = |purpose: &str, from: &Options| {
            let mut hash = Sha256::new();
            hash.update(format!("uext4 mkfs {purpose} {:?} {from:?}", self.epoch));
            let mut id = [0; 16];
            id.copy_from_slice(&hash.finalize()[..16]);
            Builder::from_custom_bytes(id).into_uuid().into_bytes()
        };
        let reproducible = self.epoch.is_some() && !self.random_uuid;
        let now = SystemClock.now().0;
        let time = self.epoch.unwrap_or(now).clamp(0, u32::MAX.into());
        self.options.uuid = match self.uuid {
            Some(uuid) => uuid,
            None if reproducible => derived("uuid", &self.options),
            None => random_uuid()?,
        };
        self.options.hash_seed = match self.options.extended.hash_seed {
            Some(seed) => seed,
            None if reproducible || self.uuid.is_some() => derived("hash seed", &self.options),
            None => random_uuid()?,
        };
        // OK to unwrap: clamped above.
        self.options.time = u32::try_from(time).unwrap();
        Ok(self.options)
    }
}

/// A random UUID.
///
/// # Errors
/// Exit 8 if the system has none.
pub fn random_uuid() -> Result<[u8; 16], Failure> {
    let mut bytes = [0; 16];
    let got = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    match got {
        Ok(16) => Ok(Builder::from_random_bytes(bytes).into_uuid().into_bytes()),
        Ok(_) => Err(Failure::new(
            Exit::CouldNot,
            "the system has no random numbers",
        )),
        Err(error) => Err(Failure::io("random numbers", &error.into())),
    }
}

/// A size argument in bytes; a plain number counts blocks if `-b` was said, else KiB.
///
/// # Errors
/// Exit 2.
pub fn size_argument(text: &str, options: &Options) -> Result<u64, Failure> {
    let said = match options.block_size {
        Some(BlockSizeWish::Exactly(size)) => Some(size),
        _ => None,
    };
    let size = parse_size("size", text).map_err(usage)?;
    size.bytes(said)
        .ok_or_else(|| Failure::new(Exit::Usage, format_args!("size {text}: too large")))
}

/// The error of a flag.
pub fn usage(error: uext4_mkfs::Error) -> Failure {
    Failure::new(Exit::Usage, error)
}

/// The error of making a file system: what the flags ask for may not fit, or the device fail.
pub fn mkfs_failure(error: &uext4_mkfs::Error) -> Failure {
    let exit = match error {
        uext4_mkfs::Error::Option { .. }
        | uext4_mkfs::Error::UnknownName { .. }
        | uext4_mkfs::Error::Feature { .. } => Exit::Usage,
        _ => Exit::CouldNot,
    };
    Failure::new(exit, error)
}

fn unknown(flag: &'static str, name: &str) -> Failure {
    usage(uext4_mkfs::Error::UnknownName {
        flag,
        name: name.to_owned(),
    })
}

/// The profile of a name.
fn named_profile(name: &str) -> Result<&'static Profile, Failure> {
    profile(name).ok_or_else(|| {
        let what = format!("--profile {name}: there is no such profile");
        Failure::new(Exit::Usage, what).hint("`uext4 help profiles` lists them")
    })
}

/// All profiles, as `uext4 help profiles` prints them.
pub fn profile_page() -> String {
    let mut text = "Profiles of `uext4 build` and `uext4 mkfs`: --profile NAME sets features as \
                    -O does, and -O wins.\n"
        .to_owned();
    for row in PROFILES {
        let Profile {
            name,
            features,
            why,
            source,
        } = row;
        let features = match *features {
            "" => "no feature is cleared".to_owned(),
            features => format!("-O {features}"),
        };
        text += &format!("\n  {name}: {why}\n    {features}\n    {source}\n");
    }
    text += "\nOther names of these:\n";
    for row in ALIASES {
        let Alias {
            name,
            profile,
            why,
            source,
        } = row;
        text += &format!("\n  {name}: as {profile}; {why}\n    {source}\n");
    }
    text
}

fn bytes(flag: &'static str, text: &str) -> Result<u64, Failure> {
    Ok(parse_size(flag, text).map_err(usage)?.bytes_plain())
}

fn block_size(text: &str) -> Result<BlockSizeWish, Failure> {
    let size = |text: &str| {
        let bytes = u32::try_from(bytes("-b", text)?).ok();
        bytes.and_then(BlockSize::from_bytes).ok_or_else(|| {
            Failure::new(
                Exit::Usage,
                format_args!("-b {text}: a power of two, 1024 to 65536"),
            )
        })
    };
    Ok(match text.strip_prefix('-') {
        Some(text) => BlockSizeWish::AtLeast(size(text)?),
        None => BlockSizeWish::Exactly(size(text)?),
    })
}

fn fill(flag: &str, field: &mut [u8], text: Option<&str>) -> Result<(), Failure> {
    let text = text.unwrap_or_default();
    let Some(start) = field.get_mut(..text.len()) else {
        let what = format!("{flag} {text:?}: longer than {} bytes", field.len());
        return Err(Failure::new(Exit::Usage, what));
    };
    start.copy_from_slice(text.as_bytes());
    Ok(())
}

fn epoch() -> Result<Option<i64>, Failure> {
    let Some(text) = env::var_os(EPOCH_VARIABLE) else {
        return Ok(None);
    };
    let seconds = text.to_str().and_then(|text| text.trim().parse().ok());
    seconds.map(Some).ok_or_else(|| {
        Failure::new(
            Exit::Usage,
            format_args!("{EPOCH_VARIABLE}: not a number of seconds"),
        )
    })
}
