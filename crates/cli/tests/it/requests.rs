//! How many requests reach the daemon for each file that a program creates, counted by kind on the
//! running kernel: as root and as an ordinary user, by options of the mount.
//!
//! Prints the table (`--nocapture`), and fails where a program needs more than the limit in
//! [`LIMITS`]: then an answer of the daemon has made the kernel ask again. FORGET has no answer and
//! is not counted. A program that is missing is skipped with a sentence.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output};

use tempfile::TempDir;

use crate::host::{UEXT4, has_tool, run, scratch, text};
use crate::mounting::{Place, USER, can_mount, user_can_mount};

/// Directories of the tree, and files in each: so many that directories hardly count.
const DIRS: usize = 4;
const FILES: usize = 120;
/// Bytes of these files, in turn: half have less than two pages, as in the sources of Linux.
const SIZES: [usize; 12] = [
    300, 900, 1800, 3000, 4600, 6500, 9000, 12_500, 16_000, 22_000, 30_000, 44_000,
];

/// The user who mounts, and runs the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum User {
    Root,
    Ordinary,
}

impl User {
    fn id(self) -> u32 {
        match self {
            Self::Root => 0,
            Self::Ordinary => USER,
        }
    }

    /// Runs a program, which must succeed, and returns what it printed.
    fn run(self, program: &str, arguments: &[&str], dir: &Path) -> Vec<u8> {
        let output = Command::new(program)
            .args(arguments)
            .uid(self.id())
            .gid(self.id())
            .current_dir(dir)
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .env("HOME", "/nonexistent")
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "{program} {arguments:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        output.stdout
    }
}

/// What creates the tree in the directory it runs in, from `$1`, and the tool it needs.
struct Program {
    name: &'static str,
    tool: &'static str,
    line: &'static str,
}

const fn program(name: &'static str, tool: &'static str, line: &'static str) -> Program {
    Program { name, tool, line }
}

const PROGRAMS: [Program; 8] = [
    program("GNU tar", "tar", "tar -xf $1/all.tar"),
    program("tar -b 2048", "tar", "tar -b 2048 -xf $1/all.tar"),
    program("bsdtar", "bsdtar", "bsdtar -xf $1/all.tar"),
    program(
        "tarfile",
        "python3",
        "python3 -c \"import tarfile; tarfile.open('$1/all.tar').extractall()\"",
    ),
    program("cp -a", "cp", "cp -a $1/tree ."),
    program("cp -r", "cp", "cp -r $1/tree ."),
    program("git clone", "git", "git clone -q $1/all.bundle tree"),
    program("rsync", "rsync", "rsync -a $1/tree ."),
];

/// The most requests a file with these options, of root and of an ordinary user.
struct Limit {
    options: &'static str,
    program: &'static str,
    root: f64,
    ordinary: f64,
}

const fn limit(options: &'static str, program: &'static str, root: f64, ordinary: f64) -> Limit {
    Limit {
        options,
        program,
        root,
        ordinary,
    }
}

const LIMITS: [Limit; 29] = [
    limit("rw", "GNU tar", 12.2, 9.2),
    limit("rw", "tar -b 2048", 10.2, 7.1),
    limit("rw", "bsdtar", 10.5, 8.5),
    limit("rw", "tarfile", 11.5, 9.5),
    limit("rw", "cp -a", 8.1, 10.1),
    limit("rw", "cp -r", 6.1, 6.1),
    limit("rw", "git clone", 10.4, 10.4),
    limit("rw", "rsync", 16.7, 16.7),
    limit("noxattr", "GNU tar", 10.2, 8.2),
    limit("noxattr", "tar -b 2048", 8.1, 6.1),
    limit("noxattr", "bsdtar", 8.5, 7.5),
    limit("noxattr", "tarfile", 9.5, 8.5),
    limit("noxattr", "cp -a", 7.1, 7.1),
    limit("noxattr", "cp -r", 5.1, 5.1),
    limit("noxattr", "git clone", 9.3, 9.3),
    limit("noxattr", "rsync", 15.7, 15.7),
    limit("noxattr,noopen", "GNU tar", 9.2, 7.2),
    limit("noxattr,noopen", "tar -b 2048", 7.2, 5.1),
    limit("noxattr,noopen", "bsdtar", 7.5, 6.5),
    limit("noxattr,noopen", "tarfile", 8.5, 7.5),
    limit("noxattr,noopen", "cp -a", 6.1, 6.1),
    limit("noxattr,noopen", "cp -r", 4.1, 4.1),
    limit("noxattr,noopen", "git clone", 8.1, 8.1),
    limit("noxattr,noopen", "rsync", 12.7, 12.7),
    limit("fakeroot", "GNU tar", 11.2, 8.2),
    limit("fakeroot", "tar -b 2048", 9.2, 6.1),
    limit("noxattr,fakeroot", "GNU tar", 9.2, 7.2),
    limit("noxattr,fakeroot", "tar -b 2048", 7.1, 5.1),
    limit("noxattr,fakeroot,noopen", "tar -b 2048", 6.2, 4.1),
];

/// The tree, an archive of it, and a bundle of git if git is there.
fn source() -> TempDir {
    let scratch = scratch();
    let tree = scratch.path().join("tree");
    for number in 0..DIRS * FILES {
        let dir = tree.join(format!("dir{}", number % DIRS));
        fs::create_dir_all(&dir).unwrap();
        let text = format!("line of file {number}\n").repeat(4000);
        let len = SIZES[number % SIZES.len()];
        fs::write(dir.join(format!("file{number}.c")), &text[..len]).unwrap();
    }
    let shell = format!(
        "cd '{}'; chmod 755 .; tar -cf all.tar tree; if command -v git >/dev/null; then \
         git init -q repository; cp -r tree/. repository; cd repository; git add .; \
         git -c user.name=x -c user.email=x@y commit -q -m x; \
         git bundle create -q ../all.bundle HEAD; fi",
        text(scratch.path())
    );
    run("sh", &["-ec", &shell]);
    scratch
}

/// Requests that were answered since the mount began, by kind.
fn counted(user: User, dir: &Path) -> BTreeMap<String, u64> {
    let json = user.run(UEXT4, &["stats", "--json", text(dir)], Path::new("/"));
    let json: serde_json::Value = serde_json::from_slice(&json).unwrap();
    let kinds = json["uext4_request_seconds_count"].as_array().unwrap();
    let kinds = kinds.iter().map(|kind| {
        let name = kind["op"].as_str().unwrap().to_owned();
        // OK to truncate: a count.
        (name, kind["value"].as_f64().unwrap() as u64)
    });
    kinds.filter(|(name, _)| name != "forget").collect()
}

/// Has a program create the tree in a new mount, prints the requests a file, and returns their sum.
fn requests(user: User, options: &str, program: &Program, source: &Path) -> f64 {
    let owner = format!("root_owner={0}:{0}", user.id());
    let place = Place::new(&["-t", "ext4", "-E", &owner], 128);
    let (image, dir) = (place.image(), place.dir());
    let mount = ["mount", "-o", options, text(&image), text(&dir)];
    user.run(UEXT4, &mount, Path::new("/"));
    let before = counted(user, &dir);
    let arguments = ["-ec", program.line, "sh", text(source)];
    user.run("sh", &arguments, &dir);
    let after = counted(user, &dir);
    user.run(UEXT4, &["umount", text(&dir)], Path::new("/"));
    place.judge();
    let mut kinds: Vec<(u64, &str)> = after
        .iter()
        .map(|(name, count)| (count - before.get(name).unwrap_or(&0), &**name))
        .filter(|(count, _)| *count > 0)
        .collect();
    kinds.sort_unstable_by(|one, other| other.cmp(one));
    let a_file = |count: u64| count as f64 / (DIRS * FILES) as f64;
    let sum = a_file(kinds.iter().map(|(count, _)| count).sum());
    let kinds: Vec<String> = kinds
        .iter()
        .map(|(count, name)| format!("{name} {:.2}", a_file(*count)))
        .collect();
    println!(
        "{user:?}, {options}: {}: {sum:.2}: {}",
        program.name,
        kinds.join(", ")
    );
    sum
}

fn within_limits(user: User) {
    let source = source();
    let mut over = Vec::new();
    for program in PROGRAMS.iter().filter(|program| has_tool(program.tool)) {
        for limit in LIMITS.iter().filter(|limit| limit.program == program.name) {
            let most = match user {
                User::Root => limit.root,
                User::Ordinary => limit.ordinary,
            };
            let sum = requests(user, limit.options, program, source.path());
            if sum > most {
                let (name, options) = (program.name, limit.options);
                over.push(format!("{name}, {options}: {sum:.2} > {most}"));
            }
        }
    }
    assert!(over.is_empty(), "{user:?}: {over:?}");
}

#[test]
fn requests_a_created_file_of_root_are_within_limits() {
    if can_mount() {
        within_limits(User::Root);
    }
}

#[test]
fn requests_a_created_file_of_an_ordinary_user_are_within_limits() {
    if user_can_mount() {
        within_limits(User::Ordinary);
    }
}

/// A file of a place, with an attribute that the kernel's ext4 stored.
fn with_attribute() -> Place {
    let place = Place::new(&["-t", "ext4"], 32);
    place.mount("rw");
    fs::write(place.dir().join("file"), "text").unwrap();
    let file = place.dir().join("file");
    run("setfattr", &["-n", "user.a", "-v", "value", text(&file)]);
    place.unmount();
    place
}

/// What a tool prints about the attribute of the file.
fn attribute(place: &Place) -> Output {
    let file = place.dir().join("file");
    let arguments = ["-n", "user.a", "--only-values", text(&file)];
    Command::new("getfattr").args(arguments).output().unwrap()
}

#[test]
fn noxattr_is_refused_where_the_image_holds_attributes() {
    if !can_mount() || !has_tool("setfattr") {
        return;
    }
    let place = with_attribute();
    let (image, dir) = (place.image(), place.dir());
    for options in ["noxattr", "ro,noxattr"] {
        let arguments = ["mount", "-o", options, text(&image), text(&dir)];
        place.refused(&arguments, 1, &["-o noxattr", "inode 12", "noxattr=force"]);
    }
    for (options, is_served) in [
        ("noxattr=no", true),
        ("noxattr=auto", true),
        ("ro,noxattr=auto", true),
        ("noxattr=force", false),
    ] {
        place.mount(options);
        let shown = attribute(&place);
        assert_eq!(shown.stdout == b"value", is_served, "{options}: {shown:?}");
        let stderr = String::from_utf8_lossy(&shown.stderr);
        assert_eq!(stderr.contains("not supported"), !is_served, "{stderr}");
        assert_eq!(fs::read(dir.join("file")).unwrap(), b"text");
        place.unmount();
    }
    place.judge();
    // None is left, so it is not served where it cannot come to be.
    place.mount("rw");
    run("setfattr", &["-x", "user.a", text(&dir.join("file"))]);
    place.unmount();
    for (options, is_served) in [
        ("noxattr", false),
        ("ro,noxattr=auto", false),
        ("noxattr=auto", true),
    ] {
        place.mount(options);
        let stderr = attribute(&place).stderr;
        let stderr = String::from_utf8_lossy(&stderr);
        assert_eq!(stderr.contains("not supported"), !is_served, "{stderr}");
        place.unmount();
    }
}

#[test]
fn noopen_enforces_flags_when_data_arrive() {
    if !can_mount() || !has_tool("chattr") {
        return;
    }
    let place = Place::new(&["-t", "ext4"], 32);
    place.mount("noopen");
    let path = |name: &str| place.dir().join(name);
    for name in ["immutable", "grows", "cut"] {
        fs::write(path(name), "some text").unwrap();
    }
    run("chattr", &["+i", text(&path("immutable"))]);
    run("chattr", &["+a", text(&path("grows"))]);
    let refused = |done: io::Result<()>| {
        let error = done.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied, "{error}");
    };
    let writing = File::options().write(true).clone();
    for name in ["immutable", "grows"] {
        refused(fs::write(path(name), "other"));
        let opened = writing.open(path(name));
        refused(opened.and_then(|mut file| file.write_all(b"other")));
        refused(writing.open(path(name)).and_then(|file| file.set_len(3)));
    }
    let mut appends = File::options().append(true).open(path("grows")).unwrap();
    appends.write_all(b", more").unwrap();
    appends.sync_all().unwrap();
    fs::write(path("cut"), "x").unwrap();
    // A file without a name is there as long as it is open.
    let mut unnamed = File::open(path("cut")).unwrap();
    fs::remove_file(path("cut")).unwrap();
    let mut read = String::new();
    unnamed.read_to_string(&mut read).unwrap();
    assert_eq!(read, "x");
    drop((unnamed, appends));
    let shown = |name| fs::read_to_string(path(name)).unwrap();
    assert_eq!(shown("immutable"), "some text");
    assert_eq!(shown("grows"), "some text, more");
    place.unmount();
    place.mount("rw");
    assert_eq!(shown("grows"), "some text, more");
    place.unmount();
    place.judge();
}

#[test]
fn noopen_lets_the_creator_write_a_file_that_it_could_not_open() {
    if !user_can_mount() {
        return;
    }
    let place = Place::new(&["-t", "ext4", "-E", "root_owner=1:1"], 32);
    let (image, dir) = (place.image(), place.dir());
    let user = User::Ordinary;
    let mount = ["mount", "-o", "noopen", text(&image), text(&dir)];
    user.run(UEXT4, &mount, Path::new("/"));
    // The second file is not there for a caller that wants it to be new, nor may it be opened.
    let lines = "umask 333; echo text > one; test \"$(cat one)\" = text; ! echo more >> one; \
                 set -C; ! echo other > one; test \"$(stat -c %a one)\" = 444";
    user.run("sh", &["-c", &format!("set -e; {lines}")], &dir);
    user.run(UEXT4, &["umount", text(&dir)], Path::new("/"));
    place.judge();
}
