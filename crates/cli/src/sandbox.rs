//! What a process gives up before it looks at what others wrote into an image: the daemon of a
//! mount here, any other command in [`command`]. Both take the same means: Landlock for paths and
//! the network, seccomp for system calls.
//!
//! ```text
//! confine   before there are threads: capabilities, and with Landlock all paths but a few
//! filter    when all threads run: with seccomp all system calls but those of serving
//! ```
//! All three hold for good. What they keep from the daemon, unmounting above all, is done by a
//! small helper process that reads no image ([`unmounter`](crate::unmounter)). Where the kernel
//! has no Landlock or no seccomp the rest holds, and `uext4 stats` shows what does.
//!
//! A system call that is not in the list is answered with ENOSYS, as by a kernel that does not
//! have it: the C library then does without (`clone3`). What is left starts no program, reaches
//! no network, traces, mounts and loads nothing, stays who it is, and maps no memory that can be
//! executed. It may report the system's log something: a datagram to a local socket. It may make
//! one file longer or shorter: the image that it writes, by the descriptor that it has of it.

pub mod command;

use std::collections::BTreeMap;
use std::os::fd::RawFd;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, Ruleset, RulesetAttr,
    RulesetCreatedAttr, RulesetError, RulesetStatus, Scope, make_bitflags, path_beneath_rules,
};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen as Len, SeccompCmpOp as Op, SeccompCondition,
    SeccompFilter, SeccompRule,
};

/// The newest rules of Landlock that are asked for; older kernels keep those they know.
const LANDLOCK: ABI = ABI::V6;

/// Read while serving: how much memory and how many processors there are, how scarce memory is,
/// what the kernel offers, in which groups a user is. What other processes keep to themselves
/// in `/proc` (memory, environment, open files) Landlock keeps from the confined, whatever paths
/// it leaves.
const READ: [&str; 2] = ["/proc", "/sys"];

/// Exists where the kernel has seccomp.
const SECCOMP: &str = "/proc/sys/kernel/seccomp/actions_avail";

/// Directories that are needed while serving.
#[derive(Clone, Copy, Debug)]
pub struct Needed<'a> {
    /// That of the socket, whose name is taken away at the end.
    pub removable: Option<&'a Path>,
    /// That of a file that is written anew, and takes the place of the one before.
    pub writable: Option<&'a Path>,
    /// Whether threads enter SCHED_IDLE and leave it again, as those of rings do.
    pub leaves_idle: bool,
}

/// What holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sandbox {
    /// No capability.
    pub capabilities: bool,
    /// No path, or only some of the rules.
    pub landlock: bool,
    /// No other system call.
    pub seccomp: bool,
}

/// Gives up capabilities and paths, for this thread and all that it starts.
///
/// Where threads must get out of SCHED_IDLE and RLIMIT_NICE cannot be raised to allow it (root
/// without CAP_SYS_RESOURCE, as in containers), CAP_SYS_NICE is kept if it is there, and if the
/// kernel has seccomp. The filter then leaves two uses of it: to choose the CPUs of any process
/// that is visible, and to put one into SCHED_OTHER, SCHED_BATCH or SCHED_IDLE.
pub fn confine(needed: Needed<'_>) -> Sandbox {
    let may_keep = || Path::new(SECCOMP).exists();
    let kept = match needed.leaves_idle && !allow_ordinary_niceness() && may_keep() {
        true => CapabilitySet::SYS_NICE,
        false => CapabilitySet::empty(),
    };
    let kept = capabilities(None).map_or(CapabilitySet::empty(), |now| now.effective & kept);
    let left = CapabilitySets {
        effective: kept,
        permitted: kept,
        inheritable: CapabilitySet::empty(),
    };
    Sandbox {
        landlock: restrict(needed).unwrap_or(false),
        capabilities: set_capabilities(None, left).is_ok() && kept.is_empty(),
        seccomp: false,
    }
}

/// Lets threads get out of SCHED_IDLE later, with the niceness that all processes begin with, if
/// this process may raise the limit. Returns whether they can.
fn allow_ordinary_niceness() -> bool {
    // What RLIMIT_NICE calls the niceness 0.
    const ORDINARY: u64 = 20;
    let now = getrlimit(Resource::Nice);
    let is_enough = now.current.is_none_or(|limit| limit >= ORDINARY);
    let limit = Rlimit {
        current: Some(ORDINARY),
        maximum: now.maximum.map(|limit| limit.max(ORDINARY)),
    };
    // It fails for an ordinary user, whose rings then have no such threads.
    is_enough || setrlimit(Resource::Nice, limit).is_ok()
}

/// Whether the kernel has Landlock. Nothing is restricted.
pub fn has_landlock() -> bool {
    let rules = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::Execute);
    rules.and_then(|rules| rules.create()).is_ok()
}

fn restrict(needed: Needed<'_>) -> Result<bool, RulesetError> {
    let mut rules: Vec<Rule> = READ.map(|dir| rule(dir, READING)).into();
    rules.push(rule("/dev/null", AccessFs::ReadFile | AccessFs::WriteFile));
    rules.extend(needed.removable.map(|dir| rule(dir, AccessFs::RemoveFile)));
    let replacing = AccessFs::WriteFile | AccessFs::MakeReg | AccessFs::RemoveFile;
    rules.extend(needed.writable.map(|dir| rule(dir, replacing)));
    leave(&rules, Network::None, Scope::from_all(LANDLOCK))
}

/// What a file or all below a directory may be used for.
type Rule = (PathBuf, BitFlags<AccessFs>);

/// Reading files and directories.
const READING: BitFlags<AccessFs> = make_bitflags!(AccessFs::{ReadFile | ReadDir});

fn rule(path: impl Into<PathBuf>, access: impl Into<BitFlags<AccessFs>>) -> Rule {
    (path.into(), access.into())
}

/// What is left of the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Network {
    None,
    All,
}

/// Gives up all paths that no rule names, for this thread and all that it starts; a path that is
/// not there is left out. False where the kernel has no Landlock.
fn leave(rules: &[Rule], network: Network, scope: BitFlags<Scope>) -> Result<bool, RulesetError> {
    let mut ruleset = Ruleset::default().handle_access(AccessFs::from_all(LANDLOCK))?;
    if network == Network::None {
        ruleset = ruleset.handle_access(AccessNet::from_all(LANDLOCK))?;
    }
    let mut created = ruleset.scope(scope)?.create()?;
    for (path, access) in rules {
        // A pipe without a name has no place in a file system, and can be opened all the same. A
        // file whose name was removed has one.
        let kind = std::fs::metadata(path).map(|found| found.file_type());
        let is_named = |path: &Path| std::fs::canonicalize(path).is_ok();
        let has_place =
            kind.is_ok_and(|kind| !(kind.is_fifo() || kind.is_socket()) || is_named(path));
        if !has_place {
            continue;
        }
        created = created.add_rules(path_beneath_rules([path], *access))?;
    }
    let status = created.restrict_self()?;
    Ok(status.ruleset != RulesetStatus::NotEnforced)
}

/// Gives up system calls, for all threads. `resizable` is the image, if it is a file that is
/// written.
pub fn filter(sandbox: Sandbox, resizable: Option<RawFd>) -> Sandbox {
    let applied = program(resizable).and_then(|program| {
        let applied = seccompiler::apply_filter_all_threads(&program);
        applied.map_err(|error| error.to_string())
    });
    Sandbox {
        seccomp: applied.is_ok(),
        ..sandbox
    }
}

fn program(resizable: Option<RawFd>) -> Result<BpfProgram, String> {
    let calls = CALLS.iter().chain(OF_ARCH);
    assemble(calls, conditions(resizable), Listed::Allowed)
}

/// What becomes of calls in a list; the others have the opposite.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Listed {
    Allowed,
    Refused,
}

/// A program of calls, and of others with some arguments.
fn assemble<'a>(
    calls: impl Iterator<Item = &'a i64>,
    conditional: Vec<(i64, Vec<Condition>)>,
    listed: Listed,
) -> Result<BpfProgram, String> {
    let arch = std::env::consts::ARCH.try_into();
    let arch = arch.map_err(|error: seccompiler::BackendError| error.to_string())?;
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = BTreeMap::new();
    for call in calls {
        rules.insert(*call, Vec::new());
    }
    for (call, conditions) in conditional {
        let conditions = conditions.into_iter().map(|(argument, operator, value)| {
            SeccompCondition::new(argument, Len::Dword, operator, value)
        });
        let all: Result<Vec<_>, _> = conditions.collect();
        let rule = all.and_then(SeccompRule::new);
        let rule = rule.map_err(|error| error.to_string())?;
        rules.entry(call).or_default().push(rule);
    }
    // OK to widen: the number of an error.
    let refused = SeccompAction::Errno(libc::ENOSYS.unsigned_abs());
    let (of_listed, of_others) = match listed {
        Listed::Allowed => (SeccompAction::Allow, refused),
        Listed::Refused => (refused, SeccompAction::Allow),
    };
    let filter = SeccompFilter::new(rules, of_others, of_listed, arch);
    let program = filter.and_then(TryInto::try_into);
    program.map_err(|error| error.to_string())
}

/// The number of an argument, and what it must be.
type Condition = (u8, Op, u64);

/// Calls that are allowed with some arguments only.
fn conditions(resizable: Option<RawFd>) -> Vec<(i64, Vec<Condition>)> {
    let thread = u64::from(libc::CLONE_THREAD.unsigned_abs());
    let executable = u64::from(libc::PROT_EXEC.unsigned_abs());
    let name = u64::from(libc::PR_SET_NAME.unsigned_abs());
    let local = u64::from(libc::AF_UNIX.unsigned_abs());
    let datagrams = u64::from(libc::SOCK_DGRAM.unsigned_abs());
    // The type of a socket, without its flags.
    let socket_type = Op::MaskedEq(0xF);
    let own = u64::from(std::process::id());
    let mut all = vec![
        (libc::SYS_tgkill, vec![(0, Op::Eq, own)]),
        (libc::SYS_clone, vec![(0, Op::MaskedEq(thread), thread)]),
        (libc::SYS_mmap, vec![(2, Op::MaskedEq(executable), 0)]),
        (libc::SYS_mprotect, vec![(2, Op::MaskedEq(executable), 0)]),
        (libc::SYS_prctl, vec![(0, Op::Eq, name)]),
        (
            libc::SYS_socket,
            vec![(0, Op::Eq, local), (1, socket_type, datagrams)],
        ),
    ];
    // Threads of a ring enter SCHED_IDLE while they serve, and leave it.
    let classes = [libc::SCHED_OTHER, libc::SCHED_BATCH, libc::SCHED_IDLE];
    let class = |class: libc::c_int| (1, Op::Eq, class.unsigned_abs().into());
    all.extend(classes.map(|it| (libc::SYS_sched_setscheduler, vec![class(it)])));
    let ioctls = IOCTLS.map(|request| (libc::SYS_ioctl, vec![(1, Op::Eq, request)]));
    all.extend(ioctls);
    let image = resizable.and_then(|number| u64::try_from(number).ok());
    all.extend(image.map(|image| (libc::SYS_ftruncate, vec![(0, Op::Eq, image)])));
    all
}

/// FIONBIO, FIOCLEX, TCGETS; BLKDISCARD, BLKZEROOUT, BLKSSZGET, BLKGETSIZE64.
const IOCTLS: [u64; 7] = [0x5421, 0x5451, 0x5401, 0x1277, 0x127F, 0x1268, 0x8008_1272];

/// Calls that are allowed with all arguments.
const CALLS: &[i64] = &[
    // Requests, and the image.
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_pread64,
    libc::SYS_preadv,
    libc::SYS_preadv2,
    libc::SYS_write,
    libc::SYS_writev,
    libc::SYS_pwrite64,
    libc::SYS_pwritev,
    libc::SYS_pwritev2,
    libc::SYS_lseek,
    libc::SYS_fsync,
    libc::SYS_fdatasync,
    libc::SYS_sync_file_range,
    libc::SYS_fallocate,
    libc::SYS_fadvise64,
    libc::SYS_readahead,
    libc::SYS_flock,
    // Rings are there before the filter: what is done by new ones it would not see.
    libc::SYS_io_uring_enter,
    libc::SYS_eventfd2,
    // Descriptors, and the few paths that Landlock leaves.
    libc::SYS_openat,
    libc::SYS_close,
    libc::SYS_dup,
    libc::SYS_dup3,
    libc::SYS_pipe2,
    libc::SYS_fcntl,
    libc::SYS_fstat,
    libc::SYS_newfstatat,
    libc::SYS_statx,
    libc::SYS_readlinkat,
    libc::SYS_unlinkat,
    libc::SYS_renameat,
    libc::SYS_renameat2,
    libc::SYS_fchmod,
    libc::SYS_getdents64,
    libc::SYS_getcwd,
    // The peer of a connection that asks for statistics.
    libc::SYS_accept4,
    libc::SYS_getsockname,
    libc::SYS_getsockopt,
    libc::SYS_setsockopt,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_sendto,
    libc::SYS_sendmsg,
    libc::SYS_shutdown,
    libc::SYS_ppoll,
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    // Memory.
    libc::SYS_brk,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_madvise,
    libc::SYS_mlock,
    // Threads, and waiting.
    libc::SYS_futex,
    libc::SYS_set_robust_list,
    libc::SYS_rseq,
    libc::SYS_membarrier,
    libc::SYS_sched_yield,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_setaffinity,
    libc::SYS_getcpu,
    libc::SYS_nanosleep,
    libc::SYS_clock_nanosleep,
    libc::SYS_clock_gettime,
    libc::SYS_clock_getres,
    libc::SYS_gettimeofday,
    libc::SYS_restart_syscall,
    libc::SYS_wait4,
    libc::SYS_waitid,
    // Signals, and the end.
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sigaltstack,
    libc::SYS_exit,
    libc::SYS_exit_group,
    // The process's own ids.
    libc::SYS_getpid,
    libc::SYS_gettid,
    libc::SYS_getuid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getegid,
    libc::SYS_uname,
    libc::SYS_sysinfo,
    libc::SYS_getrusage,
    libc::SYS_getrandom,
];

/// Calls that only this architecture has, in place of some above.
#[cfg(target_arch = "x86_64")]
const OF_ARCH: &[i64] = &[
    libc::SYS_open,
    libc::SYS_stat,
    libc::SYS_lstat,
    libc::SYS_dup2,
    libc::SYS_readlink,
    libc::SYS_unlink,
    libc::SYS_rename,
    libc::SYS_poll,
    libc::SYS_epoll_wait,
    libc::SYS_time,
];
#[cfg(not(target_arch = "x86_64"))]
const OF_ARCH: &[i64] = &[];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_filter_is_one_the_kernel_takes() {
        for resizable in [None, Some(3)] {
            let program = program(resizable).unwrap();
            // BPF_MAXINSNS.
            assert!((100..=4096).contains(&program.len()), "{}", program.len());
        }
    }

    #[test]
    fn system_calls_that_start_programs_or_change_ids_are_denied() {
        let refused = [
            libc::SYS_execve,
            libc::SYS_execveat,
            libc::SYS_connect,
            libc::SYS_ptrace,
            libc::SYS_mount,
            libc::SYS_umount2,
            libc::SYS_setuid,
            libc::SYS_bpf,
            libc::SYS_kill,
            libc::SYS_tgkill,
            libc::SYS_splice,
            libc::SYS_clone3,
            libc::SYS_memfd_create,
            libc::SYS_io_uring_setup,
            libc::SYS_io_uring_register,
            libc::SYS_ftruncate,
            libc::SYS_truncate,
        ];
        let allowed: Vec<i64> = CALLS.iter().chain(OF_ARCH).copied().collect();
        for call in refused {
            assert!(!allowed.contains(&call), "{call}");
        }
    }
}
