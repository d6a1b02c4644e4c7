//! Debian's own programs at work on a mount, by root and by an ordinary user with `fusermount3`:
//! all of them must be content, the image sound afterwards, and the kernel's ext4 must show the
//! same tree.
//!
//! Over each transport; quick by default, with `UEXT4_LONG=1` each works for long. A program that
//! is not there is said to be skipped.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;

use crate::host::{
    Shown, UEXT4, assert_clean, is_fuse_open_to_users, is_long, mke2fs, run, scratch, text,
    unmount, unmount_lazily,
};
use crate::served::daemon_of;
use crate::transport::{Transport, over_each};

/// `no_user`.
const ORDINARY: u32 = 65_534;

/// The user who mounts, and works there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Who {
    Root,
    Ordinary,
}

/// An image of a user, mounted by that user.
struct Place {
    who: Who,
    transport: Transport,
    scratch: TempDir,
    mounted: bool,
}

/// The first for quick runs, the second for long ones.
fn amount(quick: u32, long: u32) -> String {
    if is_long() { long } else { quick }.to_string()
}

fn has(program: &str) -> bool {
    let found = Command::new("sh")
        .args(["-c", &format!("command -v {program}")])
        .output();
    let found = found.unwrap().status.success();
    if !found {
        println!("skipped: needs {program}");
    }
    found
}

impl Place {
    /// `None`, with a word why, where this cannot be mounted.
    fn new(who: Who, transport: Transport) -> Option<Self> {
        if !transport.can_serve() || !has("setpriv") || !has("fusermount3") {
            return None;
        }
        if who == Who::Ordinary && !is_fuse_open_to_users() {
            return None;
        }
        let mut place = Self {
            who,
            transport,
            scratch: scratch(),
            mounted: false,
        };
        let open = fs::Permissions::from_mode(0o755);
        fs::set_permissions(place.scratch.path(), open).unwrap();
        // Others cannot reach it everywhere.
        fs::copy(UEXT4, place.at("uext4")).unwrap();
        let id = place.id();
        let owner = format!("root_owner={id}:{id}");
        let mib = if is_long() { 16_384 } else { 4096 };
        mke2fs(&place.at("image"), &["-t", "ext4", "-E", &owner], mib);
        for name in ["mnt", "home", "from", "back"] {
            fs::create_dir(place.at(name)).unwrap();
            chown(place.at(name), Some(id), Some(id)).unwrap();
        }
        chown(place.at("image"), Some(id), Some(id)).unwrap();
        let (command, image) = (place.at("uext4"), place.at("image"));
        let (dir, options) = (place.dir(), transport.with("rw"));
        let arguments = ["mount", "-o", &options, text(&image), text(&dir)];
        transport.mount(|| place.run(text(&command), &arguments));
        place.mounted = true;
        transport.assert_serves(&daemon_of(&image));
        Some(place)
    }

    fn id(&self) -> u32 {
        match self.who {
            Who::Root => 0,
            Who::Ordinary => ORDINARY,
        }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.scratch.path().join(name)
    }

    fn dir(&self) -> PathBuf {
        self.at("mnt")
    }

    /// Runs a program as who it is.
    fn output(&self, program: &str, arguments: &[&str]) -> Output {
        let id = self.id();
        let mut command = Command::new("setpriv");
        command.args([format!("--reuid={id}"), format!("--regid={id}")]);
        command.args(["--clear-groups", program]).args(arguments);
        command.env("HOME", self.at("home")).current_dir("/");
        // So that git accepts files of another user.
        let config = [
            ("COUNT", "1"),
            ("KEY_0", "safe.directory"),
            ("VALUE_0", "*"),
        ];
        for (name, value) in config {
            command.env(format!("GIT_CONFIG_{name}"), value);
        }
        command.output().unwrap()
    }

    fn run(&self, program: &str, arguments: &[&str]) -> String {
        let output = self.output(program, arguments);
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(
            output.status.success(),
            "{:?} over {:?}: {program} {arguments:?}: {}\n{printed}{}",
            self.who,
            self.transport,
            output.status,
            String::from_utf8_lossy(&output.stderr)
        );
        printed
    }

    /// Runs lines of shell in the mount; the first that fails ends them.
    fn shell(&self, lines: &str) -> String {
        let begin = format!("set -eu; cd '{}'; ", text(&self.dir()));
        self.run("sh", &["-c", &(begin + lines)])
    }

    /// All that can be seen of a tree, but for times of access.
    fn seen(&self, dir: &Path, root: bool) -> String {
        let lines = format!(
            "cd '{}'; export LC_ALL=C; \
             find . -path ./lost+found -prune -o -printf '%P %y %m %U %G %n %s %l %T@ %C@\\n' | sort; \
             find . -path ./lost+found -prune -o -type f -print0 | sort -z | xargs -0 -r sha256sum; \
             find . -path ./lost+found -prune -o -print0 | sort -z | xargs -0 -r getfattr -h -d -m '^user'; \
             find . -path ./lost+found -prune -o ! -type l -print0 | sort -z | xargs -0 -r getfacl -n",
            text(dir)
        );
        match root {
            true => String::from_utf8_lossy(&run("sh", &["-c", &lines])).into_owned(),
            false => self.run("sh", &["-c", &lines]),
        }
    }

    /// Unmounts; the image must be sound, and the kernel must show what the mount showed.
    fn judged(mut self) {
        let ours = self.seen(&self.dir(), false);
        let mut umount = vec![
            "--clear-groups".to_owned(),
            text(&self.at("uext4")).to_owned(),
        ];
        let id = self.id();
        umount.splice(0..0, [format!("--reuid={id}"), format!("--regid={id}")]);
        umount.extend(["umount".to_owned(), text(&self.dir()).to_owned()]);
        let umount: Vec<&str> = umount.iter().map(|part| &**part).collect();
        unmount("setpriv", &umount);
        self.mounted = false;
        assert_clean(&self.at("image"));
        let shown = Shown::new(&self.at("image"), &self.dir(), "ro");
        let theirs = self.seen(&self.dir(), true);
        shown.end();
        assert!(ours.lines().count() > 100, "nothing was there");
        let different = ours
            .lines()
            .zip(theirs.lines())
            .find(|(our, their)| our != their);
        assert_eq!(different, None, "{:?}", self.who);
        assert_eq!(ours.len(), theirs.len());
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.mounted {
            unmount_lazily(self.dir());
        }
    }
}

/// What is written is read again and compared, through every way into the kernel.
fn fio(place: &Place) {
    let size = format!("--size={}m", amount(12, 256));
    let directory = format!("--directory={}", text(&place.dir()));
    for (engine, more) in [
        ("psync", "--rw=randrw"),
        ("mmap", "--rw=randwrite"),
        ("libaio", "--rw=randwrite --direct=1 --iodepth=16"),
        ("io_uring", "--rw=randwrite --direct=1 --iodepth=16"),
        ("io_uring", "--rw=write --iodepth=8"),
        (
            "psync",
            "--rw=randwrite --fsync=16 --bsrange=512-64k --bs_unaligned",
        ),
    ] {
        let engine = format!("--ioengine={engine}");
        let mut arguments = vec!["--name=fio", &directory, &engine, &size, "--bs=4k"];
        arguments.extend(["--numjobs=2", "--verify=crc32c", "--verify_fatal=1"]);
        arguments.extend([
            "--do_verify=1",
            "--verify_state_save=0",
            "--group_reporting",
        ]);
        arguments.extend(more.split(' '));
        let printed = place.run("fio", &arguments);
        assert!(printed.contains("err= 0"), "{printed}");
        place.shell("rm fio.*");
    }
}

/// Four processes, each in a directory of its own: two that begin in the same microsecond give
/// their files the same names.
fn fs_mark(place: &Place) {
    let log = text(&place.at("home")).to_owned() + "/log";
    let count = amount(100, 5000);
    let dirs = [1, 2, 3, 4].map(|number| format!("{}/fs_mark-{number}", text(&place.dir())));
    for how in ["0", "1", "4"] {
        let mut arguments = vec!["-s", "10000", "-n", &count, "-S", how, "-l", &log];
        arguments.extend(dirs.iter().flat_map(|dir| ["-d", dir]));
        place.run("fs_mark", &arguments);
    }
}

fn dbench(place: &Place) {
    let seconds = amount(4, 120);
    let dir = place.dir();
    let arguments = [
        "-c",
        "/usr/share/dbench/client.txt",
        "-D",
        text(&dir),
        "-t",
        &seconds,
        "4",
    ];
    let printed = place.run("dbench", &arguments);
    assert!(printed.contains("Throughput"), "{printed}");
}

/// Each of these works on files in its own way, and checks what it can.
fn stress(place: &Place) {
    let kinds = [
        "access",
        "chdir",
        "chmod",
        "chown",
        "copy-file",
        "dentry",
        "dir",
        "dirdeep",
        "fallocate",
        "fcntl",
        "filename",
        "flock",
        "fpunch",
        "fstat",
        "getdent",
        "hdd",
        "io",
        "iomix",
        "lease",
        "link",
        "locka",
        "lockf",
        "lockofd",
        "mmap",
        "msync",
        "open",
        "readahead",
        "rename",
        "revio",
        "seek",
        "sendfile",
        "symlink",
        "sync-file",
        "touch",
        "utime",
        "xattr",
    ];
    let place_of = text(&place.dir()).to_owned();
    let timeout = amount(4, 240);
    let mut arguments = vec!["--temp-path", &place_of, "--timeout", &timeout, "--verify"];
    let bounds = [
        "--hdd-bytes",
        "16m",
        "--iomix-bytes",
        "16m",
        "--fallocate-bytes",
        "16m",
    ];
    arguments.extend(bounds);
    arguments.extend([
        "--mmap-bytes",
        "4m",
        "--mmap-file",
        "--dirdeep-inodes",
        "2000",
    ]);
    arguments.extend(["--seek-size", "4m", "--oomable"]);
    let options: Vec<String> = kinds.iter().map(|kind| format!("--{kind}")).collect();
    for option in &options {
        arguments.extend([option, "1"]);
    }
    place.run("stress-ng", &arguments);
}

/// This repository, cloned, packed again and checked.
fn git(place: &Place) {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let bundle = place.at("home/all.bundle");
    let mut command = Command::new("git");
    command
        .arg("-C")
        .arg(&source)
        .args(["-c", "safe.directory=*"]);
    let made = command
        .args(["bundle", "create", text(&bundle), "HEAD"])
        .output()
        .unwrap();
    if !made.status.success() {
        println!("skipped: these sources are no repository");
        return;
    }
    chown(&bundle, Some(place.id()), Some(place.id())).unwrap();
    let clones: u32 = amount(1, 10).parse().unwrap();
    for number in 0..clones {
        place.shell(&format!(
            "git clone -q '{}' clone{number}; cd clone{number}; git fsck --full --strict; \
             git repack -q -a -d -f; git gc -q --prune=now; git fsck --full --strict; \
             test -z \"$(git status --porcelain)\"; rm -r crates; git checkout -q -- crates; \
             git checkout -q -b other; git mv README.md elsewhere; \
             git -c user.name=x -c user.email=x@y commit -q -m moved; git checkout -q -; \
             git merge -q other; test -z \"$(git status --porcelain)\"",
            text(&bundle)
        ));
    }
}

/// Two at once, each with transactions of its own, in every way a database keeps its journal.
fn sqlite(place: &Place) {
    let count = amount(300, 20_000);
    for mode in ["delete", "truncate", "persist", "wal"] {
        place.shell(&format!(
            "sqlite3 {mode}.db 'pragma journal_mode={mode}; create table t(a integer primary key, b, c)'; \
             insert() {{ yes \"insert into t(b,c) values($1, hex(randomblob(200)));\" | head -n {count} | \
               sqlite3 -cmd '.timeout 60000' -cmd 'pragma synchronous=full' -bail {mode}.db; }}; \
             insert 1 & first=$!; insert 2; wait $first; \
             sqlite3 {mode}.db 'delete from t where a%5=0; vacuum; pragma integrity_check; \
               select count(*) > {count} from t' > said; \
             printf 'ok\\n1\\n' | cmp - said; rm said"
        ));
    }
}

/// A tree with links, holes, attributes and ACLs, taken there and back by rsync and by tar.
fn copies(place: &Place) {
    let from = place.at("from");
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../ext4/src");
    run("cp", &["-r", text(&sources), text(&from.join("src"))]);
    let owner = format!("{0}:{0}", place.id());
    run("chown", &["-R", &owner, text(&from)]);
    let rsync = "rsync -aHAX --sparse";
    // What it was not given, it does not print.
    let same = |one: &str, other: &str| {
        let lines = format!("{rsync} -n --checksum --delete --itemize-changes {one}/ {other}/");
        assert_eq!(place.shell(&lines), "", "{one} and {other} differ");
    };
    let (from, back) = (text(&from).to_owned(), text(&place.at("back")).to_owned());
    place.shell(&format!(
        "cd '{from}'; ln src/lib.rs hard; ln -s src/lib.rs soft; ln -s nowhere dangling; mkfifo fifo; \
         truncate -s 3M holes; printf end >> holes; mkdir -m 1777 sticky; mkdir empty; \
         setfattr -n user.one -v value hard; setfattr -n user.long -v $(head -c 3000 /dev/zero | tr '\\0' x) src; \
         setfacl -m u:1234:rw,g:77:r hard; setfacl -d -m u:1234:rwx,g::r empty; \
         touch -d 1960-05-06T07:08:09.123456789 hard; touch -d 2100-01-02 holes; chmod 6751 holes"
    ));
    place.shell(&format!("{rsync} '{from}/' to/; {rsync} to/ '{back}/'"));
    same(&from, "to");
    same(&from, &back);
    place.shell(
        "tar --create --xattrs --acls --sparse --file all.tar -C to .; mkdir untarred; \
         tar --extract --preserve-permissions --xattrs --acls --file all.tar -C untarred; \
         tar --compare --file all.tar -C untarred",
    );
    same("to", "untarred");
}

/// Something that is done in a mount.
type Work = fn(&Place);

/// The program without which it cannot be done, and it.
const PROGRAMS: [(&str, Work); 7] = [
    ("rsync", copies),
    ("fio", fio),
    ("fs_mark", fs_mark),
    ("dbench", dbench),
    ("stress-ng", stress),
    ("git", git),
    ("sqlite3", sqlite),
];

fn all_by(who: Who, transport: Transport) {
    let Some(place) = Place::new(who, transport) else {
        return;
    };
    for (program, work) in PROGRAMS {
        if has(program) {
            let begun = std::time::Instant::now();
            work(&place);
            let seconds = begun.elapsed().as_secs_f64();
            println!("{who:?} over {transport:?}: {program} {seconds:.1} s");
        }
    }
    place.judged();
}

over_each! {
    programs_of_root_are_content,
    programs_of_an_ordinary_user_are_content,
}

fn programs_of_root_are_content(transport: Transport) {
    if transport == Transport::Rings && !is_long() {
        println!("skipped: root's programs over rings need UEXT4_LONG=1");
        return;
    }
    all_by(Who::Root, transport);
}

fn programs_of_an_ordinary_user_are_content(transport: Transport) {
    if transport == Transport::Dev && !is_long() {
        println!("skipped: users' programs over /dev/fuse need UEXT4_LONG=1");
        return;
    }
    all_by(Who::Ordinary, transport);
}
