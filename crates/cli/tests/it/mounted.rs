//! Mounts: what programs do to them, judged by e2fsck and by the kernel's own ext4.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, CWD, FallocateFlags, Mode, OFlags, RenameFlags, XattrFlags};
use rustix::io::Errno;
use tempfile::TempDir;

use crate::host::{
    Shown, UEXT4, assert_clean, mke2fs, run, scratch, text, uext4, uext4_ok, unmount,
    unmount_lazily,
};
pub use crate::served::can_serve as can_mount;
use crate::served::daemon_of;

/// An image, and where it is mounted.
pub struct Mount {
    pub scratch: TempDir,
    pub is_mounted: bool,
}

impl Mount {
    pub fn new(options: &[&str], mib: u32) -> Self {
        Self::with(options, mib, "rw")
    }

    /// A new image, mounted with options.
    pub fn with(options: &[&str], mib: u32, mounting: &str) -> Self {
        let mount = Self {
            scratch: scratch(),
            is_mounted: false,
        };
        fs::create_dir(mount.dir()).unwrap();
        mke2fs(&mount.image(), options, mib);
        mount.mounted(mounting)
    }

    /// The image.
    pub fn image(&self) -> PathBuf {
        self.scratch.path().join("image")
    }

    /// Where it is mounted.
    pub fn dir(&self) -> PathBuf {
        self.scratch.path().join("mnt")
    }

    /// Mounts it.
    pub fn mounted(mut self, options: &str) -> Self {
        uext4_ok(&[
            "mount",
            "-o",
            options,
            text(&self.image()),
            text(&self.dir()),
        ]);
        self.is_mounted = true;
        self
    }

    /// Unmounts it.
    pub fn unmounted(mut self) -> Self {
        unmount(UEXT4, &["umount", text(&self.dir())]);
        self.is_mounted = false;
        self
    }

    /// Unmounts; nothing may be wrong then.
    pub fn judged(self) -> Self {
        let mount = self.unmounted();
        assert_clean(&mount.image());
        mount
    }

    /// Shows the image as the kernel's own ext4 does.
    fn shown_by_kernel(&self, f: impl FnOnce(&Path)) {
        let place = self.scratch.path().join("kernel");
        fs::create_dir_all(&place).unwrap();
        let shown = Shown::new(&self.image(), &place, "ro");
        f(&place);
        shown.end();
    }

    /// Another program has unmounted it.
    pub fn is_gone(&mut self) {
        self.is_mounted = false;
    }

    /// The process that serves it.
    pub fn daemon(&self) -> String {
        daemon_of(&self.image())
    }
}

/// Waits until a daemon has ended.
pub fn wait_for_end(daemon: &str) {
    let began = Instant::now();
    while Path::new("/proc").join(daemon).exists() {
        assert!(began.elapsed() < Duration::from_secs(60), "{daemon} lives");
        std::thread::sleep(Duration::from_millis(5));
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        if self.is_mounted {
            _ = uext4(&["umount", text(&self.dir())]);
            unmount_lazily(self.dir());
        }
    }
}

/// A tree of this repository's own sources, some thousands of lines in some hundreds of files.
fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../ext4")
}

fn same_trees(one: &Path, other: &Path) {
    run("diff", &["-r", "--no-dereference", text(one), text(other)]);
}

#[test]
fn a_tree_is_copied_and_is_the_same_everywhere() {
    if !can_mount() {
        return;
    }
    let mount = Mount::new(&["-t", "ext4"], 128);
    let copy = mount.dir().join("copy");
    run("cp", &["-a", text(&sources()), text(&copy)]);
    same_trees(&sources(), &copy);
    let again = mount.dir().join("again");
    run("cp", &["-a", text(&copy), text(&again)]);
    run("rm", &["-rf", text(&copy)]);
    let mount = mount.judged();
    mount.shown_by_kernel(|place| same_trees(&sources(), &place.join("again")));
    let mount = mount.mounted("ro");
    same_trees(&sources(), &mount.dir().join("again"));
    mount.judged();
}

#[test]
fn names_links_and_files_without_names() {
    if !can_mount() {
        return;
    }
    let mount = Mount::new(&["-t", "ext4"], 64);
    let dir = mount.dir();
    let at = |name: &str| dir.join(name);
    fs::write(at("a"), "a").unwrap();
    fs::write(at("b"), "bb").unwrap();
    fs::hard_link(at("a"), at("link")).unwrap();
    assert_eq!(fs::metadata(at("a")).unwrap().nlink(), 2);
    symlink("a", at("soft")).unwrap();
    assert_eq!(fs::read_to_string(at("soft")).unwrap(), "a");
    let refused = rustix::fs::renameat_with(CWD, at("a"), CWD, at("b"), RenameFlags::NOREPLACE);
    assert_eq!(refused, Err(Errno::EXIST));
    rustix::fs::renameat_with(CWD, at("a"), CWD, at("b"), RenameFlags::EXCHANGE).unwrap();
    assert_eq!(fs::read_to_string(at("a")).unwrap(), "bb");
    // Unlinked, it lives as long as it is open.
    let mut open = File::options()
        .read(true)
        .write(true)
        .open(at("b"))
        .unwrap();
    fs::remove_file(at("b")).unwrap();
    fs::remove_file(at("link")).unwrap();
    open.write_all(b"still here").unwrap();
    open.seek(SeekFrom::Start(0)).unwrap();
    let mut read = String::new();
    open.read_to_string(&mut read).unwrap();
    assert_eq!(
        (read.as_str(), open.metadata().unwrap().nlink()),
        ("still here", 0)
    );
    drop(open);
    // Without a name at first.
    let flags = OFlags::TMPFILE | OFlags::RDWR;
    let unnamed = rustix::fs::open(&dir, flags, Mode::from_raw_mode(0o600)).unwrap();
    let unnamed = File::from(unnamed);
    unnamed.write_all_at(b"named later", 0).unwrap();
    let number = std::os::fd::AsRawFd::as_raw_fd(&unnamed);
    let path = format!("/proc/self/fd/{number}");
    rustix::fs::linkat(CWD, path, CWD, at("named"), AtFlags::SYMLINK_FOLLOW).unwrap();
    assert_eq!(fs::read_to_string(at("named")).unwrap(), "named later");
    drop(unnamed);
    fs::create_dir_all(at("x/y/z")).unwrap();
    assert!(fs::remove_dir(at("x")).is_err());
    fs::rename(at("x/y"), at("y")).unwrap();
    fs::remove_dir_all(at("y")).unwrap();
    // Numbers are those of the directory.
    for entry in fs::read_dir(&dir).unwrap().flatten() {
        let number = rustix::fs::lstat(entry.path()).unwrap().st_ino;
        assert_eq!(std::os::unix::fs::DirEntryExt::ino(&entry), number);
    }
    mount.judged();
}

#[test]
fn attributes_of_every_length() {
    if !can_mount() {
        return;
    }
    let mount = Mount::new(&["-t", "ext4", "-b", "4096"], 64);
    let dir = mount.dir();
    let file = dir.join("file");
    fs::write(&file, "x").unwrap();
    let none = XattrFlags::empty();
    for len in [0, 10, 3000] {
        let value = vec![7; len];
        rustix::fs::setxattr(&file, "user.value", &value, none).unwrap();
        let mut read = vec![0; 4096];
        let got = rustix::fs::getxattr(&file, "user.value", &mut read[..]).unwrap();
        assert_eq!(read[..got], value);
    }
    let mut names = vec![0; 4096];
    let len = rustix::fs::listxattr(&file, &mut names[..]).unwrap();
    assert_eq!(&names[..len], b"user.value\0");
    let mut read = [0; 64];
    let internal = rustix::fs::getxattr(&file, "system.data", &mut read[..]);
    assert_eq!(internal, Err(Errno::OPNOTSUPP));
    let mount = mount.judged();
    mount.shown_by_kernel(|place| {
        let mut read = [0; 4096];
        let len = rustix::fs::getxattr(place.join("file"), "user.value", &mut read[..]);
        assert_eq!(len, Ok(3000));
    });
}

#[test]
fn acls_special_bits_and_flags() {
    if !can_mount() {
        return;
    }
    let mount = Mount::new(&["-t", "ext4"], 64);
    let dir = mount.dir();
    let none = XattrFlags::empty();
    let file = dir.join("file");
    fs::write(&file, "x").unwrap();
    // Inherited from the directory: version 2; owner, user 1234, group, mask, others.
    let mut acl = vec![2u8, 0, 0, 0];
    for (tag, permissions, id) in [
        (1u8, 7u8, u32::MAX),
        (2, 6, 1234),
        (4, 5, u32::MAX),
        (16, 7, u32::MAX),
        (32, 0, u32::MAX),
    ] {
        acl.extend([tag, 0, permissions, 0]);
        acl.extend(id.to_le_bytes());
    }
    let sub = dir.join("sub");
    fs::create_dir(&sub).unwrap();
    rustix::fs::setxattr(&sub, "system.posix_acl_default", &acl, none).unwrap();
    let made = sub.join("made");
    fs::write(&made, "x").unwrap();
    assert_eq!(
        fs::metadata(&made).unwrap().permissions().mode() & 0o777,
        0o660
    );
    let mut read = [0; 200];
    let len = rustix::fs::getxattr(&made, "system.posix_acl_access", &mut read[..]).unwrap();
    assert_eq!(len, acl.len());
    // Root keeps set-user-id when it writes.
    fs::set_permissions(&file, fs::Permissions::from_mode(0o6755)).unwrap();
    fs::write(&file, "y").unwrap();
    assert_eq!(
        fs::metadata(&file).unwrap().permissions().mode() & 0o7777,
        0o6755
    );
    std::os::unix::fs::chown(&file, Some(5), Some(6)).unwrap();
    assert_eq!(
        fs::metadata(&file).unwrap().permissions().mode() & 0o7777,
        0o755
    );
    assert!(fs::metadata(&file).unwrap().created().is_ok());
    let flags = rustix::fs::ioctl_getflags(File::open(&file).unwrap()).unwrap();
    let wanted = flags | rustix::fs::IFlags::NODUMP;
    let changed = || {
        let now = fs::metadata(&file).unwrap();
        (now.ctime(), now.ctime_nsec())
    };
    let before = changed();
    rustix::fs::ioctl_setflags(File::open(&file).unwrap(), wanted).unwrap();
    assert!(before < changed());
    assert_eq!(
        rustix::fs::ioctl_getflags(File::open(&file).unwrap()),
        Ok(wanted)
    );
    let mount = mount.judged();
    mount.shown_by_kernel(|place| {
        let mut read = [0; 4096];
        let len = rustix::fs::getxattr(
            place.join("sub/made"),
            "system.posix_acl_access",
            &mut read[..],
        );
        assert_eq!(len, Ok(acl.len()));
    });
}

#[test]
fn ranges_holes_and_mappings() {
    if !can_mount() {
        return;
    }
    let mount = Mount::new(&["-t", "ext4"], 128);
    let path = mount.dir().join("file");
    let file = File::options()
        .read(true)
        .write(true)
        .create_new(true)
        .open(&path)
        .unwrap();
    let data: Vec<u8> = (0..1u32 << 20).map(|at| (at / 5 % 251) as u8).collect();
    file.write_all_at(&data, 0).unwrap();
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    rustix::fs::fallocate(&file, punch, 65_536, 131_072).unwrap();
    let seek = |from| rustix::fs::seek(&file, from);
    assert_eq!(seek(rustix::fs::SeekFrom::Hole(0)), Ok(65_536));
    assert_eq!(seek(rustix::fs::SeekFrom::Data(65_536)), Ok(196_608));
    rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, 4 << 20).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 4 << 20);
    assert!(file.metadata().unwrap().blocks() >= 8192);
    rustix::fs::fallocate(&file, FallocateFlags::ZERO_RANGE, 0, 4096).unwrap();
    file.sync_all().unwrap();
    let copy = File::create_new(mount.dir().join("copy")).unwrap();
    let mut offset = 196_608;
    let copied = rustix::fs::copy_file_range(&file, Some(&mut offset), &copy, None, 100_000);
    assert_eq!(copied, Ok(100_000));
    assert_eq!(
        fs::read(mount.dir().join("copy")).unwrap(),
        data[196_608..296_608]
    );
    let script = "import mmap,sys\nf=open(sys.argv[1],'r+b')\nm=mmap.mmap(f.fileno(),0)\n\
                  assert m[300000:300016]==f.seek(300000) and 0 or True\nm[500000:500005]=b'hello'\n\
                  f.seek(500000)\nassert f.read(5)==b'hello'\nm.flush()\nm.close()\n";
    if Command::new("python3").arg("-V").output().is_ok() {
        run("python3", &["-c", script, text(&path)]);
        let mut read = [0; 5];
        file.read_exact_at(&mut read, 500_000).unwrap();
        assert_eq!(&read, b"hello");
    }
    drop((file, copy));
    let mut expected = data;
    expected[..4096].fill(0);
    expected[65_536..196_608].fill(0);
    let mount = mount.judged();
    mount.shown_by_kernel(|place| {
        let mut read = fs::read(place.join("file")).unwrap();
        read.truncate(1 << 20);
        read[500_000..500_005].copy_from_slice(&expected[500_000..500_005]);
        assert!(read == expected);
    });
}

#[test]
fn databases_and_repositories() {
    if !can_mount() {
        return;
    }
    let mount = Mount::new(&["-t", "ext4"], 128);
    let dir = mount.dir();
    if Command::new("sqlite3").arg("-version").output().is_ok() {
        for mode in ["delete", "wal"] {
            let base = dir.join(mode);
            let script = format!(
                "pragma journal_mode={mode}; pragma synchronous=full; pragma mmap_size=1048576; \
                 create table t(a integer primary key, b); \
                 with recursive n(i) as (select 1 union all select i+1 from n where i<5000) \
                 insert into t select i, hex(randomblob(100)) from n; \
                 delete from t where a%3=0; update t set b=a; pragma integrity_check; \
                 select count(*), sum(b) from t;"
            );
            let printed = run("sqlite3", &[text(&base), &script]);
            let printed = String::from_utf8(printed).unwrap();
            assert!(printed.ends_with("ok\n3334|8336667\n"), "{printed}");
        }
    }
    if Command::new("git").arg("--version").output().is_ok() {
        let repository = dir.join("repository");
        let git = |arguments: &[&str]| {
            let mut all = vec![
                "-C",
                text(&repository),
                "-c",
                "user.name=x",
                "-c",
                "user.email=x@y",
            ];
            all.extend(arguments);
            run("git", &all)
        };
        fs::create_dir(&repository).unwrap();
        git(&["init", "-q"]);
        run(
            "cp",
            &["-r", text(&sources().join("src")), text(&repository)],
        );
        git(&["add", "."]);
        git(&["commit", "-q", "-m", "all"]);
        git(&["gc", "-q"]);
        git(&["fsck", "--full", "--strict"]);
        assert!(git(&["status", "--porcelain"]).is_empty());
    }
    mount.judged();
}

#[test]
fn a_read_only_mount_writes_nothing() {
    if !can_mount() {
        return;
    }
    let mount = Mount::new(&["-t", "ext4"], 64);
    fs::write(mount.dir().join("file"), "contents").unwrap();
    let mount = mount.unmounted();
    let before = fs::read(mount.image()).unwrap();
    let mut permissions = fs::metadata(mount.image()).unwrap().permissions();
    permissions.set_readonly(true);
    fs::set_permissions(mount.image(), permissions).unwrap();
    let mount = mount.mounted("ro");
    assert_eq!(
        fs::read_to_string(mount.dir().join("file")).unwrap(),
        "contents"
    );
    let refused = fs::write(mount.dir().join("new"), "x").unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(Errno::ROFS.raw_os_error()));
    // Others may read it too.
    uext4_ok(&["ls", text(&mount.image()), "/"]);
    let mount = mount.unmounted();
    assert!(before == fs::read(mount.image()).unwrap());
}

#[test]
fn a_signal_makes_everything_durable() {
    if !can_mount() {
        return;
    }
    let mut mount = Mount::new(&["-t", "ext4"], 64);
    let mut open = File::create_new(mount.dir().join("open")).unwrap();
    open.write_all(&[9; 100_000]).unwrap();
    fs::write(mount.dir().join("file"), vec![5; 1 << 20]).unwrap();
    let daemon = mount.daemon();
    run("kill", &["-TERM", &daemon]);
    wait_for_end(&daemon);
    mount.is_mounted = false;
    assert!(open.write_all(b"x").is_err());
    assert_clean(&mount.image());
    mount.shown_by_kernel(|place| {
        assert_eq!(fs::read(place.join("open")).unwrap(), [9; 100_000]);
        assert_eq!(fs::read(place.join("file")).unwrap(), vec![5; 1 << 20]);
    });
}

#[test]
fn what_was_fsynced_survives_the_daemons_death() {
    if !can_mount() {
        return;
    }
    let mut mount = Mount::new(&["-t", "ext4", "-J", "size=4"], 64);
    let mut durable: Vec<(PathBuf, Vec<u8>)> = Vec::new();
    for round in 0..5u8 {
        let busy = Command::new("sh")
            .args([
                "-c",
                "cd \"$0\" && while :; do mkdir -p d && touch d/a d/b && mv d/a d/c; rm -r d; done",
            ])
            .arg(mount.dir())
            .stderr(Stdio::null())
            .spawn();
        let mut busy = busy.unwrap();
        for number in 0..20u8 {
            let name = PathBuf::from(format!("{round}-{number}"));
            let data = vec![round.wrapping_mul(31) ^ number; 5000 + 700 * usize::from(number)];
            let mut file = File::create_new(mount.dir().join(&name)).unwrap();
            file.write_all(&data).unwrap();
            file.sync_all().unwrap();
            durable.push((name, data));
            fs::write(mount.dir().join("scratch"), vec![number; 50_000]).unwrap();
        }
        let daemon = mount.daemon();
        run("kill", &["-KILL", &daemon]);
        while Path::new("/proc").join(&daemon).exists() {
            std::thread::sleep(Duration::from_millis(5));
        }
        busy.kill().unwrap();
        busy.wait().unwrap();
        unmount_lazily(mount.dir());
        mount.is_mounted = false;
        mount = mount.mounted("rw");
        for (name, data) in &durable {
            assert!(
                fs::read(mount.dir().join(name)).unwrap() == *data,
                "{}",
                name.display()
            );
        }
        mount = mount.judged().mounted("rw");
    }
    mount.judged();
}

#[test]
fn as_mount_calls_its_helpers() {
    if !can_mount() {
        return;
    }
    let mount = Mount::new(&["-t", "ext4"], 16);
    fs::write(mount.dir().join("file"), "contents").unwrap();
    let mut mount = mount.unmounted();
    let helper = mount.scratch.path().join("mount.fuse.uext4");
    symlink(env!("CARGO_BIN_EXE_uext4"), &helper).unwrap();
    let (image, dir) = (mount.image(), mount.dir());
    run(
        text(&helper),
        &[
            text(&image),
            text(&dir),
            "-n",
            "-o",
            "ro,noauto,x-systemd.automount",
        ],
    );
    mount.is_mounted = true;
    assert_eq!(
        fs::read_to_string(mount.dir().join("file")).unwrap(),
        "contents"
    );
    mount.judged();
}

#[test]
fn a_refused_mount_prints_one_sentence() {
    if !can_mount() {
        return;
    }
    let mount = Mount::new(&["-t", "ext4"], 16);
    let (image, dir) = (mount.image(), mount.dir());
    let other = mount.scratch.path().join("other");
    fs::create_dir(&other).unwrap();
    let empty = mount.scratch.path().join("empty");
    fs::write(&empty, vec![0; 1 << 20]).unwrap();
    let cases: [(&[&str], i32, &str); 7] = [
        (
            &["mount", text(&image), text(&other)],
            32,
            "in use by another program",
        ),
        (
            &["mount", "-o", "ro", text(&image), text(&other)],
            32,
            "it is mounted at",
        ),
        (&["mount", text(&empty), text(&other)], 32, "but zeroes"),
        (&["mount", "/no/image", text(&other)], 32, "No such file"),
        (
            &["mount", "-o", "nonsense", text(&image), text(&other)],
            1,
            "-o nonsense",
        ),
        (&["umount", text(&other)], 32, "not mounted"),
        (&["mount", text(&image)], 1, "DIR"),
    ];
    for (arguments, code, said) in cases {
        let output = uext4(arguments);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {stderr}");
        assert!(stderr.contains(said), "{arguments:?}: {stderr}");
    }
    let busy = File::open(&dir).unwrap();
    let output = uext4(&["umount", text(&dir)]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains("in use"), "{stderr}");
    drop(busy);
    let mount = mount.unmounted();
    for place in ["/no/dir", text(&empty)] {
        let output = uext4(&["mount", text(&image), place]);
        assert_eq!(output.status.code(), Some(32));
    }
    assert_clean(&mount.image());
}
