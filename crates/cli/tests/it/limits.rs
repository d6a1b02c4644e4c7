//! Little memory in a control group, and images under another name than they were mounted by.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use crate::host::{
    UEXT4, assert_clean, has_tool, mke2fs, run, scratch, text, uext4_ok, unmount, unmount_lazily,
};
use crate::served::can_serve;

/// A control group with a limit of memory, for commands to run in; removed when dropped.
struct Group(PathBuf);

impl Group {
    /// A group of so many MiB; `None`, with a word why, where none can be made.
    fn new(mib: u32) -> Option<Self> {
        let name = format!("uext4-test-{}-{mib}", std::process::id());
        let top = Path::new("/sys/fs/cgroup");
        // To let groups have limits is root's.
        _ = fs::write(top.join("cgroup.subtree_control"), "+memory");
        let kinds = [
            (top.to_owned(), "memory.max"),
            (top.join("memory"), "memory.limit_in_bytes"),
        ];
        for (top, file) in kinds {
            let group = Self(top.join(&name));
            let made = fs::create_dir(&group.0).is_ok();
            if made && fs::write(group.0.join(file), format!("{mib}M")).is_ok() {
                return Some(group);
            }
        }
        println!("skipped: no control group with a limit of memory can be made here");
        None
    }

    /// A command in it.
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("sh");
        let script = "echo $$ > \"$0\"; exec \"$@\"";
        command.args(["-c", script]);
        command.arg(self.0.join("cgroup.procs")).arg(UEXT4);
        command.args(arguments);
        command
    }

    #[track_caller]
    fn ok(&self, arguments: &[&str]) {
        let output = self.command(arguments).output().unwrap();
        assert_ended(&output, arguments);
        assert_eq!(self.kills(), 0, "{arguments:?}");
    }

    /// How often the kernel has ended a process in it for want of memory.
    fn kills(&self) -> u64 {
        let texts = ["memory.events", "memory.oom_control"].map(|file| {
            let text = fs::read_to_string(self.0.join(file)).unwrap_or_default();
            let line = text.lines().find_map(|line| line.strip_prefix("oom_kill "));
            line.map_or(0, |count| count.parse::<u64>().unwrap())
        });
        texts.iter().sum()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // Its last process may be leaving it.
        for _ in 0..100 {
            if fs::remove_dir(&self.0).is_ok() || !self.0.exists() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }
}

#[track_caller]
fn assert_ended(output: &Output, arguments: &[&str]) {
    let stderr = String::from_utf8_lossy(&output.stderr);
    let status = output.status;
    assert!(status.success(), "{arguments:?}: {status}: {stderr}");
}

/// More than a limit holds: many small files, and some large ones.
fn tree(top: &Path) {
    for dir in 0..40 {
        let dir = top.join(format!("d{dir}"));
        fs::create_dir_all(&dir).unwrap();
        for file in 0..250 {
            fs::write(dir.join(format!("file-{file}")), vec![file as u8; 5000]).unwrap();
        }
        let mut file = File::create(dir.join("large")).unwrap();
        for piece in 0..5u8 {
            file.write_all(&vec![piece + 1; 1 << 20]).unwrap();
        }
    }
}

#[test]
fn commands_stay_within_the_memory_of_a_control_group() {
    if !has_tool("mke2fs") || !has_tool("tar") {
        return;
    }
    let dir = scratch();
    let at = |name: &str| dir.path().join(name);
    let Some(group) = Group::new(60) else { return };
    let [top, image, tar, out] = ["tree", "image", "tar", "out.tar"].map(at);
    tree(&top);
    run("tar", &["-C", text(&top), "-cf", text(&tar), "."]);
    mke2fs(&image, &["-t", "ext4"], 800);
    let image = text(&image);
    group.ok(&["put", image, text(&top), "/put"]);
    group.ok(&["untar", "-f", text(&tar), image, "/untar"]);
    assert_clean(Path::new(image));
    group.ok(&["rm", "-r", image, "/untar/d1", "/put"]);
    group.ok(&["check", image]);
    group.ok(&["undelete", image]);
    group.ok(&["salvage", image, "-o", text(&out)]);
    group.ok(&["build", "-q", "--base", image, "-o", text(&at("based"))]);
    group.ok(&["build", "-q", text(&tar), "-o", text(&at("built"))]);
    group.ok(&["shrink", "--min", image]);
    assert_clean(Path::new(image));
}

/// Archives whose decompressors take 64 and 128 MiB.
#[test]
fn decompressors_stay_within_the_memory_of_a_control_group() {
    if !["mke2fs", "tar", "xz", "zstd"].into_iter().all(has_tool) {
        return;
    }
    let dir = scratch();
    let at = |name: &str| dir.path().join(name);
    let [top, image, tar] = ["tree", "image", "a.tar"].map(at);
    fs::create_dir(&top).unwrap();
    let line = b"as much as the windows hold\n".repeat(1 << 16);
    let mut file = File::create(top.join("file")).unwrap();
    for _ in 0..90 {
        file.write_all(&line).unwrap();
    }
    run("tar", &["-C", text(&top), "-cf", text(&tar), "."]);
    run("xz", &["-k", "--lzma2=preset=0,dict=64MiB", text(&tar)]);
    run("zstd", &["-q", "-k", "-1", "--long=27", text(&tar)]);
    mke2fs(&image, &["-t", "ext4"], 800);
    for mib in [60, 110, 150] {
        let Some(group) = Group::new(mib) else { return };
        for archive in ["a.tar.xz", "a.tar.zst"].map(at) {
            let (image, archive) = (text(&image), text(&archive));
            let built = at("built");
            let commands: [&[&str]; 2] = [
                &["untar", "-f", archive, image, "/"],
                &["build", "-q", "-F", archive, "-o", text(&built)],
            ];
            for command in commands {
                let output = group.command(command).output().unwrap();
                let said = String::from_utf8_lossy(&output.stderr);
                let status = output.status;
                assert_eq!(group.kills(), 0, "{command:?}, {mib} MiB");
                let is_named = status.code() == Some(8)
                    && said.contains("bytes of memory")
                    && said.contains("--memory");
                assert!(
                    status.success() || is_named,
                    "{command:?}, {mib} MiB: {status}: {said}"
                );
            }
        }
    }
    // With more memory they are read.
    for archive in ["a.tar.xz", "a.tar.zst"].map(at) {
        uext4_ok(&[
            "build",
            "-q",
            "-F",
            "--memory",
            "1G",
            text(&archive),
            "-o",
            text(&at("built")),
        ]);
    }
}

#[test]
fn a_mount_under_load_stays_within_the_memory_of_a_control_group() {
    if !can_serve() {
        return;
    }
    let dir = scratch();
    let Some(group) = Group::new(100) else { return };
    let (image, place) = (dir.path().join("image"), dir.path().join("mnt"));
    mke2fs(&image, &["-t", "ext4"], 800);
    fs::create_dir(&place).unwrap();
    group.ok(&["mount", text(&image), text(&place)]);
    let filled = std::panic::catch_unwind(|| {
        tree(&place.join("tree"));
        run(
            "cp",
            &[
                "-r",
                text(&place.join("tree/d3")),
                text(&place.join("copy")),
            ],
        );
        run("sync", &["-f", text(&place)]);
        let copied = fs::read(place.join("copy/large")).unwrap();
        assert_eq!(
            (copied.len(), copied[0], copied[(5 << 20) - 1]),
            (5 << 20, 1, 5)
        );
    });
    let kills = group.kills();
    match filled {
        Ok(()) => unmount(UEXT4, &["umount", text(&place)]),
        Err(_) => unmount_lazily(&place),
    }
    assert_eq!(kills, 0);
    filled.unwrap();
    assert_clean(&image);
}

#[test]
fn a_limit_of_memory_can_be_given() {
    let dir = scratch();
    let image = dir.path().join("image");
    run(UEXT4, &["mkfs", text(&image), "64M"]);
    let image = text(&image);
    run(UEXT4, &["put", "--memory", "8M", image, UEXT4, "/it"]);
    let read = run(UEXT4, &["cat", "--memory", "2M", image, "/it"]);
    assert!(read == fs::read(UEXT4).unwrap());
    run(UEXT4, &["check", image, "--memory", "16M"]);
    let output = Command::new(UEXT4)
        .args(["ls", "--memory", "x", image])
        .output();
    assert_eq!(output.unwrap().status.code(), Some(2));
}

#[test]
fn a_mounted_image_is_found_by_what_it_is() {
    if !can_serve() || !has_tool("unshare") {
        return;
    }
    let dir = scratch();
    let at = |name: &str| dir.path().join(name);
    let [image, place] = ["image", "mnt"].map(at);
    mke2fs(&image, &["-t", "ext4"], 32);
    fs::create_dir(&place).unwrap();
    fs::create_dir(at("bound")).unwrap();
    run(UEXT4, &["mount", text(&image), text(&place)]);
    let tried = std::panic::catch_unwind(|| {
        fs::hard_link(&image, at("hard")).unwrap();
        std::os::unix::fs::symlink("image", at("symbolic")).unwrap();
        let mut names = vec![at("hard"), at("symbolic"), image.clone()];
        for (number, name) in names.iter().enumerate() {
            let file = format!("/file{number}");
            run(UEXT4, &["touch", text(name), &file]);
            assert!(place.join(&file[1..]).exists(), "{name:?}");
        }
        fs::rename(&image, at("moved")).unwrap();
        fs::remove_file(at("hard")).unwrap();
        names = vec![at("moved")];
        // What has the same file by a mount of its own, and sees no other /run.
        let inside = "mount --bind \"$1\" \"$2\"; mount -t tmpfs none /run; \"$3\" ls \"$2/moved\"";
        let (top, bound) = (dir.path(), at("bound"));
        let shell = ["-m", "sh", "-ec", inside, "sh"];
        let given = [text(top), text(&bound), UEXT4];
        let listed = run("unshare", &[&shell[..], &given].concat());
        assert_eq!(listed, run(UEXT4, &["ls", text(&names[0])]));
        assert!(String::from_utf8_lossy(&listed).contains("file2"));
    });
    unmount(UEXT4, &["umount", text(&place)]);
    tried.unwrap();
    // Mounted where this process does not see it.
    let mut inside = Command::new("unshare");
    let script = "exec \"$0\" mount -f \"$1\" \"$2\"";
    inside.args(["-m", "sh", "-c", script, UEXT4]);
    inside.args([&at("moved"), &place]);
    let mut inside = inside.stdin(Stdio::null()).spawn().unwrap();
    // The door of this image, among those of other tests.
    let door = std::os::unix::fs::MetadataExt::ino(&fs::metadata(at("moved")).unwrap());
    let door = format!(":{door:x}");
    let is_ours = |line: &str| line.contains("uext4-door-") && line.ends_with(&door);
    let mut found = false;
    for _ in 0..500 {
        let output = Command::new(UEXT4)
            .args(["touch", text(&at("moved")), "/x"])
            .output();
        let output = output.unwrap();
        let by_daemon = fs::read("/proc/net/unix").unwrap();
        let by_daemon = String::from_utf8_lossy(&by_daemon).lines().any(is_ours);
        if output.status.success() && by_daemon {
            found = true;
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    run("kill", &["-TERM", &inside.id().to_string()]);
    let ended = inside.wait().unwrap();
    assert!(found && ended.success(), "{found} {ended}");
    assert_clean(&at("moved"));
}

#[test]
fn who_has_an_image_is_named() {
    let dir = scratch();
    let image = dir.path().join("image");
    run(UEXT4, &["mkfs", text(&image), "16M"]);
    let file = File::open(&image).unwrap();
    file.lock().unwrap();
    let output = Command::new(UEXT4)
        .args(["ls", text(&image)])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    let own = format!("process {} (", std::process::id());
    assert_eq!(output.status.code(), Some(8), "{said}");
    assert!(
        said.contains(&own) || said.contains("not visible here"),
        "{said}"
    );
}
