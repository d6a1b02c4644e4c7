//! The command against real oracles: images of the real mke2fs filled by the kernel, its answers
//! compared with what the kernel, GNU tar and the tools of e2fsprogs say.
//!
//! | module | question |
//! |---|---|
//! | [`matrix`] | does `manifest` equal a walk over the kernel's mount, for every feature set? |
//! | [`copies`] | do `get` and `tar` give back what the kernel shows? |
//! | [`json`] | does JSON say all of it, and only one thing? |
//! | [`statuses`] | exit codes with closed pipes and full devices, and the options of coreutils |
//! | [`commands`] | exit codes, help, JSON, partitions, backups, pipes |
//! | [`comparing`] | does `diff` find what differs, and write it as a layer that makes it? |
//! | [`finding`] | do `find`, `grep` and `du` find what their namesakes find? |
//! | [`cloning`] | is a clone sound, with a UUID of its own in all places, and else the same? |
//! | [`making`] | are new file systems sound, reproducible, and whole or not there at all? |
//! | [`sources`] | copies of a tree, fakeroot, files without a size: what does `build` make of them? |
//! | [`protected`] | is what is verified or marked as read-only changed by accident? |
//! | [`scanning`] | are file systems found wherever they begin? |
//! | [`in_disk`] | is a file system made in a disk, and all else there left as it is? |
//! | [`replacing`] | what is overwritten only after a question, or with an option? |
//! | [`foreign`] | what is said of images that hold something else than ext? |
//! | [`changing`] | do the commands that change leave what their namesakes leave? |
//! | [`accepted`] | is what people type at first taken, and what other programs write? |
//! | [`acls`] | do `setfacl` and `getfacl` what the real ones do on a mount? |
//! | [`flags`] | do `chattr` and `lsattr` what the real ones do on a mount? |
//! | [`sharing`] | does `dedup-xattrs` merge equal blocks of attributes, and nothing else? |
//! | [`checking`] | does `check` find what e2fsck finds, and end as it says? |
//! | [`unable`] | where no repair can be made: is that said, and nothing half-done? |
//! | [`repairing`] | is a plan shown, applied, undone, and made in a copy as asked? |
//! | [`full`] | is a full file system repaired in the two ways that the refusal names? |
//! | [`cut_tune`] | what does each command do where a power cut ended `tune`? |
//! | [`fsck`] | does it do as e2fsck for fsck(8), systemd and the initial RAM disks? |
//! | [`salvaging`] | is what can be read out of a damaged image there, with its record? |
//! | [`undeleting`] | do deleted files come back whole, or not at all? |
//! | [`attributes`] | what does it do about damage, and what does it refuse? |
//! | [`refused`] | what do they refuse, and what do they say to do next? |
//! | [`gathering`] | is nothing lost silently, and all asked for, that the kernel holds of written files? |
//! | [`growing_mounted`] | does what is mounted grow while it is written, and is it sound? |
//! | [`scripts`] | does `script` do the same, and stop where it should? |
//! | [`atomic`] | does `put --atomic` replace a file in one step, with its attributes kept? |
//! | [`interrupted`] | is the image sound when `put` or `script` is killed? |
//! | [`hostile`] | cycles, hard-linked directories, planted links, damage |
//! | [`mounted`] | what programs do to a mount: is it sound, and the same, afterwards? |
//! | [`ends`] | how mounts end, and what `umount` reports |
//! | [`mounting`] | the commands round it: options, refusals, manual pages |
//! | [`owners`] | whose files does it show, and whose is what is made? |
//! | [`sandbox`] | what does its daemon give up, and does it still unmount? |
//! | [`overlays`] | does overlayfs show the same on a mount as on the kernel's ext4? |
//! | [`layout`] | do files copied into a mount lie as those that `put` writes? |
//! | [`busy`] | what do commands do where others are mounted on directories of a mount? |
//! | [`mount_stats`] | the statistics of a running mount |
//! | [`requests`] | how many requests does a file cost that a program creates? |
//! | [`direct`] | are O_DIRECT writes seen by buffered readers, and is a full image ENOSPC? |
//! | [`posix`] | does a mount answer random calls as the kernel's ext4 does? |
//! | [`finished`] | are disk images, verified ones and streams what others take them for? |
//! | [`reuse`] | is an image there for the next command as soon as it is unmounted? |
//! | [`rings`] | is a mount over io_uring the same, and does it end when it is to? |
//! | [`privileges`] | what becomes of set-id bits when others use a file? |
//! | [`calls`] | does it answer every call and errno so, as root and as others? |
//! | [`programs`] | are Debian's own programs content with a mount, root's and an ordinary user's? |
//! | [`killed`] | is everything fsynced there when the daemon was killed at any moment? |
//! | [`failing`] | what does it do above devices that fail or are slow? |
//! | [`crowd`] | what do many writers and little memory leave for others? |
//! | [`confined`] | does every command give up what it does not need before it reads? |
//! | [`limits`] | do all stay within a control group, and is a mounted image found by what it is? |
//! | [`kernel_mounts`] | what is read of a device that the kernel has mounted and writes? |
//! | [`memory`] | does what an image has much of take memory? |
//! | [`tuning`] | does the document list every option of `mount -o`, with a default it takes? |
//!
//! [`tree`] fills, [`oracle`] walks, [`host`] and [`served`] mount, [`transport`] says over what.
//! What needs root or a tool says so and skips.

mod accepted;
mod acls;
mod atomic;
mod attributes;
mod busy;
mod calls;
mod changing;
mod checking;
mod cloning;
mod commands;
mod comparing;
mod confined;
mod copies;
mod crowd;
mod cut_tune;
mod daemon;
mod direct;
mod documents;
mod ends;
mod failing;
mod finding;
mod finished;
mod flags;
mod foreign;
mod fsck;
mod full;
mod gathering;
mod growing;
mod growing_mounted;
mod help;
mod host;
mod hostile;
mod in_disk;
mod interrupted;
mod json;
mod kernel_mounts;
mod killed;
mod layout;
mod limits;
mod lost;
mod making;
mod matrix;
mod memory;
mod mount_stats;
mod mounted;
mod mounting;
mod oracle;
mod overlays;
mod owners;
mod packages;
mod posix;
mod possession;
mod privileges;
mod programs;
mod protected;
mod quotas;
mod refused;
mod repairing;
mod replacing;
mod requests;
mod rescued;
mod reuse;
mod rings;
mod salvaging;
mod sandbox;
mod scanning;
mod scripts;
mod served;
mod sharing;
mod snapshots;
mod sources;
mod statuses;
mod terminal;
mod traced;
mod transport;
mod tree;
mod tuned;
mod tuning;
mod unable;
mod undeleting;
