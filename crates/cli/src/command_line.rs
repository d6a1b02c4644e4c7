//! The command line: its subcommands, and running the one that it asks for.

use std::io::Write;

use clap::{Args, CommandFactory, Parser, Subcommand};

use crate::args::{Change, View};
use crate::commands::{
    Output, build, cat, change, chattr, check, chmod, chown, clone, completions, dedup_xattrs,
    diff, doctor, du, fallocate, find, frag, fsck, get, getfacl, getfattr, grep, grow, help, info,
    ln, ls, lsattr, man, manifest, mkdir, mkfs, mount, mv, output, put, quota, repair, rm, salvage,
    scan, script, setfacl, setfattr, shrink, stat, stats, sync, tar, touch, tree, trim, truncate,
    tune, umount, undelete, undo, untar,
};
use crate::failure::{self, Exit, Failure};
use crate::help::with_front_page;
use crate::process_options::with_process_options;
use crate::{open, preload};

/// Make, read, change, check, repair and mount ext2, ext3 and ext4 images, without root
///
/// Images are raw files, partitioned disks or block devices. Commands that only read never write
/// to the image; a journal that needs recovery is replayed in memory. Commands that change an
/// image use its journal: whatever interrupts them, the image stays consistent.
#[derive(Debug, Parser)]
#[command(name = "uext4", version, max_term_width = 100)]
#[command(disable_help_subcommand = true, arg_required_else_help = true)]
struct Program;

/// Makes the subcommands, and what defines one of them without the others.
macro_rules! subcommands {
    ($($(#[$attribute:meta])* $variant:ident($arguments:ty),)*) => {
        /// The subcommands.
        #[derive(Debug, Subcommand)]
        pub enum Command {
            $($(#[$attribute])* $variant($arguments),)*
        }

        /// The subcommand of this name.
        fn subcommand(name: &str) -> Option<clap::Command> {
            let is_it = |variant| name_of(variant).eq(name.chars());
            match () {
                $(() if is_it(stringify!($variant)) => {
                    // A definition's names live as long as the program: one at its start.
                    let named = clap::Command::new(&*name.to_owned().leak());
                    Some(<$arguments as Args>::augment_args(named))
                })*
                () => None,
            }
        }
    };
}

subcommands! {
    Build(Box<build::BuildArgs>),
    Mkfs(Box<mkfs::MkfsArgs>),
    Clone(clone::CloneArgs),
    Info(info::InfoArgs),
    Ls(View<ls::LsArgs>),
    Tree(tree::TreeArgs),
    Find(Box<find::FindArgs>),
    Grep(Box<grep::GrepArgs>),
    Du(View<du::DuArgs>),
    Diff(Box<diff::DiffArgs>),
    Cat(View<cat::CatArgs>),
    Stat(View<stat::StatArgs>),
    Get(get::GetArgs),
    Tar(tar::TarArgs),
    Manifest(manifest::ManifestArgs),
    Frag(frag::FragArgs),
    Stats(stats::StatsArgs),
    Check(check::CheckArgs),
    Repair(Box<repair::RepairArgs>),
    Undo(undo::UndoArgs),
    Tune(Box<tune::TuneArgs>),
    Salvage(Box<salvage::SalvageArgs>),
    Scan(scan::ScanArgs),
    Undelete(undelete::UndeleteArgs),
    Fsck(Box<fsck::FsckArgs>),
    Put(Change<put::PutArgs>),
    Untar(Change<untar::UntarArgs>),
    Mkdir(Change<mkdir::MkdirArgs>),
    Rm(Change<rm::RmArgs>),
    Mv(Change<mv::MvArgs>),
    Ln(Change<ln::LnArgs>),
    Chmod(Change<chmod::ChmodArgs>),
    Chown(Change<chown::ChownArgs>),
    Setfattr(Change<setfattr::SetfattrArgs>),
    Chattr(Change<chattr::ChattrArgs>),
    Lsattr(View<lsattr::LsattrArgs>),
    Setfacl(Change<setfacl::SetfaclArgs>),
    Getfacl(View<getfacl::GetfaclArgs>),
    Getfattr(View<getfattr::GetfattrArgs>),
    Truncate(Change<truncate::TruncateArgs>),
    Fallocate(Change<fallocate::FallocateArgs>),
    Touch(Change<touch::TouchArgs>),
    Sync(sync::SyncArgs),
    DedupXattrs(dedup_xattrs::DedupXattrsArgs),
    Grow(grow::GrowArgs),
    Shrink(shrink::ShrinkArgs),
    Trim(trim::TrimArgs),
    Quota(quota::QuotaArgs),
    Script(script::ScriptArgs),
    Mount(mount::MountArgs),
    Umount(umount::UmountArgs),
    Doctor(doctor::DoctorArgs),
    Help(help::HelpArgs),
    Completions(completions::CompletionsArgs),
    #[command(hide = true)]
    Man(man::ManArgs),
}

/// The name of the subcommand of a variant: small letters, and hyphens between words.
fn name_of(variant: &str) -> impl Iterator<Item = char> {
    let word = |(at, letter): (usize, char)| {
        let hyphen = (at > 0 && letter.is_ascii_uppercase()).then_some('-');
        hyphen.into_iter().chain([letter.to_ascii_lowercase()])
    };
    variant.chars().enumerate().flat_map(word)
}

/// The definition of the command line, with its first page.
pub fn command() -> clap::Command {
    command_for(None)
}

/// The same for words that begin with this one: where it names a subcommand, of that alone, for to
/// define all of them takes longer than most commands do.
pub fn command_for(first: Option<&str>) -> clap::Command {
    let program = Program::command().subcommand_required(true);
    let program = match first.and_then(subcommand) {
        Some(subcommand) => program.subcommand(subcommand),
        None => Command::augment_subcommands(program),
    };
    with_front_page(with_process_options(program))
}

/// Runs what the command line asks for; all output is written when it returns.
///
/// # Errors
/// The error that ends the command early.
pub fn run(asked_for: &Command) -> Result<Exit, Failure> {
    let stdout = std::io::stdout().lock();
    let mut out = output(match goes_on_unread(asked_for) {
        true => Box::new(UntilClosed(Some(stdout))),
        false => Box::new(stdout),
    });
    if copies_attributes(asked_for) {
        preload::warn_if_absent();
    }
    let exit = dispatch(asked_for, &mut out);
    // Output that precedes a failure is printed too.
    let flushed = out.flush().map_err(Failure::from);
    match (exit, flushed) {
        (Err(Failure::BrokenPipe), _) | (Ok(Exit::Success), Err(Failure::BrokenPipe)) => {
            Ok(when_cut(asked_for).max(failure::known()))
        }
        (Ok(exit), Err(Failure::BrokenPipe)) => Ok(exit),
        (Ok(exit), Err(failure)) => Err(failure.at_least(exit)),
        (exit, _) => exit,
    }
}

/// Runs a command.
fn dispatch(asked_for: &Command, out: &mut Output) -> Result<Exit, Failure> {
    match asked_for {
        Command::Build(args) => build::run(args, out),
        Command::Mkfs(args) => mkfs::run(args, out),
        Command::Clone(args) => clone::run(args, out),
        Command::Info(args) => info::run(args, out),
        Command::Ls(args) => ls::run(&args.what, &open::open(&args.image)?, out),
        Command::Tree(args) => tree::run(args, out),
        Command::Find(args) => find::run(args, out),
        Command::Grep(args) => grep::run(args, out),
        Command::Diff(args) => diff::run(args, out),
        Command::Du(args) => du::run(&args.what, &open::open(&args.image)?, out),
        Command::Cat(args) => cat::run(&args.what, &open::open(&args.image)?, out),
        Command::Stat(args) => stat::run(&args.what, &open::open(&args.image)?, out),
        Command::Get(args) => get::run(args, out),
        Command::Tar(args) => tar::run(args, out),
        Command::Manifest(args) => manifest::run(args, out),
        Command::Frag(args) => frag::run(args, out),
        Command::Stats(args) => stats::run(args, out),
        Command::Check(args) => check::run(args, out),
        Command::Repair(args) => repair::run(args, out),
        Command::Undo(args) => undo::run(args, out),
        Command::Tune(args) => tune::run(args, out),
        Command::Salvage(args) => salvage::run(args, out),
        Command::Scan(args) => scan::run(args, out),
        Command::Undelete(args) => undelete::run(args, out),
        Command::Fsck(args) => fsck::run(args, out),
        Command::Getfattr(args) => getfattr::run(&args.what, &open::open(&args.image)?, out),
        Command::Lsattr(args) => lsattr::run(&args.what, &open::open(&args.image)?, out),
        Command::Getfacl(args) => getfacl::run(&args.what, &open::open(&args.image)?, out),
        Command::Put(args) => change::run(&args.image, &args.what),
        Command::Untar(args) => change::run(&args.image, &args.what),
        Command::Mkdir(args) => change::run(&args.image, &args.what),
        Command::Rm(args) => change::run(&args.image, &args.what),
        Command::Mv(args) => change::run(&args.image, &args.what),
        Command::Ln(args) => change::run(&args.image, &args.what),
        Command::Chmod(args) => change::run(&args.image, &args.what),
        Command::Chown(args) => change::run(&args.image, &args.what),
        Command::Setfattr(args) => change::run(&args.image, &args.what),
        Command::Chattr(args) => change::run(&args.image, &args.what),
        Command::Setfacl(args) => change::run(&args.image, &args.what),
        Command::Truncate(args) => change::run(&args.image, &args.what),
        Command::Fallocate(args) => change::run(&args.image, &args.what),
        Command::Touch(args) => change::run(&args.image, &args.what),
        Command::Sync(args) => sync::run(args, out),
        Command::DedupXattrs(args) => dedup_xattrs::run(args, out),
        Command::Grow(args) => grow::run(args, out),
        Command::Shrink(args) => shrink::run(args, out),
        Command::Trim(args) => trim::run(args, out),
        Command::Quota(args) => quota::run(args, out),
        Command::Mount(args) => mount::run(args, out),
        Command::Doctor(args) => doctor::run(args, out),
        Command::Help(args) => help::run(args, command(), out),
        Command::Completions(args) => completions::run(args, command(), out),
        Command::Man(args) => man::run(args, command()),
        Command::Umount(args) => umount::run(args, out),
        Command::Script(args) => script::run(args, out),
    }
}

/// Whether a command takes owners and attributes from files of this machine, or gives them to such.
fn copies_attributes(command: &Command) -> bool {
    matches!(
        command,
        Command::Build(_)
            | Command::Mkfs(_)
            | Command::Put(_)
            | Command::Script(_)
            | Command::Get(_)
            | Command::Salvage(_)
    )
}

/// Whether a command does its work to the end, and ends with what came of it, when the reader of
/// its output goes away: what it prints is not what it is for.
fn goes_on_unread(command: &Command) -> bool {
    matches!(
        command,
        Command::Check(_)
            | Command::Repair(_)
            | Command::Undo(_)
            | Command::Tune(_)
            | Command::Salvage(_)
            | Command::Undelete(_)
            | Command::Fsck(_)
    ) || matches!(command, Command::Diff(args) if args.writes_layer_to_file())
}

/// An output that takes everything when its reader has gone away.
struct UntilClosed<W>(Option<W>);

impl<W: Write> UntilClosed<W> {
    fn unless_closed<T>(
        &mut self,
        closed: T,
        act: impl FnOnce(&mut W) -> std::io::Result<T>,
    ) -> std::io::Result<T> {
        let Some(inner) = &mut self.0 else {
            return Ok(closed);
        };
        match act(inner) {
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => {
                self.0 = None;
                Ok(closed)
            }
            result => result,
        }
    }
}

impl<W: Write> Write for UntilClosed<W> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.unless_closed(bytes.len(), |inner| inner.write(bytes))
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.unless_closed((), Write::flush)
    }
}

/// The exit code of a command after the reader of its output has gone away. A list that `head` cuts
/// is no failure; an archive that is cut, or commands that are not carried out, are.
fn when_cut(command: &Command) -> Exit {
    match command {
        Command::Tar(_) | Command::Script(_) => Exit::Incomplete,
        Command::Diff(args) if args.writes_layer() => Exit::Incomplete,
        _ => Exit::Success,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        command().debug_assert();
    }

    #[test]
    fn a_subcommand_alone_is_as_among_all() {
        for mut among in command().get_subcommands().cloned() {
            let name = among.get_name().to_owned();
            let mut all = command_for(Some(&name));
            let mut alone = all.get_subcommands_mut();
            let (only, next) = (alone.next().unwrap(), alone.next());
            assert!(next.is_none(), "{name}: all are defined");
            assert_eq!(
                only.render_long_help().to_string(),
                among.render_long_help().to_string(),
                "{name}"
            );
            let of = |command: &clap::Command| -> Vec<String> {
                let arguments = command.get_arguments();
                arguments.map(|argument| format!("{argument:?}")).collect()
            };
            assert_eq!(of(only), of(&among), "{name}");
        }
        for none in ["", "LS", "l", "dedupxattrs", "--help"] {
            assert!(command_for(Some(none)).get_subcommands().count() > 50);
        }
    }
}
