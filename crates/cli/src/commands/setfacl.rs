//! `setfacl`: changes ACLs.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use clap::Args;
use uext4::xattr::SetMode;
use uext4::{Damage, Error, FileType, FollowLast, Invalid, SetAttributes};
use uext4_remote::Node;

use super::change::{Operation, Target, Which, about};
use crate::acl_change::{AclChange, Acls, MaskRule};
use crate::acl_restore::{Saved, parse_saved};
use crate::acl_text::{
    ACCESS, DEFAULT, EntryChange, Purpose, from_value, of_mode, parse, parse_lines,
};
use crate::failure::{Exit, Failure};

/// Bytes of a file of entries, at most.
const FILE_MAX: u64 = 256 << 20;

/// Change ACLs
///
/// ACL is entries as in setfacl(1), separated by commas: u:1000:rwX (a user), u::rw (the owner),
/// g:100:r, g::r, m::rx (the mask), o::- (others); with d: before one, or with -d, of the default
/// ACL of a directory. Users and groups are numbers: names of this machine mean nothing in an
/// image. The mask becomes what all entries together need, unless it is set itself, or with -n. The
/// permission bits of the mode follow. Parts of one command are made in this order: -b, -k, --set,
/// -x, -m. Symbolic links are followed; with -R, links below a directory are left out, and so are
/// default entries for files.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:
  uext4 setfacl -m u:1000:rwX,g:100:r disk.img /srv/www
  uext4 setfacl -R -m u:33:rX,d:u:33:rX disk.img /srv/www
  uext4 setfacl -b disk.img /srv/www
  uext4 getfacl -R disk.img / > acls && uext4 setfacl --restore acls disk.img")]
pub struct SetfaclArgs {
    /// Files and directories
    #[arg(value_name = "PATH", required_unless_present = "restore")]
    paths: Vec<PathBuf>,
    /// Add entries, or change them
    #[arg(short, long, value_name = "ACL")]
    modify: Option<String>,
    /// Read entries to add or change from a file, or - for standard input
    #[arg(short = 'M', long, value_name = "FILE", conflicts_with = "modify")]
    modify_file: Option<PathBuf>,
    /// Remove entries, given without permissions
    #[arg(short = 'x', long, value_name = "ACL")]
    remove: Option<String>,
    /// Read entries to remove from a file, or - for standard input
    #[arg(short = 'X', long, value_name = "FILE", conflicts_with = "remove")]
    remove_file: Option<PathBuf>,
    /// Replace the whole ACL
    #[arg(long, value_name = "ACL")]
    set: Option<String>,
    /// Read the whole ACL from a file, or - for standard input
    #[arg(long, value_name = "FILE", conflicts_with = "set")]
    set_file: Option<PathBuf>,
    /// Remove all entries but those of owner, group and others
    #[arg(short = 'b', long)]
    remove_all: bool,
    /// Remove the default ACL
    #[arg(short = 'k', long)]
    remove_default: bool,
    /// Let the mask allow what all entries need, also if it is set
    #[arg(long, conflicts_with = "no_mask")]
    mask: bool,
    /// Leave the mask
    #[arg(short, long)]
    no_mask: bool,
    /// All entries are of the default ACL
    #[arg(short, long)]
    default: bool,
    /// Change everything below directories too
    #[arg(short = 'R', long)]
    recursive: bool,
    /// Restore owners, permissions and ACLs that getfacl has printed to a file, or - for standard
    /// input; paths start at the root
    #[arg(long, value_name = "FILE", conflicts_with_all = [
        "paths", "modify", "modify_file", "remove", "remove_file", "set", "set_file",
        "remove_all", "remove_default", "mask", "no_mask", "default", "recursive",
    ])]
    restore: Option<PathBuf>,
}

impl Operation for SetfaclArgs {
    fn apply(&self, target: &mut Target<'_>) -> Result<(), Failure> {
        if let Some(file) = &self.restore {
            return restore(target, file);
        }
        let entries = |text: &Option<String>, file: &Option<PathBuf>, purpose| {
            self.entries(target, text.as_deref(), file.as_deref(), purpose)
        };
        let change = AclChange {
            remove_all: self.remove_all,
            remove_default: self.remove_default,
            set: entries(&self.set, &self.set_file, Purpose::Set)?,
            remove: entries(&self.remove, &self.remove_file, Purpose::Remove)?,
            modify: entries(&self.modify, &self.modify_file, Purpose::Set)?,
            mask: match (self.mask, self.no_mask) {
                (true, _) => MaskRule::Always,
                (_, true) => MaskRule::Never,
                _ => MaskRule::UnlessSet,
            },
        };
        let all = [&change.set, &change.remove, &change.modify];
        if all.iter().all(|all| all.is_empty()) && !self.remove_all && !self.remove_default {
            let what = "give what to change: -m, -x, -b, -k, --set or --restore";
            return Err(Failure::new(Exit::Usage, what));
        }
        let which = Which {
            paths: &self.paths,
            last: FollowLast::Yes,
            recursive: self.recursive,
        };
        target.each_inode(&which, |inode| self.change(&change, inode))
    }
}

impl SetfaclArgs {
    fn entries(
        &self,
        target: &Target<'_>,
        text: Option<&str>,
        file: Option<&Path>,
        purpose: Purpose,
    ) -> Result<Vec<EntryChange>, Failure> {
        let entries = match (text, file) {
            (Some(text), _) => parse(text, purpose),
            (None, Some(file)) => {
                let bytes = read(target, file)?;
                parse_lines(&String::from_utf8_lossy(&bytes), purpose)
            }
            (None, None) => return Ok(Vec::new()),
        };
        let mut entries = entries.map_err(|what| Failure::new(Exit::Usage, what))?;
        for entry in &mut entries {
            if self.default && entry.is_default {
                let what = "with -d, entries have no d: before them";
                return Err(Failure::new(Exit::Usage, what));
            }
            entry.is_default |= self.default;
        }
        Ok(entries)
    }

    fn change(&self, change: &AclChange, inode: &Node) -> uext4::Result<()> {
        let file_type = inode.view()?.file_type();
        if file_type == FileType::Symlink {
            return Ok(());
        }
        let old = acls(inode)?;
        let mut new = old.clone();
        change.apply(&mut new, file_type);
        if file_type == FileType::Directory {
            return store(inode, &old, &new);
        }
        new.default = None;
        store(inode, &old, &new)?;
        match !self.recursive && change.sets_default() {
            true => Err(Error::AccessDenied {
                what: "only directories can have default ACLs",
            }),
            false => Ok(()),
        }
    }
}

/// The ACLs of an inode.
fn acls(inode: &Node) -> uext4::Result<Acls> {
    Ok(Acls {
        access: from_value(inode.xattr(ACCESS))?.unwrap_or(of_mode(inode.view()?.mode)),
        default: from_value(inode.xattr(DEFAULT))?,
    })
}

/// Stores those that have changed. Both are ACLs, or nothing is stored.
fn store(inode: &Node, old: &Acls, new: &Acls) -> uext4::Result<()> {
    for acl in std::iter::once(&new.access).chain(&new.default) {
        acl.validate().map_err(|damage| match damage {
            Damage::Acl { why } => Invalid::Acl(why).into(),
            damage => Error::Corrupt(damage),
        })?;
    }
    if new.default != old.default {
        let value = new.default.as_ref().map(|acl| acl.to_wire());
        inode.set_xattr(DEFAULT, value.as_deref(), SetMode::Any)?;
    }
    if new.access != old.access {
        inode.set_xattr(ACCESS, Some(&new.access.to_wire()), SetMode::Any)?;
    }
    Ok(())
}

/// What a file has, or standard input.
fn read(target: &Target<'_>, file: &Path) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    let is_stdin = file.as_os_str() == "-";
    if is_stdin && target.is_script_on_stdin {
        let what = "- would read the script itself";
        return Err(Failure::new(Exit::Usage, what).hint("give the script with -f FILE"));
    }
    let result = match is_stdin {
        true => std::io::stdin()
            .lock()
            .take(FILE_MAX + 1)
            .read_to_end(&mut bytes),
        false => File::open(file).and_then(|file| file.take(FILE_MAX + 1).read_to_end(&mut bytes)),
    };
    result.map_err(|error| Failure::io(file.display(), &error))?;
    if bytes.len() as u64 > FILE_MAX {
        let what = format_args!("{}: more than {FILE_MAX} bytes", file.display());
        return Err(Failure::new(Exit::Usage, what).hint("divide it into several files"));
    }
    Ok(bytes)
}

fn restore(target: &mut Target<'_>, file: &Path) -> Result<(), Failure> {
    let saved = parse_saved(&read(target, file)?).map_err(|what| {
        let what = format_args!("{}: {what}", file.display());
        Failure::new(Exit::Usage, what)
    })?;
    for file in &saved {
        let path = [b"/", file.path.as_slice()].concat();
        let found = target.inode(&path, FollowLast::Yes);
        let done = found.and_then(|inode| restore_one(&inode, file).map_err(about(&path)));
        if let Err(failure) = done {
            target.complaints.failure(failure)?;
        }
    }
    Ok(())
}

fn restore_one(inode: &Node, saved: &Saved) -> uext4::Result<()> {
    let change = AclChange {
        set: saved.entries.clone(),
        remove_default: true,
        mask: MaskRule::Never,
        ..AclChange::default()
    };
    let old = acls(inode)?;
    let mut new = old.clone();
    change.apply(&mut new, inode.view()?.file_type());
    // First, as it may be refused; a new owner takes away bits that the mode sets again.
    store(inode, &old, &new)?;
    inode.set_attributes(&SetAttributes {
        uid: saved.uid,
        gid: saved.gid,
        ..SetAttributes::default()
    })?;
    inode.set_attributes(&SetAttributes {
        mode: Some(inode.view()?.mode & 0o777 | saved.flags),
        ..SetAttributes::default()
    })
}
