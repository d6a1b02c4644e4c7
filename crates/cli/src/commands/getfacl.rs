//! `getfacl`: prints ACLs.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use uext4::{FileType, FollowLast, Image, Inode};
use uext4_image::walk::Entry;
use uext4_ondisk::acl::Acl;

use super::Output;
use super::listing::{Listing, Target, list, walk};
use crate::acl_text::{
    ACCESS, DEFAULT, entry_text, from_value, is_masked, mask, of_mode, perm_text,
};
use crate::failure::{Complaints, Exit, Failure};
use crate::json::Json;
use crate::paths;
use crate::show::escaped;

/// Show ACLs
///
/// Prints owner, group, and the entries of the access ACL and of a directory's default ACL as
/// getfacl(1) does, with numbers of users and groups. `setfacl --restore` takes what this prints.
/// Symbolic links are followed; with -R, those below a directory are left out.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:
  uext4 getfacl disk.img /srv/www
  uext4 getfacl -Rs disk.img / > acls
  uext4 getfacl -d -c disk.img /srv/www")]
pub struct GetfaclArgs {
    /// Files and directories
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<PathBuf>,
    /// Print only the access ACL
    #[arg(short, long)]
    access: bool,
    /// Print only the default ACL
    #[arg(short, long)]
    default: bool,
    /// Leave out the lines with name, owner, group and flags
    #[arg(short = 'c', long)]
    omit_header: bool,
    /// Print what the mask leaves of every entry
    #[arg(short = 'e', long, conflicts_with = "no_effective")]
    all_effective: bool,
    /// Do not print what the mask leaves
    #[arg(short = 'E', long)]
    no_effective: bool,
    /// Leave out files whose permissions say all there is
    #[arg(short, long)]
    skip_base: bool,
    /// Print everything below directories too
    #[arg(short = 'R', long)]
    recursive: bool,
    /// Print numbers of users and groups; this is always done
    #[arg(short, long)]
    numeric: bool,
    /// Leave the slash that a path begins with
    #[arg(short = 'p', long)]
    absolute_names: bool,
    /// Print one JSON array of objects
    #[arg(long)]
    json: bool,
}

/// Prints them.
pub fn run(args: &GetfaclArgs, fs: &Image, out: &mut Output) -> Result<Exit, Failure> {
    let target = Target {
        fs,
        out,
        json: Json::new(),
        complaints: Complaints::new(),
    };
    list(&mut List { args, to: target }, &args.paths, args.json)
}

struct List<'a> {
    args: &'a GetfaclArgs,
    to: Target<'a>,
}

impl<'a> Listing<'a> for List<'a> {
    fn target(&mut self) -> &mut Target<'a> {
        &mut self.to
    }

    fn operand(&mut self, path: &[u8]) -> Result<(), Failure> {
        let top = paths::resolve(self.to.fs, path, FollowLast::Yes)?;
        match self.args.recursive {
            true => walk(self, top, path),
            false => self.file(&top, path),
        }
    }

    fn entry(&mut self, _: &Entry, inode: &Inode, path: &[u8]) -> Result<(), Failure> {
        match inode.file_type {
            FileType::Symlink => Ok(()),
            _ => self.file(inode, path),
        }
    }
}

impl List<'_> {
    fn file(&mut self, inode: &Inode, path: &[u8]) -> Result<(), Failure> {
        let acl = |name| {
            let acl = from_value(self.to.fs.xattr(inode, name));
            acl.map_err(|error| Failure::engine(escaped(path), &error))
        };
        let both = self.args.access == self.args.default;
        let access = match both || self.args.access {
            true => Some(acl(ACCESS)?.unwrap_or_else(|| of_mode(inode.mode))),
            false => None,
        };
        let default = match both || self.args.default {
            true => acl(DEFAULT)?,
            false => None,
        };
        let is_base = access.as_ref().is_none_or(Acl::is_minimal) && default.is_none();
        if self.args.skip_base && is_base {
            return Ok(());
        }
        if self.args.json {
            return self.object(inode, path, access.as_ref(), default.as_ref());
        }
        if !self.args.omit_header {
            self.header(inode, path)?;
        }
        if let Some(acl) = &access {
            self.entries("", acl)?;
        }
        if let Some(acl) = &default {
            self.entries(if both { "default:" } else { "" }, acl)?;
        }
        writeln!(self.to.out)?;
        Ok(())
    }

    fn header(&mut self, inode: &Inode, path: &[u8]) -> Result<(), Failure> {
        let path = match self.args.absolute_names {
            true => path,
            false => {
                let start = path.iter().take_while(|&&b| b == b'/').count();
                if start == path.len() {
                    b"."
                } else {
                    &path[start..]
                }
            }
        };
        self.to.out.write_all(b"# file: ")?;
        self.to.out.write_all(&quoted(path))?;
        writeln!(
            self.to.out,
            "\n# owner: {}\n# group: {}",
            inode.uid, inode.gid
        )?;
        let letter = |(bit, letter)| if inode.mode & bit == 0 { '-' } else { letter };
        if inode.mode & 0o7000 != 0 {
            let flags = [(0o4000, 's'), (0o2000, 's'), (0o1000, 't')].map(letter);
            writeln!(self.to.out, "# flags: {}", flags.iter().collect::<String>())?;
        }
        Ok(())
    }

    fn entries(&mut self, prefix: &str, acl: &Acl) -> Result<(), Failure> {
        let mask = mask(acl);
        for entry in &acl.entries {
            write!(self.to.out, "{prefix}{}", entry_text(entry))?;
            if let Some(mask) = mask.filter(|_| is_masked(entry.tag) && !self.args.no_effective)
                && (self.args.all_effective || entry.perm & !mask != 0)
            {
                write!(self.to.out, "\t#effective:{}", perm_text(entry.perm & mask))?;
            }
            writeln!(self.to.out)?;
        }
        Ok(())
    }

    fn object(
        &mut self,
        inode: &Inode,
        path: &[u8],
        access: Option<&Acl>,
        default: Option<&Acl>,
    ) -> Result<(), Failure> {
        let json = &mut self.to.json;
        json.open_object();
        json.key("path").text(path);
        json.key("uid").number(inode.uid);
        json.key("gid").number(inode.gid);
        for (key, acl) in [("access", access), ("default", default)] {
            if let Some(acl) = acl {
                json.key(key).open_array();
                acl.entries
                    .iter()
                    .for_each(|entry| json.string(&entry_text(entry)));
                json.close_array();
            }
        }
        json.close_object();
        self.to.out.write_all(json.as_bytes())?;
        json.continue_array();
        Ok(())
    }
}

/// A name as getfacl writes it, so that `setfacl --restore` reads it back: control characters but
/// the tab, and backslashes, are escaped.
fn quoted(name: &[u8]) -> Vec<u8> {
    let mut shown = Vec::with_capacity(name.len());
    for &byte in name {
        match byte {
            b'\\' => shown.extend_from_slice(b"\\\\"),
            b'\t' => shown.push(byte),
            byte if byte.is_ascii_control() => {
                shown.extend_from_slice(format!("\\{byte:03o}").as_bytes());
            }
            byte => shown.push(byte),
        }
    }
    shown
}
