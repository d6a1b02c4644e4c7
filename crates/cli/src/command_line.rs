//! The command line: its subcommands, and running the one that it asks for.

use std::io::Write;

use clap::{CommandFactory, Parser, Subcommand};

use crate::args::{Change, View};
use crate::commands::{
    build, cat, change, check, chmod, chown, dedup_xattrs, fallocate, frag, get, getfattr, info,
    ln, ls, man, manifest, mkdir, mkfs, mount, mv, output, put, quota, rm, script, setfattr, stat,
    stats, sync, tar, touch, tree, trim, truncate, umount,
};
use crate::failure::{self, Exit, Failure};
use crate::open;

const EXAMPLES: &str = "\
Examples:
  uext4 ls -l disk.img /etc             list a directory
  uext4 tree disk.img | less            everything, as a tree
  uext4 cat disk.img /etc/os-release    a file to standard output
  uext4 get disk.img /home ./home       copy a directory out
  uext4 tar disk.img > disk.tar         all of it, with xattrs, hard links and holes
  uext4 build ./rootfs -o disk.img      an image from a directory or a tar
  uext4 mkfs disk.img 1G                an empty file system, as mke2fs would make it
  uext4 check disk.img                  is it sound?
  uext4 put disk.img ./site /srv        copy files and directories in
  uext4 rm -r disk.img /var/cache       mkdir, mv, ln, chmod, chown, touch, truncate: as always
  uext4 script disk.img < commands      many changes at once
  uext4 mount disk.img ~/mnt            as a directory, to every program; uext4 umount ~/mnt

Exit codes:
  0  done; for check: clean
  1  a path does not exist in the image, or part of the work could not be done
  2  the command line makes no sense
  4  the image is damaged, or the archive it should be made of
  8  could not: no such image, no ext file system in it, no permission, no space, I/O error,
     unsupported feature
mount and umount have those of mount(8): `uext4 mount --help`";

/// Ext2, ext3 and ext4 images: make, read, change, export, describe and check them, without root
///
/// Images are raw files, partitioned disks or block devices. Commands that only read never write:
/// a journal that needs recovery is replayed in memory, and the image stays as it is. Commands that
/// change go through the journal: interrupted at any point, the image is consistent.
#[derive(Debug, Parser)]
#[command(name = "uext4", version, max_term_width = 100, after_help = EXAMPLES)]
#[command(disable_help_subcommand = true, arg_required_else_help = true)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    Build(Box<build::BuildArgs>),
    Mkfs(Box<mkfs::MkfsArgs>),
    Info(info::InfoArgs),
    Ls(View<ls::LsArgs>),
    Tree(tree::TreeArgs),
    Cat(View<cat::CatArgs>),
    Stat(View<stat::StatArgs>),
    Get(get::GetArgs),
    Tar(tar::TarArgs),
    Manifest(manifest::ManifestArgs),
    Frag(frag::FragArgs),
    Stats(stats::StatsArgs),
    Check(check::CheckArgs),
    Put(Change<put::PutArgs>),
    Mkdir(Change<mkdir::MkdirArgs>),
    Rm(Change<rm::RmArgs>),
    Mv(Change<mv::MvArgs>),
    Ln(Change<ln::LnArgs>),
    Chmod(Change<chmod::ChmodArgs>),
    Chown(Change<chown::ChownArgs>),
    Setfattr(Change<setfattr::SetfattrArgs>),
    Getfattr(View<getfattr::GetfattrArgs>),
    Truncate(Change<truncate::TruncateArgs>),
    Fallocate(Change<fallocate::FallocateArgs>),
    Touch(Change<touch::TouchArgs>),
    Sync(sync::SyncArgs),
    DedupXattrs(dedup_xattrs::DedupXattrsArgs),
    Trim(trim::TrimArgs),
    Quota(quota::QuotaArgs),
    Script(script::ScriptArgs),
    Mount(mount::MountArgs),
    Umount(umount::UmountArgs),
    #[command(hide = true)]
    Man(man::ManArgs),
}

/// Runs what the command line asks for; all output is written when it returns.
///
/// # Errors
/// Whatever ends the command early.
pub fn run(cli: &Cli) -> Result<Exit, Failure> {
    let mut out = output(Box::new(std::io::stdout().lock()));
    let exit = match &cli.command {
        Command::Build(args) => build::run(args, &mut out),
        Command::Mkfs(args) => mkfs::run(args, &mut out),
        Command::Info(args) => info::run(args, &mut out),
        Command::Ls(args) => ls::run(&args.what, &open::open(&args.image)?, &mut out),
        Command::Tree(args) => tree::run(args, &mut out),
        Command::Cat(args) => cat::run(&args.what, &open::open(&args.image)?, &mut out),
        Command::Stat(args) => stat::run(&args.what, &open::open(&args.image)?, &mut out),
        Command::Get(args) => get::run(args, &mut out),
        Command::Tar(args) => tar::run(args, &mut out),
        Command::Manifest(args) => manifest::run(args, &mut out),
        Command::Frag(args) => frag::run(args, &mut out),
        Command::Stats(args) => stats::run(args, &mut out),
        Command::Check(args) => check::run(args, &mut out),
        Command::Getfattr(args) => getfattr::run(&args.what, &open::open(&args.image)?, &mut out),
        Command::Put(args) => change::run(&args.image, &args.what),
        Command::Mkdir(args) => change::run(&args.image, &args.what),
        Command::Rm(args) => change::run(&args.image, &args.what),
        Command::Mv(args) => change::run(&args.image, &args.what),
        Command::Ln(args) => change::run(&args.image, &args.what),
        Command::Chmod(args) => change::run(&args.image, &args.what),
        Command::Chown(args) => change::run(&args.image, &args.what),
        Command::Setfattr(args) => change::run(&args.image, &args.what),
        Command::Truncate(args) => change::run(&args.image, &args.what),
        Command::Fallocate(args) => change::run(&args.image, &args.what),
        Command::Touch(args) => change::run(&args.image, &args.what),
        Command::Sync(args) => sync::run(args, &mut out),
        Command::DedupXattrs(args) => dedup_xattrs::run(args, &mut out),
        Command::Trim(args) => trim::run(args, &mut out),
        Command::Quota(args) => quota::run(args, &mut out),
        Command::Mount(args) => mount::run(args, &mut out),
        Command::Man(args) => man::run(args, Cli::command()),
        Command::Umount(args) => umount::run(args, &mut out),
        Command::Script(args) => script::run(args, &mut out),
    };
    // What came before a failure is still worth reading.
    let flushed = out.flush().map_err(Failure::from);
    match (exit, flushed) {
        (Err(Failure::BrokenPipe), _) | (Ok(Exit::Success), Err(Failure::BrokenPipe)) => {
            Ok(when_cut(&cli.command).max(failure::known()))
        }
        (Ok(exit), Err(Failure::BrokenPipe)) => Ok(exit),
        (Ok(exit), Err(failure)) => Err(failure.at_least(exit)),
        (exit, _) => exit,
    }
}

/// How a command ends whose reader has gone away. `head` and the like have seen enough of a list,
/// and that is no failure; an archive that is cut, or commands that are not carried out, are.
fn when_cut(command: &Command) -> Exit {
    match command {
        Command::Tar(_) | Command::Script(_) => Exit::Incomplete,
        _ => Exit::Success,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
