//! What a command gives up before it reads the first byte of an image or an archive.
//!
//! With Landlock, all paths but those that it was given ([`Reach`]), `/proc` and `/sys` to read (in
//! which other processes' secrets stay out of reach), and names of temporary files; and all of the
//! network, but for a source with a URL. With seccomp, system calls that a parser of files never
//! makes: those that start programs and processes, trace and signal others, mount, load, reach the
//! network, change who the process is or the machine, and map memory that can be executed. They are
//! answered with ENOSYS.
//!
//! A new file is made next to its place, so that its directory and all below it can be read and
//! written, except where the place is a device or a part of a disk. A command that may need
//! temporary files gets a directory of its own for them, and may remove empty directories next to
//! it. `script` may read every path, as its lines are not known yet.
//!
//! What stays: the user's rights to what was given; local sockets, if a daemon has what was given,
//! as daemons of mounts take commands by them, or if there is a network; finding names and their
//! attributes. Attributes of files can be changed by path, which Landlock does not know, only by
//! commands that make files. Where the kernel has no Landlock or no seccomp the rest holds; nothing
//! is given up below fakeroot and pseudo, whose library may need anything. Calls in the way of x32
//! are refused where they are listed; the filter compares numbers only.

use std::path::{Path, PathBuf};

use landlock::{AccessFs, BitFlags, Scope, make_bitflags};
use seccompiler::{BpfProgram, SeccompCmpOp as Op};

use super::{Condition, Listed, Network, READ, READING, Rule, assemble, leave, rule};

/// A file, a device (whose size is asked), or all below a directory.
const GIVEN: BitFlags<AccessFs> = make_bitflags!(AccessFs::{ReadFile | ReadDir | IoctlDev});
/// A file or device that is changed.
const CHANGING: BitFlags<AccessFs> =
    make_bitflags!(AccessFs::{ReadFile | ReadDir | WriteFile | Truncate | IoctlDev});
/// A directory in which files are made and replaced.
const MAKING: BitFlags<AccessFs> = make_bitflags!(AccessFs::{
    ReadFile | ReadDir | WriteFile | Truncate | MakeReg | RemoveFile | Refer
});
/// A directory in which a tree is made.
const FILLING: BitFlags<AccessFs> = make_bitflags!(AccessFs::{
    ReadFile | ReadDir | WriteFile | Truncate | Refer | RemoveFile | RemoveDir | MakeReg | MakeDir
        | MakeSym | MakeFifo | MakeSock | MakeChar | MakeBlock
});
/// Read by archives that name users, by messages to a terminal, and for the mark of a repair.
const FILES: [&str; 3] = ["/etc/passwd", "/etc/group", "/etc/machine-id"];
/// Devices without contents.
const DEVICES: [&str; 4] = ["/dev/null", "/dev/zero", "/dev/full", "/dev/tty"];
/// Removing what a command made for its temporary files.
const EMPTYING: BitFlags<AccessFs> = make_bitflags!(AccessFs::{RemoveDir});
/// What finding the address of a host and its certificate's authority reads.
const FOR_NETWORK: [&str; 6] = ["/etc", "/usr", "/lib", "/lib64", "/run", "/var/lib"];

/// What a path that a command was given is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// Reading it, and all below it.
    Read,
    /// Listing it, and the directories below it.
    List,
    /// Reading and writing it: a file or a device.
    Change,
    /// A file that is made, or takes the place of the one that is there.
    Make,
    /// A directory that is filled, or made and filled.
    Fill,
}

/// What a command can reach.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reach {
    /// The paths that it was given.
    pub paths: Vec<(PathBuf, Use)>,
    /// A source has a URL.
    pub network: bool,
    /// A daemon may be asked.
    pub daemon: bool,
    /// The directory for temporary files, if there may be any.
    pub temporary: Option<PathBuf>,
}

impl Reach {
    /// Whether files of this machine are made.
    fn makes_files(&self) -> bool {
        let makes = |use_of| matches!(use_of, Use::Make | Use::Fill);
        self.paths.iter().any(|(_, use_of)| makes(*use_of))
    }
}

/// What of it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// No other path, or only some of the rules.
    pub landlock: bool,
    /// None of the refused system calls.
    pub seccomp: bool,
}

/// Gives up all else, for this thread and all that it starts. There must be no other thread.
pub fn confine(reach: &Reach) -> Held {
    let network = match reach.network {
        true => Network::All,
        false => Network::None,
    };
    // Sockets without a path of daemons are found by what an image is.
    let landlock = leave(&rules(reach), network, Scope::Signal.into()).unwrap_or(false);
    let program = program(reach);
    let seccomp = program.is_ok_and(|program| seccompiler::apply_filter(&program).is_ok());
    Held { landlock, seccomp }
}

fn rules(reach: &Reach) -> Vec<Rule> {
    let mut rules: Vec<Rule> = READ.map(|dir| rule(dir, READING)).into();
    rules.extend(FILES.map(|file| rule(file, READING)));
    rules.extend(DEVICES.map(|device| rule(device, CHANGING)));
    if let Some(dir) = &reach.temporary {
        rules.push(rule(dir, MAKING));
        rules.extend(dir.parent().map(|above| rule(above, EMPTYING)));
    }
    for (path, use_of) in &reach.paths {
        match use_of {
            Use::Read => rules.push(rule(path, GIVEN)),
            Use::List => rules.push(rule(path, AccessFs::ReadDir)),
            Use::Change => rules.push(rule(path, CHANGING)),
            Use::Make => {
                rules.push(rule(path, CHANGING));
                // Nothing is made where there is no directory for it, or next to a device.
                let is_device = std::fs::metadata(path).is_ok_and(|found| !found.is_file());
                let dirs = places(path).into_iter().filter(|_| !is_device);
                let dirs = dirs.filter_map(|place| Some(place.parent()?.to_owned()));
                rules.extend(dirs.map(|dir| rule(dir, MAKING)));
            }
            Use::Fill if path.is_dir() => rules.push(rule(path, FILLING)),
            Use::Fill => {
                let dirs = places(path).into_iter();
                let dirs = dirs.filter_map(|place| {
                    let mut above = place.ancestors().skip(1);
                    above.find(|dir| dir.is_dir()).map(Path::to_owned)
                });
                rules.extend(dirs.map(|dir| rule(dir, FILLING)));
            }
        }
    }
    if reach.network {
        rules.extend(FOR_NETWORK.map(|dir| rule(dir, READING)));
    }
    rules
}

/// Where a file is, or is to be: the link of this name, which may be replaced, and its target,
/// which may be written.
fn places(path: &Path) -> Vec<PathBuf> {
    let named = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let real = std::fs::canonicalize(path).ok();
    let real = real.filter(|real| *real != named);
    [named].into_iter().chain(real).collect()
}

fn program(reach: &Reach) -> Result<BpfProgram, String> {
    let conditional = conditions(reach);
    let mut refused = CALLS.to_vec();
    if !reach.makes_files() {
        refused.extend(ATTRIBUTES);
    }
    if !reach.network && !reach.daemon {
        refused.extend([libc::SYS_socket, libc::SYS_connect]);
    }
    if cfg!(all(target_arch = "x86_64", target_pointer_width = "64")) {
        let with_arguments = conditional.iter().map(|(call, _)| *call);
        let all = refused.iter().copied().chain(with_arguments);
        let of_x32: Vec<i64> = all.chain(ONLY_OF_X32).map(|call| call | X32).collect();
        refused.extend(of_x32);
    }
    assemble(refused.iter(), conditional, Listed::Refused)
}

/// What the number of a call has if its arguments are those of x32.
const X32: i64 = 0x4000_0000;
/// Calls that have another number there: those that start programs among them.
const ONLY_OF_X32: std::ops::RangeInclusive<i64> = 512..=547;

/// Calls that are refused with some arguments only.
fn conditions(reach: &Reach) -> Vec<(i64, Vec<Condition>)> {
    let thread = u64::from(libc::CLONE_THREAD.unsigned_abs());
    let executable = u64::from(libc::PROT_EXEC.unsigned_abs());
    let local = u64::from(libc::AF_UNIX.unsigned_abs());
    let own = u64::from(std::process::id());
    let mut all = vec![
        (libc::SYS_clone, vec![(0, Op::MaskedEq(thread), 0)]),
        (libc::SYS_kill, vec![(0, Op::Ne, own)]),
        (libc::SYS_tgkill, vec![(0, Op::Ne, own)]),
    ];
    all.extend(IOCTLS.map(|request| (libc::SYS_ioctl, vec![(1, Op::Eq, request)])));
    if !reach.network {
        // Finding the address of a host loads libraries.
        let maps = [libc::SYS_mmap, libc::SYS_mprotect];
        all.extend(maps.map(|call| (call, vec![(2, Op::MaskedEq(executable), executable)])));
        if reach.daemon {
            all.push((libc::SYS_socket, vec![(0, Op::Ne, local)]));
        }
    }
    all
}

/// TIOCSTI, TIOCLINUX: input of a terminal, for the shell that reads it next.
const IOCTLS: [u64; 2] = [0x5412, 0x541C];

/// Calls that are refused with all arguments.
const CALLS: &[i64] = &[
    // Programs and processes. The C library makes threads without the last one, too.
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_clone3,
    // Other processes.
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_process_mrelease,
    libc::SYS_kcmp,
    libc::SYS_pidfd_open,
    libc::SYS_pidfd_getfd,
    libc::SYS_pidfd_send_signal,
    libc::SYS_tkill,
    libc::SYS_rt_sigqueueinfo,
    libc::SYS_rt_tgsigqueueinfo,
    // Mounts and namespaces.
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_open_tree,
    OPEN_TREE_ATTR,
    libc::SYS_move_mount,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_open_by_handle_at,
    // The kernel and the machine.
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_register,
    libc::SYS_io_uring_enter,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_kexec_file_load,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_acct,
    libc::SYS_syslog,
    libc::SYS_quotactl,
    libc::SYS_quotactl_fd,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_adjtimex,
    libc::SYS_clock_adjtime,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    // Keys, and code in memory.
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
    libc::SYS_personality,
    libc::SYS_pkey_mprotect,
    libc::SYS_shmat,
    // Who it is.
    libc::SYS_setuid,
    libc::SYS_setgid,
    libc::SYS_setreuid,
    libc::SYS_setregid,
    libc::SYS_setresuid,
    libc::SYS_setresgid,
    libc::SYS_setfsuid,
    libc::SYS_setfsgid,
    libc::SYS_setgroups,
    libc::SYS_capset,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_fork,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_vfork,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_iopl,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_ioperm,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_modify_ldt,
];

/// Calls that the C library does not name; new ones have the same number everywhere.
const FCHMODAT2: i64 = 452;
const SETXATTRAT: i64 = 463;
const REMOVEXATTRAT: i64 = 466;
const OPEN_TREE_ATTR: i64 = 467;
const FILE_SETATTR: i64 = 469;

/// Calls that change attributes by path, whatever paths are left.
const ATTRIBUTES: &[i64] = &[
    libc::SYS_fchmodat,
    FCHMODAT2,
    libc::SYS_fchownat,
    libc::SYS_setxattr,
    libc::SYS_lsetxattr,
    SETXATTRAT,
    libc::SYS_removexattr,
    libc::SYS_lremovexattr,
    REMOVEXATTRAT,
    FILE_SETATTR,
    libc::SYS_utimensat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_chmod,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_chown,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_lchown,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_utime,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_utimes,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_futimesat,
];

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::io::ErrorKind::PermissionDenied;
    use std::net::TcpStream;
    use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
    use std::os::unix::net::UnixStream;
    use std::process::Command;
    use std::thread;

    use super::*;

    fn is_denied<T: std::fmt::Debug>(done: std::io::Result<T>) -> bool {
        done.is_err_and(|error| error.kind() == PermissionDenied)
    }

    /// What holds for a thread that has confined itself holds for no other, and ends with it.
    fn confined(reach: &Reach, test: impl FnOnce(Held) + Send) {
        thread::scope(|scope| {
            let ended = scope.spawn(|| test(confine(reach))).join();
            ended.unwrap();
        });
    }

    #[test]
    fn nothing_but_what_was_given_can_be_opened() {
        // Not below the directory of temporary files, which is granted.
        let dir = tempfile::tempdir_in("/var/tmp").unwrap();
        let at = |name: &str| dir.path().join(name);
        for name in ["given", "image", "secret"] {
            fs::write(at(name), name).unwrap();
        }
        for name in ["out", "made"] {
            fs::create_dir(at(name)).unwrap();
        }
        std::os::unix::fs::symlink(at("secret"), at("out/link")).unwrap();
        let paths = vec![
            (at("given"), Use::Read),
            (at("image"), Use::Change),
            (at("out"), Use::Fill),
            (at("made/new"), Use::Make),
            (at("not/there"), Use::Read),
        ];
        let reach = Reach {
            paths,
            ..Reach::default()
        };
        confined(&reach, |held| {
            if !held.landlock {
                println!("skipped: this kernel has no Landlock");
                return;
            }
            assert_eq!(fs::read(at("given")).unwrap(), b"given");
            assert!(is_denied(File::options().write(true).open(at("given"))));
            fs::write(at("image"), "changed").unwrap();
            fs::create_dir_all(at("out/a/b")).unwrap();
            fs::write(at("out/a/b/file"), "").unwrap();
            fs::write(at("made/hidden"), "").unwrap();
            fs::rename(at("made/hidden"), at("made/new")).unwrap();
            for denied in ["secret", "out/link", "out/../secret"] {
                assert!(is_denied(fs::read(at(denied))), "{denied}");
            }
            assert!(is_denied(fs::write(at("other"), "")));
            assert!(is_denied(fs::remove_file(at("secret"))));
            assert!(is_denied(fs::rename(at("out/link"), at("other"))));
            assert!(is_denied(fs::read("/etc/hostname")) || !Path::new("/etc/hostname").exists());
        });
    }

    #[test]
    fn no_program_is_started_and_no_host_reached() {
        confined(&Reach::default(), |held| {
            if !held.seccomp {
                println!("skipped: this kernel has no seccomp filters");
                return;
            }
            assert!(Command::new("true").status().is_err());
            assert!(
                TcpStream::connect("127.0.0.1:9")
                    .is_err_and(|error| { error.raw_os_error() == Some(libc::ENOSYS) })
            );
            let pair = UnixStream::pair();
            assert!(pair.is_ok());
            assert!(thread::spawn(|| ()).join().is_ok());
        });
        assert!(Command::new("true").status().unwrap().success());
    }

    #[test]
    fn the_filter_is_one_the_kernel_takes() {
        for (network, daemon) in [(false, false), (false, true), (true, false)] {
            let reach = Reach {
                network,
                daemon,
                ..Reach::default()
            };
            let program = program(&reach).unwrap();
            // BPF_MAXINSNS.
            assert!((60..=4096).contains(&program.len()), "{}", program.len());
        }
    }

    #[test]
    fn attributes_and_sockets_are_left_to_those_that_need_them() {
        let dir = tempfile::tempdir_in("/var/tmp").unwrap();
        let file = dir.path().join("file");
        fs::write(&file, "").unwrap();
        let mode = || fs::set_permissions(&file, fs::Permissions::from_mode(0o600));
        let socket = || UnixStream::connect(dir.path().join("none"));
        let is_refused = |error: std::io::Error| error.raw_os_error() == Some(libc::ENOSYS);
        confined(&Reach::default(), |held| {
            if held.seccomp {
                assert!(mode().is_err_and(is_refused));
                assert!(socket().is_err_and(is_refused));
            }
        });
        let reach = Reach {
            paths: vec![(dir.path().join("new"), Use::Make)],
            daemon: true,
            ..Reach::default()
        };
        confined(&reach, |_| {
            mode().unwrap();
            assert!(!socket().is_err_and(is_refused));
        });
    }

    #[test]
    fn a_device_is_written_without_what_lies_next_to_it() {
        let made = |path: &str| {
            let reach = Reach {
                paths: vec![(path.into(), Use::Make)],
                ..Reach::default()
            };
            rules(&reach)
        };
        let has = |rules: &[Rule], path: &str| rules.iter().any(|(of, _)| of == Path::new(path));
        let of_device = made("/dev/null");
        assert!(has(&of_device, "/dev/null") && !has(&of_device, "/dev"));
        // Nor of files that were not asked for.
        assert!(!has(&of_device, &std::env::temp_dir().to_string_lossy()));
        assert!(has(&made("/var/tmp/none"), "/var/tmp"));
    }

    #[test]
    fn pipes_with_a_name_and_links_to_what_is_made_are_left() {
        let dir = tempfile::tempdir_in("/var/tmp").unwrap();
        let at = |name: &str| dir.path().join(name);
        for name in ["links", "targets"] {
            fs::create_dir(at(name)).unwrap();
        }
        fs::write(at("targets/old"), "old").unwrap();
        std::os::unix::fs::symlink(at("targets/old"), at("links/link")).unwrap();
        let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        rustix::fs::mkfifoat(rustix::fs::CWD, at("pipe"), mode).unwrap();
        let paths = vec![(at("pipe"), Use::Read), (at("links/link"), Use::Make)];
        let reach = Reach {
            paths,
            ..Reach::default()
        };
        confined(&reach, |_| {
            let pipe = File::options()
                .read(true)
                .custom_flags(libc::O_NONBLOCK)
                .open(at("pipe"));
            pipe.unwrap();
            for place in ["links", "targets"] {
                let new = at(place).join("new");
                fs::write(&new, "new").unwrap();
                fs::rename(&new, at(place).join("made")).unwrap();
            }
        });
    }
}
