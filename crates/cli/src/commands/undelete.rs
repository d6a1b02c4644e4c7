//! `undelete`: lists deleted files, and puts them back.
//!
//! What is left of them is found by `crate::deleted`; the engine puts an inode back in one
//! transaction, if it and all its blocks are still free.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use globset::GlobMatcher;
use uext4::{Error, FileType, FollowLast, Image, OpenInode, Volume};
use uext4_ondisk::{GroupNr, Ino, Pblk};

use super::change::{self, about, last_name};
use super::{Output, bytes};
use crate::args::{ImageArgs, WriteArgs};
use crate::deleted::{self, Deleted, Deletions, Kept};
use crate::examination::counted;
use crate::failure::{Complaints, Exit, Failure};
use crate::find_filter::glob;
use crate::folded;
use crate::json::Json;
use crate::kernel_mount;
use crate::open;
use crate::paths;
use crate::show::{escaped, mode_text, time_short, type_word};
use uext4_image::walk::joined;

/// The directory that e2fsck puts files into that have no name.
const LOST_FOUND: &str = "/lost+found";

/// List deleted files, and put them back
///
/// Without a FILE, lists what is left of deleted files, the ones deleted last first: how many of
/// their blocks are free of all that are left, whether the inode or an older copy of it in the
/// journal has their map, and the path where it is known. Linux empties the map of a file on ext4
/// when it deletes it, so that only the journal may have it: unmount the file system at once, for
/// each further change may overwrite it.
///
/// A FILE is an inode (12), a path, a name, or a glob of these. It is put back only if its map is
/// whole and all its blocks are free: with its number, owner, times, mode and the attributes in its
/// inode, and one link. No program can say whether the blocks were used in between: look at the
/// contents. Name all files in one run: a change overwrites the oldest part of the journal.
/// Directories are not put back, nor are attributes in a block of their own.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  uext4 undelete disk.img
  uext4 undelete disk.img 12 13                  # to /lost+found/#12 and #13
  uext4 undelete disk.img --to / '/home/*.txt'   # under the names that they had
  uext4 undelete disk.img --into rescued --all   # copies them, and leaves the image as it is
  uext4 undelete --json disk.img | jq '.[] | select(.blocks == .free).inode'")]
pub struct UndeleteArgs {
    #[command(flatten)]
    image: WriteArgs,
    /// Inodes, paths, names or globs of deleted files
    #[arg(value_name = "FILE")]
    files: Vec<OsString>,
    /// All deleted files that are whole
    #[arg(short, long, conflicts_with = "files")]
    all: bool,
    /// Put them into this directory of the image, under the names that they had, or #INODE
    #[arg(long, value_name = "DIR")]
    to: Option<PathBuf>,
    /// Copy them to this directory of the machine; the image is only read
    #[arg(long, value_name = "HOSTDIR", conflicts_with = "to")]
    into: Option<PathBuf>,
    /// Print one JSON array of objects
    #[arg(long)]
    json: bool,
}

/// Lists, puts back, or copies.
pub fn run(args: &UndeleteArgs, out: &mut Output) -> Result<Exit, Failure> {
    let image = &args.image.place.image;
    let wanted = Wanted::read(args)?;
    let lists = args.files.is_empty() && !args.all;
    if lists && (args.to.is_some() || args.into.is_some()) {
        return Err(Failure::new(Exit::Usage, "name files, or give --all"));
    }
    if lists || args.into.is_some() {
        kernel_mount::warn(image);
    }
    let fs = open::open(&ImageArgs {
        place: args.image.place.clone(),
        superblock: None,
        no_replay: false,
    })?;
    let mut found = find(&fs)?;
    if lists {
        return list(args, &found, out);
    }
    let mut each = Each {
        args,
        out,
        json: Json::new(),
        complaints: Complaints::new(),
    };
    wanted.choose(&mut found, &mut each.complaints);
    match &args.into {
        Some(dir) => copy_all(&mut each, &found, dir)?,
        // The file system is opened again, which overwrites the oldest part of the log.
        None => {
            let kept = found.keep()?;
            let files = found.into_files();
            drop(fs);
            put_all(&mut each, &files, &kept)?;
        }
    }
    if args.json {
        each.json.print_array(each.out)?;
    }
    Ok(each.complaints.exit())
}

/// What is left of deleted files.
fn find(fs: &Image) -> Result<Deletions, Failure> {
    let mut bitmaps = Bitmaps { fs, last: None };
    deleted::find(fs, &mut |start, len| bitmaps.free(start, len))
}

/// Counts free blocks by the bitmaps.
struct Bitmaps<'a> {
    fs: &'a Image,
    /// The bitmap that was read last; `None` in it if it is damaged.
    last: Option<(GroupNr, Option<Arc<[u8]>>)>,
}

impl Bitmaps<'_> {
    /// How many of these blocks are free; none that is past the end is.
    fn free(&mut self, start: Pblk, len: u64) -> u64 {
        let end = start
            .0
            .saturating_add(len)
            .min(self.fs.geometry().blocks_count);
        (start.0..end)
            .filter(|&block| self.is_free(Pblk(block)))
            .count() as u64
    }

    fn is_free(&mut self, block: Pblk) -> bool {
        let geometry = self.fs.geometry();
        let Some((group, offset)) = geometry.group_of(block) else {
            return false;
        };
        if self.last.as_ref().is_none_or(|(last, _)| *last != group) {
            self.last = Some((group, self.fs.block_bitmap(group).ok()));
        }
        let bit = offset >> geometry.cluster_bits;
        let bitmap = self.last.as_ref().and_then(|(_, bitmap)| bitmap.as_ref());
        let byte = bitmap.and_then(|bitmap| bitmap.get(bit as usize / 8));
        byte.is_some_and(|byte| byte >> (bit % 8) & 1 == 0)
    }
}

/// Which files are wanted.
enum Wanted<'a> {
    All,
    These(Vec<(&'a OsStr, Which)>),
}

enum Which {
    Ino(Ino),
    /// Of whole paths if it has a slash, else of last names.
    Glob {
        glob: GlobMatcher,
        is_path: bool,
    },
}

impl<'a> Wanted<'a> {
    fn read(args: &'a UndeleteArgs) -> Result<Self, Failure> {
        if args.all {
            return Ok(Self::All);
        }
        let which = args
            .files
            .iter()
            .map(|word| Ok((&**word, Which::read(word)?)));
        Ok(Self::These(which.collect::<Result<_, Failure>>()?))
    }

    /// Leaves those of the files that are wanted and whole; the others that are wanted are
    /// reported, and so are words that mean none.
    fn choose(&self, found: &mut Deletions, complaints: &mut Complaints) {
        let Self::These(words) = self else {
            found.files.retain(Deleted::is_whole);
            return;
        };
        for (word, which) in words {
            let mut files = found.files.iter();
            if !files.any(|file| which.holds(file)) {
                let what = format_args!(
                    "{}: nothing is left of such a deleted file",
                    escaped(bytes(word))
                );
                complaints.report(Exit::Incomplete, what);
            }
        }
        let is_meant = |file: &Deleted| words.iter().any(|(_, which)| which.holds(file));
        found.files.retain(is_meant);
        for file in &found.files {
            if let Some(why) = refused(file) {
                let ino = file.inode.ino;
                let what = format_args!("inode {ino}: not brought back: {why}");
                complaints.report(Exit::Incomplete, what);
            }
        }
        found.files.retain(Deleted::is_whole);
    }
}

impl Which {
    fn read(word: &OsStr) -> Result<Self, Failure> {
        let text = word.to_string_lossy();
        let number = text.strip_prefix('#').unwrap_or(&text);
        if let Some(ino) = paths::number(bytes(word)).or(number.parse().ok().map(Ino)) {
            return Ok(Self::Ino(ino));
        }
        let is_path = text.contains('/');
        let whole = match is_path && !text.starts_with(['/', '*', '<']) {
            true => format!("/{text}"),
            false => text.into_owned(),
        };
        let glob = glob(&whole, false).map_err(|error| Failure::new(Exit::Usage, error))?;
        Ok(Self::Glob { glob, is_path })
    }

    fn holds(&self, file: &Deleted) -> bool {
        match (self, &file.path) {
            (Self::Ino(ino), _) => file.inode.ino == *ino,
            (Self::Glob { glob, is_path }, Some(path)) => {
                let path = if *is_path { path } else { last_name(path) };
                glob.is_match(Path::new(OsStr::from_bytes(path)))
            }
            (Self::Glob { .. }, None) => false,
        }
    }
}

/// Prints what is left.
fn list(args: &UndeleteArgs, found: &Deletions, out: &mut Output) -> Result<Exit, Failure> {
    if args.json {
        let mut json = Json::new();
        json.open_array();
        found.files.iter().for_each(|file| object(&mut json, file));
        json.print_array(out)?;
        return Ok(Exit::Success);
    }
    if !found.files.is_empty() {
        writeln!(
            out,
            "{:>8}  {:19}  {:>11}  {:10}  {:>12}  {:>15}  {:7}  PATH",
            "INODE", "DELETED", "OWNER", "MODE", "SIZE", "FREE/BLOCKS", "FROM"
        )?;
    }
    for file in &found.files {
        let inode = &file.inode;
        let path = file.path.as_deref().map_or_else(|| "?".to_owned(), escaped);
        let lost = file
            .lost
            .map_or_else(String::new, |lost| format!("  ({lost})"));
        writeln!(
            out,
            "{:>8}  {:19}  {:>11}  {}  {:>12}  {:>15}  {:7}  {path}{lost}",
            inode.ino.0,
            time_short(file.deleted_at.into()),
            format!("{}:{}", inode.uid, inode.gid),
            mode_text(inode.file_type, inode.mode),
            inode.size,
            format!("{}/{}", file.free, file.blocks),
            origin(file),
        )?;
    }
    let text = format!("{}\n", summary(found));
    out.write_all(folded::for_terminal(&text, &std::io::stdout()).as_bytes())?;
    Ok(Exit::Success)
}

/// What can be put back, and what was not found out.
fn summary(found: &Deletions) -> String {
    let whole = found.files.iter().filter(|file| file.is_whole()).count();
    let of = counted(found.files.len() as u64, "deleted file");
    let mut text = format!("{whole} of {of} can be put back");
    if found.gone > 0 {
        let more = counted(found.gone, "more deleted file");
        text += &format!("; of {more} nothing is left");
    }
    match found.directories {
        0 => {}
        1 => text += "; 1 deleted directory was not searched",
        count => text += &format!("; {count} deleted directories were not searched"),
    }
    text
}

/// Where the inode comes from.
fn origin(file: &Deleted) -> &'static str {
    match file.from_journal {
        true => "journal",
        false => "inode",
    }
}

fn object(json: &mut Json, file: &Deleted) {
    let inode = &file.inode;
    json.open_object();
    json.key("inode").number(inode.ino.0);
    json.key("path");
    match &file.path {
        Some(path) => json.text(path),
        None => json.value(()),
    }
    json.key("deleted_at").number(file.deleted_at);
    json.key("type").string(type_word(inode.file_type));
    json.key("mode")
        .string(&format!("{:04o}", inode.mode & 0o7777));
    json.key("uid").number(inode.uid);
    json.key("gid").number(inode.gid);
    json.key("size").number(inode.size);
    json.key("blocks").number(file.blocks);
    json.key("free").number(file.free);
    json.key("from").string(origin(file));
    json.key("whole").value(file.is_whole());
    if let Some(lost) = file.lost {
        json.key("lost").string(lost);
    }
    json.close_object();
}

/// What keeps a file from being brought back.
fn refused(file: &Deleted) -> Option<String> {
    let used = file.blocks.saturating_sub(file.free);
    match file.lost {
        Some(lost) => Some(lost.to_owned()),
        None if used > 0 => {
            let blocks = counted(file.blocks, "block");
            Some(format!("of its {blocks}, {used} are in use again"))
        }
        None => None,
    }
}

/// What is shown of each file.
struct Each<'a> {
    args: &'a UndeleteArgs,
    out: &'a mut Output,
    json: Json,
    complaints: Complaints,
}

impl Each<'_> {
    /// Brings each file back, and shows where it is.
    fn bring(
        &mut self,
        files: &[Deleted],
        mut bring: impl FnMut(&Deleted) -> Result<Vec<u8>, Failure>,
    ) -> Result<(), Failure> {
        if self.args.json {
            self.json.open_array();
        }
        for file in files {
            let ino = file.inode.ino;
            match bring(file) {
                Ok(path) if self.args.json => {
                    self.json.open_object();
                    self.json.key("inode").number(ino.0);
                    self.json.key("size").number(file.inode.size);
                    self.json.key("path").text(&path);
                    self.json.close_object();
                }
                Ok(path) => writeln!(self.out, "inode {ino}: {}", escaped(&path))?,
                Err(failure) => self.complaints.failure(failure)?,
            }
        }
        Ok(())
    }
}

/// The name that a file gets, if its own is known and wanted.
fn own_name(file: &Deleted) -> Option<&[u8]> {
    file.path.as_deref().map(last_name)
}

fn numbered(file: &Deleted) -> Vec<u8> {
    format!("#{}", file.inode.ino).into_bytes()
}

/// Puts files back into the image.
fn put_all(each: &mut Each<'_>, files: &[Deleted], kept: &[Kept]) -> Result<(), Failure> {
    let args = each.args;
    if files.is_empty() {
        return each.bring(files, |_| Ok(Vec::new()));
    }
    let volume = open::open_rw(&args.image)?;
    let image = &args.image.place.image;
    let done = put_into(each, &volume, files, kept);
    change::close(&volume, image, done)
}

fn put_into(
    each: &mut Each<'_>,
    volume: &Volume,
    files: &[Deleted],
    kept: &[Kept],
) -> Result<(), Failure> {
    let args = each.args;
    let image = args.image.place.image.display();
    // What opening changed is in its place, where the view reads.
    let settled = volume.checkpoint();
    settled.map_err(|error| Failure::engine(&image, &error))?;
    let view = deleted::view(volume.image(), kept)?;
    let dir = args.to.as_deref().unwrap_or(Path::new(LOST_FOUND));
    let dir = bytes(dir.as_os_str());
    let parent = volume.open_path(paths::meant(volume.image(), dir), FollowLast::Yes);
    let parent = parent.map_err(|error| match args.to {
        Some(_) => about(dir)(error),
        None => about(dir)(error).hint("--to DIR puts them elsewhere"),
    })?;
    each.bring(files, |file| {
        let own = own_name(file).filter(|_| args.to.is_some());
        put(volume, &parent, &view, file, own).map(|name| joined(dir, &name))
    })
}

/// Puts a file back, as #INODE if its own name is not wanted or taken.
fn put(
    volume: &Volume,
    parent: &OpenInode,
    view: &Image,
    file: &Deleted,
    own: Option<&[u8]>,
) -> Result<Vec<u8>, Failure> {
    let ino = file.inode.ino;
    let numbered = numbered(file);
    for name in own.into_iter().chain([&*numbered]) {
        match volume.undelete(parent, name, ino, view) {
            Err(Error::Exists) if name != numbered => {}
            done => {
                return done.map(|_| name.to_vec()).map_err(about(name));
            }
        }
    }
    Err(about(&numbered)(Error::Exists))
}

/// Copies files to a directory of this machine.
fn copy_all(each: &mut Each<'_>, found: &Deletions, dir: &Path) -> Result<(), Failure> {
    fs::create_dir_all(dir).map_err(|error| Failure::io(dir.display(), &error))?;
    each.bring(&found.files, |file| copy(found, file, dir))
}

/// Copies a file, as #INODE if its own name is not known or taken.
fn copy(found: &Deletions, file: &Deleted, dir: &Path) -> Result<Vec<u8>, Failure> {
    let ino = file.inode.ino;
    if file.inode.file_type != FileType::Regular {
        let what = format_args!("inode {ino}: only regular files are copied");
        return Err(Failure::new(Exit::Incomplete, what));
    }
    let numbered = numbered(file);
    let names = own_name(file).into_iter().chain([&*numbered]);
    let mut places = names.map(|name| dir.join(OsStr::from_bytes(name)));
    let place = places.find(|place| fs::symlink_metadata(place).is_err());
    let place = place.unwrap_or_else(|| dir.join(OsStr::from_bytes(&numbered)));
    let failed = |error: std::io::Error| Failure::io(place.display(), &error);
    let to = File::create_new(&place).map_err(failed)?;
    match deleted::copy_data(&found.view, &file.inode, &to) {
        Ok(true) => Ok(bytes(place.as_os_str()).to_vec()),
        copied => {
            _ = fs::remove_file(&place);
            copied.map_err(failed)?;
            let what = format_args!("inode {ino}: its data cannot be read");
            Err(Failure::new(Exit::Incomplete, what))
        }
    }
}
