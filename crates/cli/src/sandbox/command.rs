//! What a command gives up before it reads the first byte of an image or an archive.
//!
//! With Landlock, all paths but those that it was given ([`Reach`]), `/proc` and `/sys` to read (in
//! which other processes' secrets stay out of reach), and names of temporary files; and all of the
//! network, but for a source with a URL. With seccomp, system calls that a parser of files never
//! makes: those that start programs and processes, trace and signal others, mount, load, reach the
//! network, change who the process is or the machine, and map memory that can be executed. They are
//! answered with ENOSYS.
//!
//! What stays: the user's rights to what was given, local sockets (by which daemons of mounts take
//! commands), names and attributes of files that can be found but not opened. A new file is made
//! next to its place, so that its directory can be written. Where the kernel has no Landlock or no
//! seccomp the rest holds; nothing is given up where a library is preloaded, which may need
//! anything (fakeroot, pseudo).

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
    let program = program(network);
    let seccomp = program.is_ok_and(|program| seccompiler::apply_filter(&program).is_ok());
    Held { landlock, seccomp }
}

fn rules(reach: &Reach) -> Vec<Rule> {
    let mut rules: Vec<Rule> = READ.map(|dir| rule(dir, READING)).into();
    rules.extend(FILES.map(|file| rule(file, READING)));
    rules.extend(DEVICES.map(|device| rule(device, CHANGING)));
    rules.push(rule(std::env::temp_dir(), MAKING));
    for (path, use_of) in &reach.paths {
        match use_of {
            Use::Read => rules.push(rule(path, GIVEN)),
            Use::List => rules.push(rule(path, AccessFs::ReadDir)),
            Use::Change => rules.push(rule(path, CHANGING)),
            Use::Make => {
                rules.push(rule(path, CHANGING));
                // Nothing is made where there is no directory for it.
                let dir = above(path).next();
                rules.extend(dir.map(|dir| rule(dir, MAKING)));
            }
            Use::Fill if path.is_dir() => rules.push(rule(path, FILLING)),
            Use::Fill => {
                let mut dirs = above(path);
                rules.extend(dirs.find(|dir| dir.is_dir()).map(|dir| rule(dir, FILLING)));
            }
        }
    }
    if reach.network {
        rules.extend(FOR_NETWORK.map(|dir| rule(dir, READING)));
    }
    rules
}

/// The directory in which a file is, or is to be, and those above it; where a link is followed,
/// those of its target.
fn above(path: &Path) -> impl Iterator<Item = PathBuf> {
    let real = std::fs::canonicalize(path);
    let real = real.unwrap_or_else(|_| std::path::absolute(path).unwrap_or_else(|_| path.into()));
    let above: Vec<PathBuf> = real.ancestors().skip(1).map(Path::to_owned).collect();
    above.into_iter()
}

fn program(network: Network) -> Result<BpfProgram, String> {
    assemble(CALLS.iter(), conditions(network), Listed::Refused)
}

/// Calls that are refused with some arguments only.
fn conditions(network: Network) -> Vec<(i64, Vec<Condition>)> {
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
    if network == Network::None {
        // Finding the address of a host loads libraries.
        let maps = [libc::SYS_mmap, libc::SYS_mprotect];
        all.extend(maps.map(|call| (call, vec![(2, Op::MaskedEq(executable), executable)])));
        all.push((libc::SYS_socket, vec![(0, Op::Ne, local)]));
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
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_acct,
    libc::SYS_syslog,
    libc::SYS_quotactl,
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

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::io::ErrorKind::PermissionDenied;
    use std::net::TcpStream;
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
            network: false,
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
            let pair = std::os::unix::net::UnixStream::pair();
            assert!(pair.is_ok());
            assert!(thread::spawn(|| ()).join().is_ok());
        });
        assert!(Command::new("true").status().unwrap().success());
    }

    #[test]
    fn the_filter_is_one_the_kernel_takes() {
        for network in [Network::None, Network::All] {
            let program = program(network).unwrap();
            // BPF_MAXINSNS.
            assert!((60..=4096).contains(&program.len()), "{}", program.len());
        }
    }
}
