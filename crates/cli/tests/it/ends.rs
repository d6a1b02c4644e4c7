//! How mounts end: what `umount` reports, and that no user ends the mount of another.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::host::{
    Shown, UEXT4, assert_clean, has_tool, mke2fs, run, scratch, text, uext4, uext4_ok, unmount,
    unmount_lazily, while_busy,
};
use crate::mounted::{Mount, can_mount};
use crate::mounting::USER;

/// Whether one of ours is mounted there.
fn is_mounted(dir: &Path) -> bool {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let is_it = |line: &str| {
        let mut fields = line.split(' ');
        fields.nth(4) == Some(text(dir)) && line.contains(" - fuse.uext4 ")
    };
    table.lines().any(is_it)
}

fn wait_for_end(daemon: &str) {
    let began = Instant::now();
    while Path::new("/proc").join(daemon).exists() {
        assert!(
            began.elapsed() < Duration::from_secs(60),
            "{daemon} goes on"
        );
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn umount_reports_data_that_did_not_reach_the_image() {
    if !can_mount() {
        return;
    }
    let scratch = scratch();
    let (small, dir) = (scratch.path().join("small"), scratch.path().join("mnt"));
    fs::create_dir(&small).unwrap();
    fs::create_dir(&dir).unwrap();
    // Space for what the empty file system takes, and for a part of the data.
    run(
        "mount",
        &["-t", "tmpfs", "-o", "size=12M", "none", text(&small)],
    );
    let image = small.join("image");
    mke2fs(&image, &["-t", "ext4", "-J", "size=4"], 64);
    uext4_ok(&["mount", text(&image), text(&dir)]);
    fs::write(dir.join("file"), vec![7; 20 << 20]).unwrap();
    let output = while_busy(Command::new(UEXT4).args(["umount", text(&dir)]));
    let was_mounted = is_mounted(&dir);
    unmount("umount", &[text(&small)]);
    assert_eq!(output.status.code(), Some(32), "{}", said(&output));
    assert!(said(&output).contains("not all that was written is in it"));
    assert!(!was_mounted);
}

#[test]
fn a_daemon_that_was_killed_is_no_success() {
    if !can_mount() {
        return;
    }
    let mut mount = Mount::new(&["-t", "ext4"], 32);
    fs::write(mount.dir().join("file"), vec![7; 1 << 20]).unwrap();
    let daemon = mount.daemon();
    run("kill", &["-KILL", &daemon]);
    wait_for_end(&daemon);
    let output = while_busy(Command::new(UEXT4).args(["umount", text(&mount.dir())]));
    mount.is_mounted = false;
    assert_eq!(output.status.code(), Some(32), "{}", said(&output));
    assert!(said(&output).contains("what was not fsynced may be missing"));
    assert!(!is_mounted(&mount.dir()));
    // Nothing is wrong with it, and the next time all is well.
    mount.mounted("rw").judged();
}

/// Listens where daemons of mounts do, or did once, at all numbers that the kernel may give next.
const PRETENDER: &str = "import socket, time
all = []
for number in range(20, 300):
    for rest in '', '-', '-' + 'f' * 24 + '-' + 'f' * 32:
        s = socket.socket(socket.AF_UNIX)
        try:
            s.bind(f'\\0uext4-mount-0:{number}{rest}')
        except OSError:
            continue
        s.listen()
        all.append(s)
print(flush=True)
time.sleep(3600)";

#[test]
fn umount_finds_its_daemon_if_another_process_listens_first() {
    if !can_mount() || !has_tool("python3") {
        return;
    }
    let mut pretender = Command::new("python3");
    pretender.args(["-c", PRETENDER]).stdout(Stdio::piped());
    let mut pretender = pretender.uid(USER).gid(USER).spawn().unwrap();
    let ready = pretender.stdout.as_mut().unwrap().read_exact(&mut [0]);
    let mount = Mount::new(&["-t", "ext4"], 32);
    fs::write(mount.dir().join("file"), "contents").unwrap();
    // Only its daemon knows now how it ended.
    let moved = mount.image().with_extension("moved");
    fs::rename(mount.image(), &moved).unwrap();
    let mount = mount.unmounted();
    pretender.kill().unwrap();
    pretender.wait().unwrap();
    ready.unwrap();
    fs::rename(&moved, mount.image()).unwrap();
    assert_clean(&mount.image());
}

#[test]
fn umount_waits_for_the_daemon_of_this_mount_alone() {
    if !can_mount() {
        return;
    }
    let mount = Mount::new(&["-t", "ext4"], 32).unmounted();
    let other = mount.scratch.path().join("other");
    fs::create_dir(&other).unwrap();
    let mount = mount.mounted("ro");
    let daemon = mount.daemon();
    uext4_ok(&["mount", "-o", "ro", text(&mount.image()), text(&other)]);
    let began = Instant::now();
    let mount = mount.unmounted();
    assert!(began.elapsed() < Duration::from_secs(30));
    assert!(!Path::new("/proc").join(daemon).exists());
    assert!(is_mounted(&other));
    unmount(UEXT4, &["umount", text(&other)]);
    // Renaming the image meanwhile does not matter: its daemon reports.
    let mount = mount.mounted("rw");
    fs::write(mount.dir().join("file"), "contents").unwrap();
    let moved = mount.image().with_extension("moved");
    fs::rename(mount.image(), &moved).unwrap();
    let mount = mount.unmounted();
    assert_clean(&moved);
    fs::rename(&moved, mount.image()).unwrap();
}

#[test]
fn an_image_on_a_writable_loop_device_is_not_mounted() {
    if !can_mount() {
        return;
    }
    let mount = Mount::new(&["-t", "ext4"], 16).unmounted();
    let place = mount.scratch.path().join("kernel");
    fs::create_dir(&place).unwrap();
    let shown = Shown::new(&mount.image(), &place, "rw");
    let outputs = ["ro", "rw"]
        .map(|how| uext4(&["mount", "-o", how, text(&mount.image()), text(&mount.dir())]));
    shown.end();
    let whys = ["the kernel has it mounted at", "is in use as /dev/loop"];
    for (output, why) in outputs.iter().zip(whys) {
        assert_eq!(output.status.code(), Some(32));
        assert!(said(output).contains(why), "{}", said(output));
    }
    mount.mounted("ro").judged();
}

#[test]
fn paths_that_are_no_text() {
    if !can_mount() {
        return;
    }
    let scratch = scratch();
    let name = |bytes: &[u8]| scratch.path().join(OsStr::from_bytes(bytes));
    let (image, dir) = (name(b"im,a\\ge \xFF"), name(b"m\xFEnt"));
    fs::create_dir(&dir).unwrap();
    let made = scratch.path().join("made");
    mke2fs(&made, &["-t", "ext4"], 16);
    fs::rename(made, &image).unwrap();
    let ran = |arguments: &[&OsStr]| Command::new(UEXT4).args(arguments).output().unwrap();
    let mounted = ran(&["mount".as_ref(), image.as_ref(), dir.as_ref()]);
    assert!(mounted.status.success(), "{}", said(&mounted));
    let written = fs::write(dir.join("file"), "contents");
    let ended = while_busy(Command::new(UEXT4).arg("umount").arg(&dir));
    assert!(ended.status.success(), "{}", said(&ended));
    written.unwrap();
    assert_clean(image.as_ref());
}

#[test]
fn a_signal_ends_nothing_but_ones_own_mount() {
    if !can_mount() {
        return;
    }
    let mut below = Mount::new(&["-t", "ext4"], 16);
    fs::write(below.dir().join("below"), "contents").unwrap();
    let daemon = below.daemon();
    let image = below.scratch.path().join("above");
    mke2fs(&image, &["-t", "ext4"], 16);
    uext4_ok(&["mount", "-o", "nonempty", text(&image), text(&below.dir())]);
    fs::write(below.dir().join("above"), "contents").unwrap();
    run("kill", &["-TERM", &daemon]);
    wait_for_end(&daemon);
    let read = fs::read(below.dir().join("above"));
    unmount(UEXT4, &["umount", text(&below.dir())]);
    // What is left of the lower one.
    unmount_lazily(below.dir());
    below.is_mounted = false;
    assert_eq!(read.unwrap(), b"contents");
    for image in [&image, &below.image()] {
        assert_clean(image);
    }
}

#[test]
fn a_mount_is_undone_if_its_parent_is_gone() {
    if !can_mount() {
        return;
    }
    let mut mount = Mount::new(&["-t", "ext4"], 16).unmounted();
    let (image, dir) = (mount.image(), mount.dir());
    let child = Command::new(UEXT4)
        .args(["mount", "--in-background", text(&image), text(&dir)])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn();
    let mut child = child.unwrap();
    // As when the command that started it is interrupted.
    drop(child.stdout.take());
    let status = child.wait().unwrap();
    mount.is_mounted = is_mounted(&dir);
    assert_eq!(status.code(), Some(2));
    assert!(!mount.is_mounted);
    assert_clean(&image);
    assert!(File::open(&image).unwrap().try_lock().is_ok());
}
