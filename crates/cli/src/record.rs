//! One inode in JSON: the same keys in `manifest`, `ls`, `tree` and `stat`.

use uext4::{Error, Image, Inode};
use uext4_ondisk::inode::{FileType, InodeFlags, Timestamp};

use crate::inode_flags;
use crate::json::Json;
use crate::show::type_word;

/// Writes the keys of an inode into an open object.
///
/// # Errors
/// The symlink's target could not be read; all other keys are written.
pub fn write(json: &mut Json, fs: &Image, inode: &Inode) -> Result<(), Error> {
    json.key("type").string(type_word(inode.file_type));
    json.key("mode")
        .string(&format!("{:04o}", inode.mode & 0o7777));
    json.key("uid").number(inode.uid);
    json.key("gid").number(inode.gid);
    json.key("size").number(stat_size(inode));
    json.key("nlink").number(inode.links);
    json.key("ino").number(inode.ino.0);
    json.key("blocks").number(stat_blocks(inode));
    time(json, "atime_ns", "atime", inode.atime);
    time(json, "mtime_ns", "mtime", inode.mtime);
    time(json, "ctime_ns", "ctime", inode.ctime);
    json.key("flags")
        .string(&format!("{:08x}", inode_flags::shown(inode).bits()));
    if let Some(rdev) = inode.rdev {
        json.key("rdev")
            .string(&format!("{}:{}", rdev.major, rdev.minor));
    }
    if inode.file_type == FileType::Symlink {
        let target = fs.read_link(inode)?;
        json.key("target").text(&target);
    }
    Ok(())
}

/// Writes a time twice: nanoseconds as a number, which many readers round to 53 bits, and seconds
/// with nine decimals as a string.
pub fn time(json: &mut Json, number: &str, string: &str, time: Timestamp) {
    let nanos = time.as_nanos();
    json.key(number).number(nanos);
    let sign = if nanos < 0 { "-" } else { "" };
    let (sec, nsec) = (
        nanos.unsigned_abs() / 1_000_000_000,
        nanos.unsigned_abs() % 1_000_000_000,
    );
    json.key(string).string(&format!("{sign}{sec}.{nsec:09}"));
}

/// The size that stat(2) returns: 0 for devices.
pub fn stat_size(inode: &Inode) -> u64 {
    match inode.rdev {
        Some(_) => 0,
        None => inode.size,
    }
}

/// The blocks that stat(2) returns, in units of 512 bytes.
///
/// A file within its inode has none, but the kernel adds what its data would take, so that no
/// program mistakes it for a hole.
pub fn stat_blocks(inode: &Inode) -> u64 {
    let inline = inode.flags.contains(InodeFlags::INLINE_DATA);
    if inline && inode.file_type == FileType::Regular {
        inode.blocks.saturating_add(inode.size.div_ceil(512))
    } else {
        inode.blocks
    }
}
