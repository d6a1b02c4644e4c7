//! The commands around a mount: what is refused and how that is reported, options, manual pages.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{FileExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use rustix::io::Errno;
use tempfile::TempDir;

use crate::host::{
    Loop, UEXT4, assert_clean, copy_image, debugfs_write, dumpe2fs, has_tool,
    is_fuse_open_to_users, mke2fs, run, scratch, text, uext4, uext4_ok, unmount, unmount_lazily,
    while_busy,
};
pub use crate::served::can_serve as can_mount;

/// A user who is not root, and whom every system knows: fusermount3 asks for its name.
pub const USER: u32 = 1;

/// Has a shell of USER do something.
pub fn shell_by_user(script: &str) {
    let done = Command::new("sh")
        .args(["-c", script])
        .uid(USER)
        .gid(USER)
        .output();
    failed(&done.unwrap(), 0, &[]);
}

/// A directory with an image and a place for it, both of which USER may use.
pub struct Place {
    scratch: TempDir,
}

impl Place {
    /// With an image that mke2fs makes.
    pub fn new(options: &[&str], mib: u32) -> Self {
        let scratch = scratch();
        let open = fs::Permissions::from_mode(0o755);
        fs::set_permissions(scratch.path(), open).unwrap();
        let place = Self { scratch };
        fs::create_dir(place.dir()).unwrap();
        mke2fs(&place.image(), options, mib);
        for path in [place.dir(), place.image()] {
            chown(path, Some(USER), Some(USER)).unwrap();
        }
        place
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.scratch.path().join(name)
    }

    pub fn image(&self) -> PathBuf {
        self.path("image")
    }

    pub fn dir(&self) -> PathBuf {
        self.path("mnt")
    }

    pub fn mount(&self, options: &str) {
        uext4_ok(&[
            "mount",
            "-o",
            options,
            text(&self.image()),
            text(&self.dir()),
        ]);
    }

    pub fn unmount(&self) {
        unmount(UEXT4, &["umount", text(&self.dir())]);
    }

    pub fn judge(&self) {
        assert_clean(&self.image());
    }

    /// Mounting must fail with this code and words.
    pub fn refused(&self, arguments: &[&str], code: i32, printed: &[&str]) {
        failed(&uext4(arguments), code, printed);
        let table = fs::read_to_string("/proc/self/mounts").unwrap();
        assert!(!table.contains(text(&self.dir())), "{arguments:?}");
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        unmount_lazily(self.dir());
    }
}

pub fn failed(output: &Output, code: i32, printed: &[&str]) {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{stderr}");
    for printed in printed {
        assert!(stderr.contains(printed), "{printed}: {stderr}");
    }
}

/// The command, as USER.
pub fn by_user(arguments: &[&str]) -> Command {
    let mut command = Command::new(UEXT4);
    command.args(arguments).uid(USER).gid(USER);
    command
}

/// True if USER can mount; else says that the test is skipped.
pub fn user_can_mount() -> bool {
    let can = can_mount() && has_tool("fusermount3") && is_fuse_open_to_users();
    // The test's own binary may lie where only root may look.
    let runs = by_user(&["--version"]).output().is_ok();
    if !runs {
        println!("skipped: others may not run {UEXT4}");
    }
    can && runs
}

/// The daemon of a mount.
pub fn daemon(place: &Place) -> String {
    let image = place.image();
    let found = fs::read_dir("/proc").unwrap().flatten().find(|entry| {
        let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).into_owned();
        line.contains("--in-background") && line.contains(text(&image))
    });
    found.unwrap().file_name().into_string().unwrap()
}

#[test]
fn images_that_cannot_be_mounted() {
    if !can_mount() {
        return;
    }
    let place = Place::new(&["-t", "ext4", "-b", "1024"], 16);
    let (image, dir) = (place.image(), place.dir());
    let (image, dir) = (text(&image), text(&dir));
    let sentence = "no ext2, ext3 or ext4 file system, but data of no format";
    let none = place.path("none");
    fs::write(&none, vec![7; 1 << 20]).unwrap();
    place.refused(
        &["mount", text(&none), dir],
        32,
        &[sentence, "--offset BYTES"],
    );
    place.refused(
        &["mount", "--offset", "1M", image, dir],
        32,
        &["no ext2, ext3 or ext4 file system", "uext4 scan IMAGE"],
    );
    place.refused(
        &["mount", "--partition", "3", image, dir],
        32,
        &["partition"],
    );
    let damaged = copy_image(&place.image(), "damaged");
    let file = File::options().write(true).open(&damaged).unwrap();
    // The inode table of the first group, and of the second.
    file.write_all_at(&[0xA5; 3 << 20], 2048).unwrap();
    place.refused(&["mount", text(&damaged), dir], 32, &["uext4 check IMAGE"]);
    let casefold = place.path("casefold");
    mke2fs(&casefold, &["-t", "ext4", "-O", "casefold"], 16);
    place.refused(
        &["mount", text(&casefold), dir],
        32,
        &["casefold", "uext4 mount -o ro"],
    );
    uext4_ok(&["mount", "-o", "ro", text(&casefold), dir]);
    place.unmount();
    let wrong = copy_image(&place.image(), "wrong");
    debugfs_write(&wrong, ["set_super_value state 2"]);
    // As the kernel's ext4 does: with a warning.
    let output = uext4(&["mount", text(&wrong), dir]);
    failed(&output, 0, &["errors are recorded", "uext4 repair IMAGE"]);
    place.unmount();
}

#[test]
fn wrong_directories_and_options_are_refused() {
    if !can_mount() {
        return;
    }
    let place = Place::new(&["-t", "ext4"], 16);
    let (image, dir) = (place.image(), place.dir());
    let (image, dir) = (text(&image), text(&dir));
    place.refused(
        &["mount", image, "/no/place"],
        32,
        &["No such file", "mkdir -p"],
    );
    place.refused(
        &["mount", image, image],
        32,
        &["not a directory", "the image first"],
    );
    fs::write(place.dir().join("file"), "x").unwrap();
    place.refused(&["mount", image, dir], 32, &["not empty", "-o nonempty"]);
    place.mount("nonempty");
    assert!(!place.dir().join("file").exists());
    let other = copy_image(&place.image(), "other");
    failed(
        &uext4(&["mount", text(&other), dir]),
        32,
        &["not empty", "is mounted there", "uext4 umount"],
    );
    failed(
        &uext4(&["mount", image, "/mnt"]),
        32,
        &["in use", "it is mounted at"],
    );
    place.unmount();
    fs::remove_file(place.dir().join("file")).unwrap();
    let words: [(&str, &str); 6] = [
        ("nonsense", "no such option"),
        ("data=journal", "data=ordered"),
        ("errors=retry", "must be continue, remount-ro or panic"),
        ("commit=86401", "0 to 86400"),
        ("sb=131072", "only with ro"),
        ("fakeroot,allow_other", "everybody"),
    ];
    for (options, printed) in words {
        place.refused(&["mount", "-o", options, image, dir], 1, &[printed]);
    }
    place.refused(&["mount", "--nonsense", image, dir], 1, &["--nonsense"]);
    let remount = ["mount", "-o", "remount,ro", image, dir];
    place.refused(&remount, 32, &["not mounted"]);
    place.refused(&["umount"], 1, &["DIR"]);
    place.refused(&["umount", dir], 32, &["not mounted", "findmnt"]);
    place.judge();
}

#[test]
fn what_the_kernel_has_mounted_is_left_to_it() {
    if !can_mount() {
        return;
    }
    let place = Place::new(&["-t", "ext4"], 16);
    let other = place.path("other");
    fs::create_dir(&other).unwrap();
    run(
        "mount",
        &["-o", "loop", text(&place.image()), text(&place.dir())],
    );
    let (image, dir) = (place.image(), place.dir());
    for options in ["ro", "rw"] {
        let output = uext4(&["mount", "-o", options, text(&image), text(&other)]);
        failed(&output, 32, &["mounted at", text(&dir)]);
    }
    unmount("umount", &[text(&dir)]);
    place.judge();
}

#[test]
fn nothing_to_mount_with() {
    if !user_can_mount() {
        return;
    }
    let place = Place::new(&["-t", "ext4"], 16);
    let (image, dir) = (place.image(), place.dir());
    let output = by_user(&["mount", text(&image), text(&dir)])
        .env("PATH", "/nowhere")
        .output();
    failed(&output.unwrap(), 2, &["fusermount3", "apt install fuse3"]);
    let closed = place.path("closed");
    fs::copy(&image, &closed).unwrap();
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o600)).unwrap();
    let output = by_user(&["mount", text(&closed), text(&dir)]).output();
    failed(&output.unwrap(), 1, &["Permission denied"]);
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o444)).unwrap();
    let output = by_user(&["mount", text(&closed), text(&dir)]).output();
    failed(&output.unwrap(), 1, &["make it writable", "mount -o ro"]);
    let root = place.path("root");
    fs::create_dir(&root).unwrap();
    let output = by_user(&["mount", text(&image), text(&root)]).output();
    failed(
        &output.unwrap(),
        1,
        &["fusermount3", "a directory that is yours"],
    );
    // Not where another /dev hides it.
    let scratch = TempDir::new().unwrap();
    let (image, dir) = (scratch.path().join("image"), scratch.path().join("mnt"));
    fs::copy(place.image(), &image).unwrap();
    fs::create_dir(&dir).unwrap();
    let script = format!(
        "mount -t tmpfs none /dev && mknod -m 666 /dev/null c 1 3 && {UEXT4} mount {} {}",
        text(&image),
        text(&dir)
    );
    let output = Command::new("unshare")
        .args(["-m", "sh", "-c", &script])
        .output();
    failed(&output.unwrap(), 2, &["/dev/fuse", "modprobe fuse"]);
    place.judge();
}

#[test]
fn a_device_that_is_closed_to_users_is_named_with_the_remedy() {
    if !user_can_mount() {
        return;
    }
    let place = Place::new(&["-t", "ext4"], 16);
    let script = format!(
        "mount -t tmpfs none /mnt && mknod -m 600 /mnt/fuse c 10 229 && \
         mount --bind /mnt/fuse /dev/fuse && \
         exec setpriv --reuid={USER} --regid={USER} --clear-groups {UEXT4} mount {} {}",
        text(&place.image()),
        text(&place.dir())
    );
    let output = Command::new("unshare")
        .args(["-m", "sh", "-c", &script])
        .output();
    let printed = ["/dev/fuse: Permission denied", "chmod 666 /dev/fuse"];
    failed(&output.unwrap(), 2, &printed);
    place.judge();
}

#[test]
fn an_image_whose_root_is_no_directory_is_refused() {
    if !can_mount() {
        return;
    }
    let place = Place::new(&["-t", "ext4"], 16);
    debugfs_write(&place.image(), ["set_inode_field <2> mode 0100644"]);
    let (image, dir) = (place.image(), place.dir());
    for options in ["ro", "rw"] {
        let arguments = ["mount", "-o", options, text(&image), text(&dir)];
        place.refused(&arguments, 32, &["no directory", "uext4 check"]);
    }
}

#[test]
fn a_read_only_block_device_is_refused_before_anything_is_written() {
    if !can_mount() {
        return;
    }
    let place = Place::new(&["-t", "ext4"], 16);
    let attached = Loop::with_options(&place.image(), &["-r"]).unwrap();
    let (device, dir) = (text(attached.path()), place.dir());
    let rw = uext4(&["mount", device, text(&dir)]);
    let ro = uext4(&["mount", "-o", "ro", device, text(&dir)]);
    let shown = dir.join("lost+found").exists();
    _ = while_busy(Command::new(UEXT4).args(["umount", text(&dir)]));
    let made = uext4(&["mkdir", device, "/dir"]);
    drop(attached);
    let printed = ["read-only filesystem", "mount -o ro"];
    failed(&rw, 32, &printed);
    failed(&made, 8, &printed);
    failed(&ro, 0, &[]);
    assert!(shown);
}

#[test]
fn set_id_bits_and_devices_count_only_where_root_says_so() {
    if !can_mount() {
        return;
    }
    let place = Place::new(&["-t", "ext4"], 16);
    for (options, counts) in [("rw", false), ("suid,dev", true)] {
        place.mount(options);
        let table = fs::read_to_string("/proc/self/mounts").unwrap();
        let line = table.lines().find(|line| line.contains(text(&place.dir())));
        let line = line.unwrap().to_owned();
        assert_eq!(line.contains("nosuid,nodev"), !counts, "{line}");
        let null = place.dir().join("null");
        _ = Command::new("mknod")
            .arg(&null)
            .args(["c", "1", "3"])
            .output();
        assert_eq!(File::open(&null).is_ok(), counts);
        place.unmount();
    }
    place.judge();
}

#[test]
fn a_label_is_set_through_the_mount() {
    const SCRIPT: &str = "import fcntl, os, sys; d = os.open(sys.argv[1], os.O_RDONLY); \
        fcntl.ioctl(d, 0x41009432, b'new name'.ljust(256, b'\\0')); \
        print(fcntl.ioctl(d, 0x81009431, bytes(256)).rstrip(b'\\0').decode())";
    if !can_mount() || !has_tool("python3") {
        return;
    }
    let place = Place::new(&["-t", "ext4", "-L", "old", "-b", "1024"], 16);
    place.mount("rw");
    let printed = run("python3", &["-c", SCRIPT, text(&place.dir())]);
    assert_eq!(printed, b"new name\n");
    place.unmount();
    place.judge();
    for arguments in [&["-h"][..], &["-h", "-o", "superblock=8193"]] {
        let shown = run("dumpe2fs", &[arguments, &[text(&place.image())]].concat());
        let shown = String::from_utf8_lossy(&shown).into_owned();
        let name = shown.lines().find(|line| line.contains("volume name"));
        assert!(name.unwrap().ends_with(" new name"), "{name:?}");
    }
}

#[test]
fn a_backup_superblock_is_enough_to_read() {
    if !can_mount() {
        return;
    }
    let place = Place::new(&["-t", "ext4", "-b", "1024"], 16);
    run(
        "sh",
        &[
            "-c",
            &format!(
                "echo contents | {UEXT4} put {} - /file",
                text(&place.image())
            ),
        ],
    );
    let file = File::options().write(true).open(place.image()).unwrap();
    file.write_all_at(&[0; 1024], 1024).unwrap();
    let (image, dir) = (place.image(), place.dir());
    place.refused(
        &["mount", text(&image), text(&dir)],
        32,
        &["the superblock is lost", "uext4 repair --superblock 8193"],
    );
    place.refused(
        &["mount", "-o", "ro,sb=8192", text(&image), text(&dir)],
        32,
        &["no superblock at 8192 KiB", "units of 1 KiB"],
    );
    for options in ["ro", "ro,sb=8193"] {
        place.mount(options);
        let file = place.dir().join("file");
        assert_eq!(fs::read_to_string(file).unwrap(), "contents\n");
        place.unmount();
    }
}

#[test]
fn options_of_ext4_are_taken() {
    if !can_mount() {
        return;
    }
    let place = Place::new(&["-t", "ext4", "-b", "1024"], 16);
    place.mount(
        "defaults,noauto,x-systemd.automount,nofail,user_xattr,acl,lazytime,strictatime,nodev,nosuid,\
         noexec,data=ordered,errors=remount-ro,delalloc,commit=30,nobarrier,max_dir_size_kb=4,resuid=7,\
         resgid=8,stripe=16,discard,journal_checksum,memory=32M,threads=2,dirty_ratio=20",
    );
    let dir = place.dir().join("dir");
    fs::create_dir(&dir).unwrap();
    let full = (0..10_000).find_map(|number| {
        let name = format!("a name that takes some of the room there is {number}");
        File::create(dir.join(name)).err()
    });
    assert_eq!(
        full.unwrap().raw_os_error(),
        Some(Errno::NOSPC.raw_os_error())
    );
    let table = fs::read_to_string("/proc/self/mounts").unwrap();
    let line = table.lines().find(|line| line.contains(text(&place.dir())));
    for flag in ["nodev", "nosuid", "noexec", "fuse.uext4"] {
        assert!(line.unwrap().contains(flag), "{line:?}");
    }
    place.unmount();
    place.judge();
    let plain = Place::new(&["-t", "ext4", "-O", "^metadata_csum"], 16);
    plain.refused(
        &[
            "mount",
            "-o",
            "journal_checksum",
            text(&plain.image()),
            text(&plain.dir()),
        ],
        1,
        &["has no checksums", "tune2fs"],
    );
    plain.refused(
        &[
            "mount",
            "-o",
            "noquota,usrquota",
            text(&plain.image()),
            text(&plain.dir()),
        ],
        1,
        &["-o usrquota", "has no quotas", "tune2fs"],
    );
}

#[test]
fn a_journal_is_replayed_in_memory_where_nothing_is_written() {
    if !can_mount() {
        return;
    }
    let place = Place::new(&["-t", "ext4", "-J", "size=4"], 32);
    place.mount("rw");
    let mut file = File::create(place.dir().join("file")).unwrap();
    file.write_all(b"in the log alone").unwrap();
    file.sync_all().unwrap();
    drop(file);
    let pid = daemon(&place);
    run("kill", &["-KILL", &pid]);
    while Path::new("/proc").join(&pid).exists() {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    unmount_lazily(place.dir());
    assert!(dumpe2fs(&place.image()).contains("needs_recovery"));
    let before = fs::read(place.image()).unwrap();
    place.mount("ro");
    let read = fs::read_to_string(place.dir().join("file")).unwrap();
    assert_eq!(read, "in the log alone");
    let refused = fs::write(place.dir().join("new"), "x").unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(Errno::ROFS.raw_os_error()));
    place.unmount();
    assert!(before == fs::read(place.image()).unwrap());
    place.mount("ro,noload");
    assert!(!place.dir().join("file").exists());
    place.unmount();
    assert!(before == fs::read(place.image()).unwrap());
    place.mount("rw");
    place.unmount();
    place.judge();
}

#[test]
fn an_interrupted_mount_leaves_nothing_mounted() {
    if !can_mount() {
        return;
    }
    let place = Place::new(&["-t", "ext4", "-O", "mmp"], 16);
    // As another host leaves it that still has it: this is looked at for some seconds.
    debugfs_write(&place.image(), ["set_mmp_value seq 0x1234"]);
    let (image, dir) = (place.image(), place.dir());
    let child = Command::new(UEXT4)
        .args(["mount", text(&image), text(&dir)])
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    std::thread::sleep(std::time::Duration::from_secs(1));
    run("kill", &["-INT", &child.id().to_string()]);
    failed(&child.wait_with_output().unwrap(), 8, &["interrupted"]);
    let table = fs::read_to_string("/proc/self/mounts").unwrap();
    assert!(!table.contains(text(&dir)));
}

#[test]
fn helpers_of_mount_may_be_asked_to_do_nothing() {
    if !can_mount() {
        return;
    }
    let place = Place::new(&["-t", "ext4"], 16);
    let helper = place.path("mount.fuse.uext4");
    std::os::unix::fs::symlink(UEXT4, &helper).unwrap();
    let (image, dir) = (place.image(), place.dir());
    run(text(&helper), &[text(&image), text(&dir), "-f", "-o", "rw"]);
    let table = fs::read_to_string("/proc/self/mounts").unwrap();
    assert!(!table.contains(text(&dir)));
    let output = Command::new(&helper)
        .args([text(&image), text(&dir), "-o", "nonsense"])
        .output();
    failed(&output.unwrap(), 1, &["-o nonsense"]);
}

#[test]
fn every_command_has_its_manual_page() {
    let scratch = scratch();
    let dir = scratch.path().join("man");
    uext4_ok(&["man", text(&dir)]);
    for (page, printed) in [
        ("uext4.1", "uext4"),
        ("uext4-mount.1", "max_dir_size_kb"),
        ("uext4-umount.1", "32"),
        ("uext4-stats.1", "Prometheus"),
        ("uext4-build.1", "IMAGE"),
    ] {
        let text = fs::read_to_string(dir.join(page)).unwrap();
        assert!(text.contains(printed), "{page}");
    }
    assert!(!dir.join("uext4-man.1").exists());
    let page = fs::read_to_string(dir.join("uext4.1")).unwrap();
    let names = page
        .lines()
        .filter_map(|line| line.strip_prefix(".BR uext4\\-"));
    let names: Vec<_> = names
        .map(|name| name.trim_end_matches(" (1)").replace('\\', ""))
        .collect();
    assert!(names.len() > 30, "{names:?}");
    let missing: Vec<_> = names
        .iter()
        .filter(|name| !dir.join(format!("uext4-{name}.1")).exists())
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
}
