//! `build`: an image from directories, tar archives and container images; also what `mkfs -d` does.

mod entries;
mod finish_args;
mod report;

use std::env;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use rustix::process::Resource;
use uext4_blockdev::partition::{Name, Place};
use uext4_image::{
    BuildOptions, Builder, Error, Excludes, Limits, Output as ImageOutput, Protection, Report,
    Size, Source, SourceOptions, Sparse,
};

use entries::EntryArgs;
use finish_args::{FinishArgs, is_stream};
pub use report::{print_json, warn};
use uext4_image::oci::{OpenOptions, Platform, RegistryOptions};

use super::{Output, output};
use crate::args::parse_size;
use crate::device_failure::device_failure;
use crate::ending::wait_for_ending;
use crate::failure::{Exit, Failure};
use crate::format::{Format, FormatArgs, mkfs_failure, random_uuid};
use crate::in_disk;
use crate::memory;
use crate::messages;
use crate::overwrite::{may_replace, warn_of_name};
use crate::owner::{self, Owner};
use crate::phase_bar::PhaseBar;
use crate::show::{size_text, uuid_text};

/// Make an image from directories, tar archives and container layers
///
/// Sources are put one above the other: a directory is merged with what an earlier source has of
/// the same name, and anything else replaces it. A layer (layer:FILE) may hide what the sources
/// before it have by whiteouts (.wh.NAME). oci:PATH[:TAG|@DIGEST] is an OCI image layout, a
/// directory or a tar of one, docker-archive:FILE[:REPOSITORY[:TAG]] is what docker save writes,
/// and dir:DIRECTORY what skopeo does: their layers are merged, and their digests verified. - in
/// place of such an archive is standard input. docker://NAME is an image of a registry, if uext4
/// was built with support for them.
///
/// The image has the owners, modes, times, xattrs, ACLs, hard links, devices and holes of the
/// source; the flags that lsattr shows are not copied, as with mke2fs and tar. The same source
/// gives the same bytes: the UUID follows from the source unless -U states one, and the date is
/// that of the newest file or SOURCE_DATE_EPOCH. Only modification times of a directory are stored,
/// so that a copy of it gives the same bytes too. Archives may be compressed with gzip, zstd, xz or
/// bzip2. The image appears under its name when it is complete. An image in use is never replaced;
/// another one that is not empty is replaced after a question on the terminal, or with --force.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  uext4 build ./rootfs -o root.img
  uext4 build rootfs.tar.zst -o root.img --min
  uext4 build base.tar ./overrides layer:last.tar.gz -o root.img
  uext4 build oci:alpine:3.20 -o alpine.img --free 500M
  docker export box | uext4 build - -o box.img --free 500M
  uext4 build ./rootfs -o disk.img --gpt --gpt-type root-x86-64 --verity --root-hash disk.hash
  uext4 build ./rootfs -o - | zstd > root.img.zst
  uext4 build ./rootfs -o root.img --owner 0:0 --exclude '*.pyc' --exclude /var/cache -L root")]
pub struct BuildArgs {
    /// Directory, archive, - for standard input, oci:, docker-archive:, dir:, layer:; see above
    #[arg(value_name = "SOURCE")]
    sources: Vec<PathBuf>,
    /// Begin with all that this image has
    #[arg(long, value_name = "IMAGE")]
    base: Option<PathBuf>,
    /// Container images: the platform, as linux/arm64; by default that of this machine
    #[arg(long, value_name = "OS/ARCH[/VARIANT]")]
    platform: Option<Platform>,
    /// Image file, block device, or - for standard output
    #[arg(short, long, value_name = "IMAGE")]
    output: PathBuf,
    /// Make the file system in this partition of a disk that is there, and change nothing else of
    /// it: by its number, label or UUID
    #[arg(long, value_name = "N|LABEL|UUID", conflicts_with = "gpt")]
    partition: Option<Name>,
    /// With --partition or -E offset: replace what a dm-verity hash tree in another partition
    /// covers, or a partition marked as read-only; the tree, and the mark, are given up
    #[arg(long)]
    drop_verity: bool,
    /// Exactly this size, with K, M, G or T; see `uext4 help sizes`; with --gpt or --verity, of
    /// the whole image
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    #[arg(conflicts_with_all = ["free", "min"])]
    size: Option<u64>,
    /// The smallest image with SIZE of free space
    #[arg(long, value_name = "SIZE", value_parser = parse_size, conflicts_with = "min")]
    free: Option<u64>,
    /// The smallest image that holds the source
    #[arg(long)]
    min: bool,
    #[command(flatten)]
    finish: FinishArgs,
    #[command(flatten)]
    fill: FillArgs,
    /// Replace an existing image without asking (without a terminal, replacing needs this)
    #[arg(short = 'F', long)]
    force: bool,
    /// Print nothing but errors
    #[arg(short, long)]
    quiet: bool,
    /// Print what was made as one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    entries: EntryArgs,
    // Last, because its heading is that of all options after it.
    #[command(flatten)]
    format: FormatArgs,
}

/// Which parts of files are holes.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum SparseArg {
    Auto,
    Always,
    Never,
}

impl From<SparseArg> for Sparse {
    fn from(arg: SparseArg) -> Self {
        match arg {
            SparseArg::Auto => Self::Auto,
            SparseArg::Always => Self::Always,
            SparseArg::Never => Self::Never,
        }
    }
}

impl BuildArgs {
    /// All sources, the lowest first.
    fn inputs(&self) -> Result<Inputs, Failure> {
        let usage = |why| Failure::new(Exit::Usage, why);
        let mut inputs = Inputs {
            base: self.base.clone(),
            named: self.sources.clone(),
            entries: self.entries.sources().map_err(usage)?,
            platform: self.platform.clone(),
        };
        if inputs.named.is_empty() && inputs.base.is_none() && inputs.entries.is_empty() {
            let why = "no SOURCE is given".to_owned();
            return Err(usage(why).hint("`uext4 mkfs` makes an empty file system"));
        }
        inputs.named.retain(|source| !source.as_os_str().is_empty());
        Ok(inputs)
    }
}

/// What an image is made of, the lowest first.
#[derive(Default)]
pub struct Inputs {
    base: Option<PathBuf>,
    named: Vec<PathBuf>,
    entries: Vec<Source>,
    platform: Option<Platform>,
}

impl Inputs {
    /// One source.
    pub fn one(source: &Path) -> Self {
        Self {
            named: vec![source.to_path_buf()],
            ..Self::default()
        }
    }

    /// The exit code for a path that cannot be in an image.
    fn bad_path(&self) -> Exit {
        let is_directory =
            |path: &PathBuf| matches!(Source::from_argument(path), Source::Directory(_));
        match self.named.iter().all(is_directory) {
            true => Exit::CouldNot,
            false => Exit::Damaged,
        }
    }

    fn add_to(self, builder: &mut Builder) -> Result<(), Error> {
        if let Some(base) = self.base {
            builder.source(Source::Image(base));
        }
        let options = OpenOptions {
            platform: self.platform,
            registry: RegistryOptions {
                docker_config: docker_config(),
                ..RegistryOptions::default()
            },
        };
        for source in &self.named {
            builder.argument(source, &options)?;
        }
        for entry in self.entries {
            builder.source(entry);
        }
        Ok(())
    }
}

/// Where `docker login` stores the users of registries.
pub fn docker_config() -> Option<PathBuf> {
    let own = env::var_os("DOCKER_CONFIG").filter(|dir| !dir.is_empty());
    let own = own.map(PathBuf::from);
    let dir = own.or_else(|| Some(env::home_dir()?.join(".docker")))?;
    Some(dir.join("config.json"))
}

/// How a source is read.
#[derive(Args, Debug, Default)]
pub struct FillArgs {
    /// Owner and group of every file, as numbers
    #[arg(long, value_name = "UID[:GID]", value_parser = owner::parse)]
    owner: Option<Owner>,
    /// Archives: use the owner numbers in the archive; this is the default
    #[arg(long, conflicts_with = "owner_names")]
    numeric: bool,
    /// Archives: look the owner names up on this machine; unknown names keep the numbers
    #[arg(long)]
    owner_names: bool,
    /// Leave out what matches: a name, or with a slash a path; *, ?, [] and ** are wildcards
    #[arg(long, value_name = "PATTERN")]
    exclude: Vec<String>,
    /// Directories: do not enter other file systems that are mounted in them
    #[arg(short = 'x', long)]
    one_file_system: bool,
    /// Store dates later than SOURCE_DATE_EPOCH as SOURCE_DATE_EPOCH
    #[arg(long)]
    clamp_times: bool,
    /// Holes of files: those of the source (auto), also every block of zeroes (always), or none
    /// (never) [default: always with --min, else auto]
    #[arg(long, value_name = "WHEN", value_enum, hide_possible_values = true)]
    sparse: Option<SparseArg>,
    /// Lay out the contents of the files that FILE names, a path a line, before all others
    #[arg(long, value_name = "FILE")]
    order: Option<PathBuf>,
    /// Directories: store access times; a copy of the source then gives other bytes
    #[arg(long)]
    preserve_atime: bool,
    /// Refuse device nodes
    #[arg(long)]
    no_devices: bool,
    /// Make several files, with a copy of the contents each, of one with more than 65,000 names
    #[arg(long)]
    split_links: bool,
    /// Refuse sources of more entries [default: 50000000]
    #[arg(long, value_name = "N")]
    max_entries: Option<u64>,
    /// Refuse sources of more contents [default: 16T]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    max_bytes: Option<u64>,
    /// Archives: refuse more than N decompressed bytes for each compressed one, from 1 GiB on
    /// [default: 10000]
    #[arg(long, value_name = "N")]
    max_ratio: Option<u64>,
    /// Refuse paths of more names [default: 16384]
    #[arg(long, value_name = "N")]
    max_depth: Option<u64>,
    /// Refuse sources with more bytes of extended attributes [default: 4G]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    max_xattrs: Option<u64>,
}

impl FillArgs {
    /// The paths that come first.
    fn order(&self) -> Result<Vec<Vec<u8>>, Failure> {
        let Some(path) = &self.order else {
            return Ok(Vec::new());
        };
        let text = std::fs::read(path).map_err(|error| {
            Failure::new(Exit::CouldNot, format_args!("{}: {error}", path.display()))
        })?;
        let lines = text.split(|&byte| byte == b'\n');
        Ok(lines
            .filter(|line| !line.is_empty())
            .map(<[u8]>::to_vec)
            .collect())
    }

    fn limits(&self) -> Limits {
        let default = memory::of_source(memory::ALL);
        Limits {
            entries: self.max_entries.unwrap_or(default.entries),
            bytes: self.max_bytes.unwrap_or(default.bytes),
            ratio: self.max_ratio.unwrap_or(default.ratio),
            depth: self.max_depth.unwrap_or(default.depth),
            xattr_bytes: self.max_xattrs.unwrap_or(default.xattr_bytes),
            memory: default.memory,
        }
    }
}

/// Builds the image.
pub fn run(args: &BuildArgs, out: &mut Output) -> Result<Exit, Failure> {
    let size = match (args.size, args.free, args.min) {
        (Some(bytes), _, _) => Size::Exact(bytes),
        (_, Some(bytes), _) => Size::Free(bytes),
        (_, _, true) => Size::Min,
        _ => Size::Auto,
    };
    let format = args.format.read()?;
    if !args.quiet {
        format.notes.iter().for_each(messages::warning);
    }
    let offset = format.options.extended.offset;
    let place = in_disk::place(&args.output, args.partition.as_ref(), offset)?;
    warn_of_name(&args.output);
    if !args.force && !is_stream(&args.output) {
        may_replace(&args.output, place.as_ref())?;
    }
    let verbosity = match args.quiet {
        true => Verbosity::Quiet,
        false => Verbosity::Normal,
    };
    let report = fill(
        args.inputs()?,
        Target {
            image: &args.output,
            place,
            protection: in_disk::protection(args.drop_verity),
            size,
        },
        &args.fill,
        Some(&args.finish),
        format,
        verbosity,
    )?;
    args.finish.write_root_hash(report.root_hash.as_ref())?;
    // The image has standard output for itself.
    let mut stderr = is_stream(&args.output).then(|| output(Box::new(std::io::stderr())));
    let out = stderr.as_mut().unwrap_or(out);
    let exit = match args.json {
        true => print_json(&args.output, &report, out),
        false => print_report(&args.output, &report, verbosity, out),
    };
    out.flush()?;
    exit
}

/// Which messages a command shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verbosity {
    /// What is under way, on a terminal, and what was made.
    Normal,
    /// Warnings and errors alone.
    Quiet,
}

/// Where an image goes, and how large it is.
pub struct Target<'a> {
    /// The file or device.
    pub image: &'a Path,
    /// The part of it, if it is a disk of which the rest stays.
    pub place: Option<Place>,
    /// What becomes of the protection of that part.
    pub protection: Protection,
    /// The size.
    pub size: Size,
}

/// Makes an image of sources; with `finish` also what that adds, and perhaps on standard output.
///
/// # Errors
/// Exit 2, 4 if the archive is damaged, else 8; nothing is left under the image's name.
pub fn fill(
    inputs: Inputs,
    target: Target<'_>,
    args: &FillArgs,
    finish: Option<&FinishArgs>,
    mut format: Format,
    verbosity: Verbosity,
) -> Result<Report, Failure> {
    let Target { image, size, .. } = target;
    let excludes = Excludes::new(args.exclude.iter().map(String::as_str));
    let uuid = if format.random_uuid {
        Some(random_uuid()?)
    } else {
        format.uuid
    };
    let hash_seed = format.options.extended.hash_seed;
    format.options.assume_zeroed = false;
    if let Some(finish) = finish {
        finish.add_features(&mut format.options)?;
    }
    let options = BuildOptions {
        source: SourceOptions {
            uid: args.owner.and_then(|owner| owner.uid),
            gid: args.owner.and_then(|owner| owner.gid),
            owner_names: args.owner_names,
            excludes: excludes.map_err(|e| failure(image, &e))?,
            one_file_system: args.one_file_system,
            limits: args.limits(),
            no_devices: args.no_devices,
            split_links: args.split_links,
        },
        mkfs: format.options,
        size,
        reserved_percent: format.reserved,
        uuid,
        hash_seed,
        time: format.epoch,
        clamp_times: args.clamp_times,
        preserve_atime: args.preserve_atime,
        order: args.order()?,
        sparse: args.sparse.map(Sparse::from),
        finish: finish.map(FinishArgs::options).unwrap_or_default(),
    };
    let bad_path = inputs.bad_path();
    open_more_files();
    let to = output_of(&target, finish).map_err(|error| failure(image, &error))?;
    let given_up = to.given_up().to_vec();
    if let (Size::Auto | Size::Free(_), Verbosity::Normal) = (size, verbosity) {
        in_disk::warn_of_missing(image, to.missing());
    }
    let bar = PhaseBar::new(verbosity == Verbosity::Normal);
    let mut builder = Builder::new(options);
    let added = inputs.add_to(&mut builder);
    let built = added.and_then(|()| builder.build_to(to, &bar));
    bar.clear();
    let report = built.map_err(|error| failure_of(image, &error, bad_path))?;
    in_disk::warn_of_given_up(&given_up);
    Ok(report)
}

/// Where the image goes.
fn output_of(target: &Target<'_>, finish: Option<&FinishArgs>) -> Result<ImageOutput, Error> {
    let Target { image, place, .. } = target;
    if finish.is_some() && is_stream(image) {
        return finish_args::standard_output();
    }
    wait_for_ending(image);
    match place {
        Some(place) => ImageOutput::in_disk(image, place, target.protection),
        None => ImageOutput::look_at(image),
    }
}

/// Takes as many descriptors as there may be: every level of a tree keeps one.
fn open_more_files() {
    let mut limit = rustix::process::getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // What is too deep for the old limit says so itself.
    let _ = rustix::process::setrlimit(Resource::Nofile, limit);
}

/// What to do about an archive that takes much memory.
pub const MORE_MEMORY: &str =
    "give it more than its share: `--memory 512M`; or decompress the archive first";

/// Why no image was made, and what to do.
pub fn failure(image: &Path, error: &Error) -> Failure {
    failure_of(image, error, Exit::CouldNot)
}

/// As [`failure`]; `bad_path` is the exit code for [`Error::Path`].
fn failure_of(image: &Path, error: &Error, bad_path: Exit) -> Failure {
    let exit = match error {
        Error::Device(error) => return device_failure(image, error),
        Error::Mkfs(error) => return mkfs_failure(error),
        Error::Path { .. } => bad_path,
        Error::Pattern { .. } | Error::Finish(_) => Exit::Usage,
        Error::Container(error) => container_exit(error.as_ref()),
        Error::Output { path, source }
            if is_stream(path) && source.kind() == ErrorKind::InvalidInput =>
        {
            Exit::Usage
        }
        _ if is_of_archive(error) => Exit::Damaged,
        _ => Exit::CouldNot,
    };
    let failure = Failure::new(exit, error);
    match error {
        Error::ContainerImage { .. } => failure.hint(
            "put oci: or docker-archive: before its name: `uext4 build oci:DIRECTORY -o IMAGE`",
        ),
        Error::InDisk { .. } => failure.hint(in_disk::LARGER),
        Error::DecompressorMemory { .. } => failure.hint(MORE_MEMORY),
        Error::Entry {
            source: uext4::Error::TooManyLinks,
            ..
        } => failure.hint(SPLIT_LINKS),
        Error::DoesNotFit { .. } => failure.hint("give a larger --size, or leave the size out"),
        _ => failure,
    }
}

/// What to do about a file with too many names.
pub const SPLIT_LINKS: &str =
    "--split-links makes several files of one with more names, each with a copy of its contents";

/// Whether an archive is wrong that an image is made from, or files are taken from.
pub fn is_of_archive(error: &Error) -> bool {
    matches!(
        error,
        Error::Tar { .. }
            | Error::Decompress { .. }
            | Error::Bomb { .. }
            | Error::HardLink { .. }
            | Error::NotADirectory { .. }
    )
}

/// The exit code for what is wrong with a container image.
fn container_exit(error: &(dyn std::error::Error + 'static)) -> Exit {
    use uext4_image::oci::Fault;
    match error
        .downcast_ref()
        .map(|error: &uext4_image::oci::Error| &error.fault)
    {
        Some(Fault::Reference { .. } | Fault::Digest { .. }) => Exit::Usage,
        Some(
            Fault::Mismatch { .. }
            | Fault::Size { .. }
            | Fault::Missing { .. }
            | Fault::Stored { .. }
            | Fault::Json { .. }
            | Fault::Document { .. }
            | Fault::LayerCount { .. },
        ) => Exit::Damaged,
        Some(Fault::Archive(error)) if is_of_archive(error) => Exit::Damaged,
        _ => Exit::CouldNot,
    }
}

/// Reports what was made.
///
/// # Errors
/// Those of standard output.
pub fn print_report(
    image: &Path,
    report: &Report,
    verbosity: Verbosity,
    out: &mut Output,
) -> Result<Exit, Failure> {
    warn(&report.warnings);
    if verbosity == Verbosity::Normal {
        let summary = &report.summary;
        let free = summary.free_blocks.saturating_mul(report.block_size.into());
        let name = match is_stream(image) {
            true => "an image on standard output".to_owned(),
            false => image.display().to_string(),
        };
        writeln!(
            out,
            "made {name}: {} of {} entries and {} of contents, {} free",
            size_text(report.image_bytes),
            report.entries,
            size_text(report.content_bytes),
            size_text(free)
        )?;
        writeln!(out, "UUID {}", uuid_text(&report.uuid))?;
        if let Some(hash) = &report.root_hash {
            writeln!(out, "root hash {hash}")?;
        }
    }
    Ok(Exit::Success)
}
