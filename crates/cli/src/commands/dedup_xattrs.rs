//! `dedup-xattrs`: merges equal blocks of extended attributes.

use std::io::Write;

use clap::Args;
use uext4::{FollowLast, Volume};

use super::{Output, bytes, change};
use crate::args::WriteArgs;
use uext4_remote::Tree;

use crate::below::each_below;
use crate::failure::{Complaints, Exit, Failure};
use crate::json::Json;
use crate::open;
use crate::paths;
use crate::show::escaped;

/// Merge equal blocks of extended attributes
///
/// Attributes that do not fit in an inode are stored in a block, which up to 1024 inodes with the
/// same attributes may share. This finds equal blocks and merges them. The contents of files do not
/// change.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  uext4 dedup-xattrs disk.img
  uext4 dedup-xattrs --options mb_max_entries=4194304 disk.img    millions of different blocks")]
pub struct DedupXattrsArgs {
    #[command(flatten)]
    image: WriteArgs,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Opens, merges and closes.
pub fn run(args: &DedupXattrsArgs, out: &mut Output) -> Result<Exit, Failure> {
    let image = &args.image.place.image;
    let shown = escaped(bytes(image.as_os_str()));
    let fs = open::open_tree(&args.image)?;
    let finds_none = |fs: &Volume| fs.stats().xattr_blocks.is_none();
    if matches!(&fs, Tree::Local(fs) if finds_none(fs)) {
        let refused = Failure::new(
            Exit::Usage,
            "--options: with nombcache nothing finds equal blocks",
        );
        return change::close_tree(&fs, image, Err(refused));
    }
    let mut complaints = Complaints::new();
    let (mut moved, mut failed) = (0u64, Vec::new());
    let top = paths::resolve_rw(&fs, b"/", FollowLast::No);
    let merged = top.map(|top| {
        each_below(
            &top,
            b"/",
            &mut |inode, path| match inode.share_xattrs() {
                Ok(has_moved) => moved += u64::from(has_moved),
                Err(error) => complaints.engine(escaped(path), &error),
            },
            &mut |path, error| failed.push(Failure::engine(escaped(path), error)),
        );
    });
    change::close_tree(&fs, image, merged)?;
    for failure in failed {
        complaints.failure(failure)?;
    }
    if args.json {
        let mut json = Json::new();
        json.open_object();
        json.key("image").text(bytes(image.as_os_str()));
        json.key("moved").number(moved);
        json.close_object();
        json.end_line();
        out.write_all(json.as_bytes())?;
        return Ok(complaints.exit());
    }
    writeln!(out, "{shown}: {moved} inodes have another block")?;
    Ok(complaints.exit())
}
