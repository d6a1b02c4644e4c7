//! `stat`: everything about one inode.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use uext4::{FollowLast, Image, Inode};
use uext4_ondisk::inode::FileType;

use super::{Output, bytes};
use crate::extents::{Run, Runs};
use crate::failure::{Complaints, Exit, Failure};
use crate::json::Json;
use crate::paths;
use crate::record;
use crate::show::{escaped, mode_text, time_long, type_word};

/// Extents shown without `--extents`.
const EXTENTS_SHOWN: u64 = 16;

/// Show one inode: times, flags, extended attributes, extents
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:
  uext4 stat disk.img /etc/passwd
  uext4 stat --extents disk.img /var/lib/db
  uext4 stat disk.img '<8>'             the inode with number 8, here the journal")]
pub struct StatArgs {
    /// Files in the image, or inode numbers as <N>; a symbolic link is shown itself
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<PathBuf>,
    /// Print all extents, however many
    #[arg(long)]
    extents: bool,
    /// Print one JSON array of objects
    #[arg(long)]
    json: bool,
}

/// Prints it.
pub fn run(args: &StatArgs, fs: &Image, out: &mut Output) -> Result<Exit, Failure> {
    let mut complaints = Complaints::new();
    let mut json = Json::new();
    json.open_array();
    let mut first = true;
    for path in &args.paths {
        let path = bytes(path.as_os_str());
        let inode = match paths::resolve(fs, path, FollowLast::No) {
            Ok(inode) => inode,
            Err(Failure::Message { exit, what, .. }) => {
                complaints.report(exit, what);
                continue;
            }
            Err(failure) => return Err(failure),
        };
        let mut stat = Stat {
            fs,
            path,
            inode: &inode,
            shown: if args.extents {
                u64::MAX
            } else {
                EXTENTS_SHOWN
            },
            complaints: &mut complaints,
        };
        if args.json {
            stat.object(&mut json, out)?;
        } else {
            if !std::mem::replace(&mut first, false) {
                writeln!(out)?;
            }
            stat.text(out)?;
        }
    }
    if args.json {
        json.print_array(out)?;
    }
    Ok(complaints.exit())
}

struct Stat<'a> {
    fs: &'a Image,
    path: &'a [u8],
    inode: &'a Inode,
    /// Extents shown at most.
    shown: u64,
    complaints: &'a mut Complaints,
}

impl Stat<'_> {
    fn text(&mut self, out: &mut Output) -> Result<(), Failure> {
        let inode = self.inode;
        writeln!(out, "file      {}", escaped(self.path))?;
        if inode.file_type == FileType::Symlink {
            match self.fs.read_link(inode) {
                Ok(target) => writeln!(out, "target    {}", escaped(&target))?,
                Err(error) => self.complaints.engine(escaped(self.path), &error),
            }
        }
        writeln!(
            out,
            "inode     {}, generation {}, project {}",
            inode.ino, inode.generation, inode.projid
        )?;
        writeln!(
            out,
            "type      {}, mode {:04o} ({}), links {}",
            type_word(inode.file_type),
            inode.mode & 0o7777,
            mode_text(inode.file_type, inode.mode),
            inode.links
        )?;
        writeln!(out, "owner     uid {}, gid {}", inode.uid, inode.gid)?;
        if let Some(rdev) = inode.rdev {
            writeln!(out, "device    {}:{}", rdev.major, rdev.minor)?;
        }
        let blocks = record::stat_blocks(inode);
        writeln!(
            out,
            "size      {} bytes, {blocks} blocks of 512",
            record::stat_size(inode)
        )?;
        let flags: Vec<_> = inode.flags.iter_names().map(|(name, _)| name).collect();
        writeln!(
            out,
            "flags     {:08x} {}",
            inode.flags.bits(),
            flags.join(" ").to_lowercase()
        )?;
        writeln!(out, "accessed  {}", time_long(inode.atime))?;
        writeln!(out, "modified  {}", time_long(inode.mtime))?;
        writeln!(out, "changed   {}", time_long(inode.ctime))?;
        if let Some(crtime) = inode.crtime {
            writeln!(out, "created   {}", time_long(crtime))?;
        }
        self.xattrs_text(out)?;
        self.extents_text(out)
    }

    fn xattrs_text(&mut self, out: &mut Output) -> Result<(), Failure> {
        match self.fs.xattrs(self.inode) {
            Ok(xattrs) => {
                for xattr in xattrs {
                    let printable = xattr.value.iter().all(|b| (0x20..0x7f).contains(b));
                    let value = if printable {
                        format!("{:?}", String::from_utf8_lossy(&xattr.value))
                    } else {
                        format!("0x{}", hex::encode(&xattr.value))
                    };
                    writeln!(out, "xattr     {} = {value}", escaped(&xattr.name))?;
                }
            }
            Err(error) => self.complaints.engine(escaped(self.path), &error),
        }
        Ok(())
    }

    fn extents_text(&mut self, out: &mut Output) -> Result<(), Failure> {
        let mut count = 0;
        for run in Runs::new(self.fs, self.inode) {
            let run = match run {
                Ok(run) => run,
                Err(error) => {
                    self.complaints.engine(escaped(self.path), &error);
                    break;
                }
            };
            count += 1;
            if count <= self.shown {
                let unwritten = if run.unwritten { " unwritten" } else { "" };
                writeln!(
                    out,
                    "extent    {}..{} at {}..{}{unwritten}",
                    run.lblk,
                    run.lblk + run.len,
                    run.pblk,
                    run.pblk + run.len
                )?;
            }
        }
        if count > self.shown {
            writeln!(
                out,
                "          … {} more (--extents shows them)",
                count - self.shown
            )?;
        }
        Ok(())
    }

    fn object(&mut self, json: &mut Json, out: &mut Output) -> Result<(), Failure> {
        let mut errors = Vec::new();
        json.open_object();
        json.key("path").text(self.path);
        errors.extend(record::write(json, self.fs, self.inode).err());
        json.key("generation").number(self.inode.generation);
        json.key("project").number(self.inode.projid);
        if let Some(crtime) = self.inode.crtime {
            record::time(json, "crtime_ns", "crtime", crtime);
        }
        match self.fs.xattrs(self.inode) {
            Ok(xattrs) => {
                json.key("xattrs").open_object();
                for xattr in &xattrs {
                    json.key_text(&xattr.name).hex(&xattr.value);
                }
                json.close_object();
            }
            Err(error) => errors.push(error),
        }
        errors.extend(extents_array(self.fs, self.inode, json, out)?);
        if !errors.is_empty() {
            let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
            json.key("error").string(&texts.join("; "));
            for error in &errors {
                self.complaints.engine(escaped(self.path), error);
            }
        }
        json.close_object();
        Ok(())
    }
}

/// Writes all extents under the key `extents`, and the buffer to `out` as it grows. What ends them
/// too early comes back.
///
/// # Errors
/// Those of `out`.
pub fn extents_array(
    fs: &Image,
    inode: &Inode,
    json: &mut Json,
    out: &mut Output,
) -> Result<Option<uext4::Error>, Failure> {
    json.key("extents").open_array();
    let mut failed = None;
    for run in Runs::new(fs, inode) {
        match run {
            Ok(run) => extent_object(json, run),
            Err(error) => {
                failed = Some(error);
                break;
            }
        }
        out.write_all(json.as_bytes())?;
        json.continue_array();
    }
    json.close_array();
    Ok(failed)
}

/// One extent as a JSON object; units are file-system blocks.
fn extent_object(json: &mut Json, run: Run) {
    json.open_object();
    json.key("logical").number(run.lblk);
    json.key("physical").number(run.pblk);
    json.key("length").number(run.len);
    json.key("unwritten").value(run.unwritten);
    json.close_object();
}
