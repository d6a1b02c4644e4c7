//! What the kernel and the installed programs offer.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::thread;

use uext4_blockdev::host;

use super::Finding;
use crate::preload;
use crate::sandbox;
use crate::show::size_text;

/// Where the kernel shows whether FUSE may use io_uring.
const RINGS: &str = "/sys/module/fuse/parameters/enable_uring";
/// Less available memory than this leaves little for the caches of a mount.
const LITTLE_MEMORY: u64 = 128 << 20;

/// All checks of this file.
pub fn all() -> Vec<Finding> {
    let is_root = host::effective_user() == 0;
    let mut findings = vec![kernel(), device(is_root)];
    if !is_root {
        findings.push(helper(find_program("fusermount3").as_deref()));
        findings.push(other_users(read("/etc/fuse.conf").as_deref()));
    }
    findings.push(rings(
        read(RINGS).as_deref(),
        read("/proc/sys/kernel/io_uring_disabled").as_deref(),
        is_root,
    ));
    findings.push(landlock(sandbox::has_landlock()));
    findings.push(seccomp());
    findings.extend(preload::library().map(preloaded));
    findings.push(memory(read("/proc/meminfo").as_deref(), host::memory()));
    findings.push(processors());
    findings.push(mount_type());
    findings
}

fn read(path: &str) -> Option<String> {
    fs::read_to_string(path).ok()
}

fn kernel() -> Finding {
    let name = rustix::system::uname();
    Finding::ok(
        "kernel",
        format!("Linux {}", name.release().to_string_lossy()),
    )
}

/// `/dev/fuse`, which every mount opens.
fn device(is_root: bool) -> Finding {
    const DEVICE: &str = "/dev/fuse";
    let mode = match fs::metadata(DEVICE) {
        Ok(found) if found.file_type().is_char_device() => found.mode() & 0o7777,
        _ => {
            return Finding::missing(
                DEVICE,
                "does not exist",
                "as root: `modprobe fuse`; for a container: start it with `--device /dev/fuse`",
            );
        }
    };
    let opened = File::options().read(true).write(true).open(DEVICE);
    opened_device(mode, opened.map(drop), is_root)
}

fn opened_device(mode: u32, opened: io::Result<()>, is_root: bool) -> Finding {
    const DEVICE: &str = "/dev/fuse";
    match opened {
        Ok(()) if is_root && mode & 0o006 != 0o006 => Finding::note(
            DEVICE,
            format!("root can open it; mode {mode:04o} keeps other users out"),
            "for mounts by other users: `chmod 0666 /dev/fuse`",
        ),
        Ok(()) => Finding::ok(DEVICE, format!("can be opened, mode {mode:04o}")),
        Err(error) => Finding::missing(
            DEVICE,
            format!("cannot be opened, mode {mode:04o}: {error}"),
            "as root: `chmod 0666 /dev/fuse`; in a container, also allow the device (10:229)",
        ),
    }
}

/// `fusermount3`, with which users other than root mount.
fn helper(found: Option<&Path>) -> Finding {
    const NAME: &str = "fusermount3";
    let Some(path) = found else {
        return Finding::missing(
            NAME,
            "not found in PATH",
            "`apt install fuse3`, `dnf install fuse3` or `apk add fuse3`",
        );
    };
    let is_set_uid = |path: &Path| {
        let found = fs::metadata(path);
        found.is_ok_and(|found| found.uid() == 0 && found.permissions().mode() & 0o4000 != 0)
    };
    match is_set_uid(path) {
        true => Finding::ok(NAME, path.display().to_string()),
        false => Finding::missing(
            NAME,
            format!("{}: not set-user-id root", path.display()),
            format!("as root: `chmod u+s {}`", path.display()),
        ),
    }
}

/// The first executable file of this name in `PATH`.
fn find_program(name: &str) -> Option<PathBuf> {
    let dirs = std::env::var_os("PATH")?;
    std::env::split_paths(&dirs)
        .map(|dir| dir.join(name))
        .find(|path| {
            let found = fs::metadata(path);
            found.is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
        })
}

/// Whether fusermount3 lets this user share a mount.
fn other_users(config: Option<&str>) -> Finding {
    let allowed = config.is_some_and(|text| text.lines().any(|l| l.trim() == "user_allow_other"));
    match allowed {
        true => Finding::ok("allow_other", "users may share their mounts"),
        false => Finding::note(
            "allow_other",
            "only root may mount with `-o allow_other`",
            "as root: add the line `user_allow_other` to /etc/fuse.conf",
        ),
    }
}

/// FUSE requests over io_uring: fewer system calls for each request.
fn rings(parameter: Option<&str>, disabled: Option<&str>, is_root: bool) -> Finding {
    const SUBJECT: &str = "io_uring";
    let is_disabled = match disabled.map(str::trim) {
        Some("2") => true,
        Some("1") => !is_root,
        _ => false,
    };
    match parameter.map(str::trim) {
        None => Finding::note(
            SUBJECT,
            "this kernel has no FUSE over io_uring; mounts read requests from /dev/fuse",
            "Linux 6.14 or newer has it; nothing else depends on it",
        ),
        Some(_) if is_disabled => Finding::note(
            SUBJECT,
            "disabled on this machine; mounts read requests from /dev/fuse",
            "as root: `sysctl kernel.io_uring_disabled=0`",
        ),
        Some("Y" | "1") => Finding::ok(SUBJECT, "mounts use it (enable_uring is Y)"),
        Some(_) => Finding::note(
            SUBJECT,
            "off; mounts read requests from /dev/fuse",
            format!("as root: `echo Y > {RINGS}`"),
        ),
    }
}

fn landlock(is_there: bool) -> Finding {
    match is_there {
        true => Finding::ok(
            "Landlock",
            "confines commands, and daemons of mounts, to what they were given",
        ),
        false => Finding::note(
            "Landlock",
            "not available; seccomp alone confines commands and daemons of mounts",
            "use a kernel with CONFIG_SECURITY_LANDLOCK, booted with `lsm=landlock,…`",
        ),
    }
}

/// A library that may need anything is there.
fn preloaded(library: &str) -> Finding {
    Finding::note(
        "sandbox",
        format!("off for commands: {library} is preloaded, and may need anything"),
        "run what needs no faked owners without it",
    )
}

fn seccomp() -> Finding {
    match Path::new("/proc/sys/kernel/seccomp").exists() {
        true => Finding::ok(
            "seccomp",
            "limits the system calls of commands and of daemons of mounts",
        ),
        false => Finding::note(
            "seccomp",
            "this kernel has no seccomp filters; commands and daemons may make every system call",
            "use a kernel with CONFIG_SECCOMP_FILTER",
        ),
    }
}

/// What commands and mounts may take: a part of what the machine has, or this process may have.
fn memory(meminfo: Option<&str>, of_process: Option<u64>) -> Finding {
    let field = |name: &str| {
        let mut lines = meminfo?.lines();
        let line = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        let kib: u64 = line.trim().trim_end_matches("kB").trim().parse().ok()?;
        kib.checked_mul(1024)
    };
    let (Some(total), Some(available)) = (field("MemTotal"), field("MemAvailable")) else {
        return Finding::note(
            "memory",
            "not known: /proc/meminfo cannot be read",
            "limit the caches of a mount with `-o memory=SIZE`",
        );
    };
    let mut text = format!("{} available of {}", size_text(available), size_text(total));
    if let Some(most) = of_process.filter(|&most| most < total) {
        text += &format!(
            "; a control group or a resource limit leaves {} to this process",
            size_text(most)
        );
    }
    match available.min(of_process.unwrap_or(u64::MAX)) < LITTLE_MEMORY {
        false => Finding::ok("memory", text),
        true => Finding::note(
            "memory",
            text,
            "mount with `-o memory=32M`, or free some memory",
        ),
    }
}

fn processors() -> Finding {
    let count = thread::available_parallelism().map_or(1, usize::from);
    let plural = if count == 1 { "" } else { "s" };
    Finding::ok(
        "processors",
        format!("{count} processor{plural} for this process"),
    )
}

/// The links with which mount(8) finds the program.
fn mount_type() -> Finding {
    let exists = |name: &str| {
        let dirs = ["/sbin", "/usr/sbin", "/usr/bin", "/usr/local/sbin"];
        dirs.iter().any(|dir| Path::new(dir).join(name).exists())
    };
    match exists("mount.fuse.uext4") && exists("umount.fuse.uext4") {
        true => Finding::ok("mount(8)", "knows the type fuse.uext4, for fstab too"),
        false => Finding::note(
            "mount(8)",
            "does not know the type fuse.uext4; fstab lines need it",
            "packages and `make install` make the links mount.fuse.uext4 and umount.fuse.uext4 in sbin",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::super::State;
    use super::*;

    #[test]
    fn a_device_that_cannot_be_opened_is_missing() {
        let denied = || Err(io::Error::from(io::ErrorKind::PermissionDenied));
        assert_eq!(opened_device(0o600, denied(), false).state, State::Missing);
        assert_eq!(opened_device(0o666, Ok(()), false).state, State::Ok);
        assert_eq!(opened_device(0o600, Ok(()), true).state, State::Note);
    }

    #[test]
    fn fusermount3_must_exist_and_be_set_user_id() {
        assert_eq!(helper(None).state, State::Missing);
        let plain = tempfile::NamedTempFile::new().unwrap();
        assert_eq!(helper(Some(plain.path())).state, State::Missing);
    }

    #[test]
    fn rings_need_the_parameter_and_io_uring() {
        let of = |parameter, disabled, is_root| rings(parameter, disabled, is_root);
        assert_eq!(of(Some("Y\n"), Some("0\n"), false).state, State::Ok);
        assert_eq!(of(Some("Y\n"), None, false).state, State::Ok);
        assert_eq!(of(Some("Y\n"), Some("2"), true).state, State::Note);
        assert_eq!(of(Some("Y\n"), Some("1"), true).state, State::Ok);
        assert_eq!(of(Some("Y\n"), Some("1"), false).state, State::Note);
        assert!(of(Some("N\n"), None, true).remedy.unwrap().contains(RINGS));
        assert_eq!(of(None, None, true).state, State::Note);
    }

    #[test]
    fn little_memory_is_a_note() {
        let of = |available: &str| {
            let text = format!("MemTotal: 8000000 kB\nMemAvailable: {available} kB\n");
            memory(Some(&text), None).state
        };
        assert_eq!(of("7000000"), State::Ok);
        assert_eq!(of("1000"), State::Note);
        assert_eq!(of("99999999999999999999"), State::Note);
        assert_eq!(memory(None, None).state, State::Note);
        let text = "MemTotal: 8000000 kB\nMemAvailable: 7000000 kB\n";
        let of = |limit| memory(Some(text), Some(limit));
        assert_eq!(of(8_000_000 << 10).state, State::Ok);
        assert!(!of(8_000_000 << 10).text.contains("control group"));
        assert_eq!(of(1 << 30).state, State::Ok);
        assert!(of(1 << 30).text.contains("leaves 1.0 GiB"));
        assert_eq!(of(100 << 20).state, State::Note);
    }

    #[test]
    fn sharing_needs_its_own_line() {
        assert_eq!(other_users(Some("# user_allow_other\n")).state, State::Note);
        assert_eq!(other_users(Some("x\nuser_allow_other\n")).state, State::Ok);
    }
}
