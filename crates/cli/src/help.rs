//! The pages of `uext4 --help` and `uext4 help TOPIC`.
//!
//! The list of commands is written here, under headings, because clap prints one list. Tests hold
//! that each command stands in it exactly once, and that the first page fits a screen.

use clap::Command;
use uext4_fsck::Problem;

/// The first page. At most 50 lines with the lines that clap adds.
const FRONT_PAGE: &str = "\
{about}

Usage: uext4 COMMAND [OPTIONS] IMAGE [PATH]...

Read an image (the image is never written to):
  ls, tree       List a directory; draw it and everything below it
  find, grep     Find files by name, size, time, owner and more; search their contents
  diff, du       Compare two images; show how much space directories take
  cat            Print the contents of files
  stat           Show one inode: times, flags, extended attributes, extents
  get, tar       Copy files and directories out of the image; write them as a tar archive
  getfattr, lsattr, getfacl  Show extended attributes; inode flags and projects; ACLs
  manifest       Describe every file: one JSON object a line, sorted by path
  info           Describe the file system: geometry, features, state, times
  frag, stats    Show fragmentation; free space by group, or what a running mount does
Make an image:
  build          Make an image from a directory or a tar archive
  mkfs           Make an empty file system, with the flags of mke2fs
  clone          Copy an image, and give the copy a UUID of its own
Change an image (every change goes through the journal):
  put, untar     Copy files and directories into the image; extract an archive into it
  mkdir, touch, ln, mv, rm, chmod, chown, truncate, fallocate, setfattr, chattr, setfacl
                 Change files, as the programs of the same names do
  script         Run many commands in one opening of the image
  grow, shrink, tune  Make it larger, or smaller; change label, UUID, features, as tune2fs
  quota, trim, dedup-xattrs, sync
                 Quotas; discard free blocks; merge equal xattr blocks; replay the journal
Check and repair an image:
  check          Check structures, checksums and counts; the image is not changed
  repair, undo   Show what mends it, and write that; put back what was overwritten
  fsck           Check and repair, with the flags of e2fsck
  salvage, undelete, scan  Copy out what can be read; put deleted files back; find file systems
Mount an image:
  mount, umount  Show an image as a directory, to every program; unmount it
  doctor         Show what this machine offers for mounts, and what is missing
Help:
  help           Explain a COMMAND, or: image, sizes, exit-codes, examples, profiles, problems
  completions    Print the completions of bash, zsh or fish

Options: -h, --help; -V, --version

Exit codes: 0 done, or clean; 1 part of the work could not be done; 2 wrong usage;
4 the image is damaged; 8 failed. mount and umount have those of mount(8), repair and
fsck those of fsck(8), grep and diff those of grep(1) and diff(1).

Example: uext4 build ./rootfs -o disk.img && uext4 ls -l disk.img /etc
";

/// A page that belongs to no command.
#[derive(Debug)]
pub struct Topic {
    /// Its name after `uext4 help`.
    pub name: &'static str,
    /// Its text.
    pub text: &'static str,
}

/// All such pages, in the order of the manual.
pub const TOPICS: [Topic; 4] = [
    Topic {
        name: "image",
        text: IMAGE,
    },
    Topic {
        name: "sizes",
        text: SIZES,
    },
    Topic {
        name: "exit-codes",
        text: EXIT_CODES,
    },
    Topic {
        name: "examples",
        text: EXAMPLES,
    },
];

const IMAGE: &str = "\
An IMAGE is a raw image file, a partitioned disk or a block device. The commands find the file
system themselves if only one partition holds one. All commands that open an image accept:

  --partition N|LABEL|UUID
                        Use this partition of a partitioned disk
  --offset BYTES        The file system starts BYTES into the image (1048576, 1M, 2048s)

Commands that read an image never write to it. A journal that needs recovery is replayed in
memory. If uext4 has mounted the image, they read it as it is at one moment, while others go on
writing; a directory of the mount may stand in the place of IMAGE, and is the root of all paths
then. They also accept:

  --superblock BLOCK    Read the backup superblock in this block (32768 on most file systems)
  --no-replay           Read the file system as it is on disk, without replaying its journal

Commands that change an image use its journal: whatever interrupts them, the image stays
consistent. If uext4 has mounted the image, its daemon makes the changes, and programs that use the
mount see them at once; a directory of the mount may be given, too. They also accept, on an image
that is not mounted:

  --options NAME=VALUE,…
                        Options of the engine, as `uext4 mount -o` has them: stripe=N, discard,
                        dirty_ratio=10, …; `uext4 mount --help-options` lists them
  --drop-verity         Change what a dm-verity hash tree or a footer of Android Verified Boot
                        covers, or a partition marked as read-only, and give the tree, the footer
                        or the mark up
  --wait[=SECONDS]      Wait until other programs have ended that use the image
  --trace EVENT,…       Print trace events of the engine to standard error: one event by name
                        (ext4_mballoc_alloc), or all of ext4 (the allocator), extent_status,
                        mbcache, writeback or uext4 (errors)

All of these commands give up what they do not need before they read the image or an archive: paths
that the command line does not name (but the directory in which a file is made or replaced, and one
for temporary files), and system calls that start programs or, without a source that is a URL,
reach the network. Below fakeroot and pseudo they give up nothing. They take memory as the machine,
the control group and resource limits leave it. These options, which stand behind the name of the
command, say otherwise:

  --memory SIZE         Use about SIZE of memory at most for caches and tables
  --no-sandbox          Give nothing up
";

const SIZES: &str = "\
A SIZE is a number with an optional unit, in capital or small letters:

  s                   sectors of 512 bytes
  K, M, G, T          powers of 1024; also KiB, MiB, GiB, TiB
  KB, MB, GB, TB      powers of 1000

A number with a unit may have decimals: 1.5G. Without a unit it counts bytes; only the SIZE of
`uext4 mkfs` counts blocks of the size that -b states, or KiB without -b, as mke2fs does.

How `uext4 build` (and `uext4 mkfs -d`) chooses the size of the image:

  --size SIZE     exactly this; the command fails if the source does not fit
  --free SIZE     the smallest image that has SIZE of free space for data
  --min           the smallest image that holds the source
  none of them    the smallest image with a tenth of its contents, and at least 16 MiB, free, in
                  whole MiB; a block device is used whole

`uext4 mkfs -d` keeps the size of a file that exists.
";

const EXIT_CODES: &str = "\
Every command but mount, umount, repair, fsck, grep and diff ends with one of these exit codes:

  0  done; for check: the file system is clean
  1  a path does not exist in the image, or part of the work could not be done (the rest was)
  2  the command line is wrong
  4  the image is damaged, or the archive that an image should be made from
  8  failed: no such image, no ext file system in it, no permission, no space, I/O error,
     unsupported feature

If the reader of a pipe goes away (`uext4 ls … | head`), a command ends with 4 if it has met damage,
and else with 0; `tar` and `script`, whose work is then incomplete, end with 1.

mount and umount have the exit codes of mount(8):

  0   mounted, or unmounted with all data on disk
  1   the command line is wrong, or the caller has no permission
  2   the system cannot: no /dev/fuse, no fusermount3
  4   an internal error
  8   interrupted
  32  not mounted, or unmounted although data could not be written

repair and fsck have the exit codes of fsck(8):

  0   the file system is clean
  1   it was damaged and is repaired
  4   it is left damaged: the repair was not allowed, not wanted or not possible
  8   failed: no such image, in use, no permission, I/O error, unsupported feature
  16  the command line is wrong
  32  interrupted

grep has the exit codes of grep(1):

  0  a line matches
  1  no line matches
  2  an error, also one with a part of the work: with -q 0 if a line matches

diff has the exit codes of diff(1):

  0  nothing differs
  1  something differs
  2  an error, also one with a part of the work: with -q 1 if something differs
";

const EXAMPLES: &str = "\
  uext4 ls -l disk.img /etc             list a directory
  uext4 tree disk.img | less            everything, as a tree
  uext4 cat disk.img /etc/os-release    a file to standard output
  uext4 grep -il password *.img         files of many images that match
  uext4 find disk.img --perm -4000      set-user-id programs
  uext4 diff old.img new.img            what was added, removed and changed
  uext4 get disk.img /home ./home       copy a directory out
  uext4 tar disk.img > disk.tar         all of it, with xattrs, hard links and holes
  uext4 build ./rootfs -o disk.img      an image from a directory or a tar archive
  uext4 mkfs disk.img 1G                an empty file system, as mke2fs would make it
  uext4 check disk.img                  is it clean?
  uext4 repair --plan disk.img          what would a repair write?
  uext4 repair --undo saved disk.img    repair it, and save what is overwritten
  uext4 put disk.img ./site /srv        copy files and directories in
  uext4 rm -r disk.img /var/cache       remove a directory
  uext4 script disk.img < commands      many changes at once
  uext4 mount disk.img ~/mnt            as a directory, to every program
  uext4 umount ~/mnt                    returns when all data is in disk.img
";

/// The line that stands for the image options in the help of a command.
const SEE_IMAGE: &str = "Image options: --partition, --offset and others; see `uext4 help image`";

/// Gives the command line its first page, and the pages of its commands a line for the options that
/// they share.
pub fn with_front_page(command: Command) -> Command {
    command
        .help_template(FRONT_PAGE)
        .mut_subcommands(|command| {
            if !command
                .get_arguments()
                .any(|arg| arg.get_id() == "partition")
            {
                return command;
            }
            let end = command.get_after_help().map(ToString::to_string);
            command.after_help(format!("{SEE_IMAGE}\n\n{}", end.unwrap_or_default()))
        })
}

/// All problems, as `uext4 help problems` prints them.
pub fn problem_page() -> String {
    let mut text =
        "What `uext4 check` finds and `uext4 repair` mends. What a note says, the next mount \
                    completes;\nwhat is safe, `repair -p` mends; damage is for a human to decide \
                    on. The last line of each\nis the remedy, and what it may lose.\n"
            .to_owned();
    let mut structure = "";
    for problem in Problem::all() {
        if problem.structure() != structure {
            structure = problem.structure();
            text += &format!("\n{}:\n", structure.to_uppercase());
        }
        let info = problem.info();
        let [wrong, remedy] = [info.text, info.remedy].map(|text| text.replace(['{', '}'], "*"));
        let (name, severity) = (info.name, info.severity.name());
        let loss = info.loss.name();
        text += &format!("\n  {name} ({severity})\n    {wrong}\n    {remedy}; loses {loss}\n");
    }
    text
}

/// The commands under their headings, as the first page lists them.
pub fn groups() -> Vec<Group> {
    let list = FRONT_PAGE
        .split_once("\n\nUsage")
        .map_or("", |(_, list)| list);
    let list = list.split("\n\nOptions").next().unwrap_or_default();
    let mut groups: Vec<Group> = Vec::new();
    for line in list.lines().skip(2) {
        match (line.strip_prefix("  "), groups.last_mut()) {
            (None, _) => groups.push(Group {
                heading: line.trim_end_matches(':'),
                commands: Vec::new(),
            }),
            (Some(entry), Some(group)) if !entry.starts_with(' ') => {
                let names = entry.split("  ").next().unwrap_or_default();
                group.commands.extend(names.split(", "));
            }
            // The text of the line before.
            (Some(_), _) => {}
        }
    }
    groups
}

/// Commands of one kind.
#[derive(Debug)]
pub struct Group {
    /// What they do.
    pub heading: &'static str,
    /// Their names.
    pub commands: Vec<&'static str>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command_line;

    #[test]
    fn the_front_page_lists_every_command_once() {
        let command = command_line::command();
        let mut known: Vec<&str> = command
            .get_subcommands()
            .filter(|command| !command.is_hide_set())
            .map(Command::get_name)
            .collect();
        known.sort_unstable();
        let mut listed: Vec<&str> = groups().into_iter().flat_map(|g| g.commands).collect();
        listed.sort_unstable();
        assert_eq!(listed, known);
    }

    #[test]
    fn the_front_page_fits_a_screen() {
        let page = command_line::command().render_long_help().to_string();
        assert!(page.lines().count() <= 50, "{page}");
        assert!(page.lines().all(|line| line.len() <= 100), "{page}");
    }

    #[test]
    fn topics_fit_the_width_of_a_page() {
        for topic in TOPICS {
            for line in topic.text.lines() {
                assert!(line.chars().count() <= 100, "{}: {line}", topic.name);
            }
        }
    }
}
