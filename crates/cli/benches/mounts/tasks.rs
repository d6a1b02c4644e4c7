//! What is measured, for every subject.

use std::fs::{self, File};
use std::hint::black_box;
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use rustix::fs::{AtFlags, Mode, OFlags, openat, renameat, statat, unlinkat};

use crate::Asked;
use crate::figures::Unit;
use crate::input::{Input, Tar};
use crate::subject::{Mounted, Subject, run};
use crate::work;

/// Of one read or write.
const REQUEST: usize = 1 << 20;
/// Small writes: how many, of how many bytes, and of a line of a log.
const SMALL_WRITES: usize = 20_000;
const SMALL: usize = 4096;
const LINE: usize = 108;
/// How many writers write at once, and how much each writes.
const WRITERS: usize = 100;
const WRITERS_MIB: usize = 40;
/// Of sqlite, one row each.
const TRANSACTIONS: usize = 2000;

/// Takes a figure: what it is of, its unit, and it.
pub type Report<'a> = &'a mut dyn FnMut(&str, Unit, f64);

#[derive(Debug)]
pub struct Task {
    pub name: &'static str,
    pub run: fn(Subject, &Asked, &Input, Report<'_>) -> Result<(), String>,
}

pub const TASKS: &[Task] = &[
    Task {
        name: "names",
        run: names,
    },
    Task {
        name: "tree",
        run: tree,
    },
    Task {
        name: "bytes",
        run: bytes,
    },
    Task {
        name: "small",
        run: small,
    },
    Task {
        name: "writers",
        run: writers,
    },
    Task {
        name: "sqlite",
        run: sqlite,
    },
    Task {
        name: "git",
        run: work::git,
    },
    Task {
        name: "compile",
        run: work::compile,
    },
];

pub fn seconds(f: impl FnOnce() -> Result<(), String>) -> Result<f64, String> {
    let begun = Instant::now();
    f()?;
    Ok(begun.elapsed().as_secs_f64())
}

/// Makes the kernel forget clean pages (1), names and inodes (2), or both (3).
pub fn forget(what: &str) -> Result<(), String> {
    let file = "/proc/sys/vm/drop_caches";
    fs::write(file, what).map_err(|error| format!("{file}: {error}"))
}

/// Notes how much memory the daemon took, unmounts and has the image judged.
pub fn ended(mounted: Mounted, report: Report<'_>) -> Result<f64, String> {
    if let Some(peak) = mounted.peak_mib() {
        report("most resident", Unit::Mib, peak);
    }
    mounted.end()
}

/// Files without contents in one directory, by one thread and by four.
fn names(subject: Subject, asked: &Asked, _: &Input, report: Report<'_>) -> Result<(), String> {
    // The same for every user: fuse2fs takes the longer for each the more there are.
    let count = asked.names.min(subject.most_files());
    for threads in [1, 4] {
        let mounted = Mounted::new(subject)?;
        let at = mounted.point().join("dir");
        fs::create_dir(&at).map_err(|error| error.to_string())?;
        let mut part = |what: &str, call: fn(&File, &str, &str)| {
            let dir = File::open(&at).map_err(|error| error.to_string())?;
            let seconds = shared(&dir, count, threads, call)?;
            let what = format!("{what}, {threads} threads");
            report(&what, Unit::PerSecond, count as f64 / seconds);
            Ok::<_, String>(())
        };
        part("create", |dir, name, _| {
            let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
            drop(openat(dir, name, flags, Mode::from(0o644)).unwrap());
        })?;
        forget("2")?;
        part("cold stat", |dir, name, _| {
            black_box(statat(dir, name, AtFlags::SYMLINK_NOFOLLOW).unwrap());
        })?;
        part("open+close", |dir, name, _| {
            let flags = OFlags::RDONLY | OFlags::CLOEXEC;
            drop(openat(dir, name, flags, Mode::empty()).unwrap());
        })?;
        part("rename", |dir, name, to| {
            renameat(dir, name, dir, to).unwrap()
        })?;
        part("unlink", |dir, _, to| {
            unlinkat(dir, to, AtFlags::empty()).unwrap();
        })?;
        ended(mounted, report)?;
    }
    Ok(())
}

/// Seconds that threads take for calls on `count` names of a directory, each for a part of them.
fn shared(
    dir: &File,
    count: usize,
    threads: usize,
    call: fn(&File, &str, &str),
) -> Result<f64, String> {
    let name = |i| (format!("file-{i:06}"), format!("moved-{i:06}"));
    let names: Vec<(String, String)> = (0..count).map(name).collect();
    seconds(|| {
        std::thread::scope(|scope| {
            for part in names.chunks(count.div_ceil(threads)) {
                scope.spawn(move || part.iter().for_each(|(name, to)| call(dir, name, to)));
            }
        });
        Ok(())
    })
}

/// Trees unpacked, looked through and removed.
fn tree(subject: Subject, _: &Asked, input: &Input, report: Report<'_>) -> Result<(), String> {
    if let Some(tar) = &input.folders {
        one_tree(subject, "folders", tar, report)?;
    }
    // It would take a quarter of an hour.
    let is_fast = subject != Subject::Fuse2fs;
    match input.linux.as_ref().filter(|_| is_fast) {
        Some(tar) if tar.entries < subject.most_files() => one_tree(subject, "Linux", tar, report),
        Some(_) => {
            eprintln!("{}: Linux skipped, too many files", subject.name());
            Ok(())
        }
        None => Ok(()),
    }
}

fn one_tree(subject: Subject, name: &str, tar: &Tar, report: Report<'_>) -> Result<(), String> {
    let mounted = Mounted::new(subject)?;
    let top = mounted.point().join("top");
    fs::create_dir(&top).map_err(|error| error.to_string())?;
    let (at, from) = (top.to_str().unwrap(), tar.path.to_str().unwrap());
    let untar = seconds(|| run("tar", &["-xf", from, "-C", at]).map(drop))?;
    let sync = seconds(|| run("sync", &["-f", at]).map(drop))?;
    report(&format!("untar {name} + sync"), Unit::Seconds, untar + sync);
    let mut find = 0.0;
    for _ in 0..2 {
        let mut listed = String::new();
        find = seconds(|| {
            listed = run("find", &[at, "-mindepth", "1", "-ls"])?;
            Ok(())
        })?;
        let entries = listed.lines().count();
        if entries != tar.entries {
            return Err(format!("{entries} entries instead of {}", tar.entries));
        }
    }
    report(&format!("find -ls {name}, warm"), Unit::Seconds, find);
    let rm = seconds(|| run("rm", &["-rf", at]).map(drop))?;
    report(&format!("rm -rf {name}"), Unit::Seconds, rm);
    ended(mounted, report)?;
    // Until all is on the device, which sync(2) does not say on FUSE.
    let mounted = Mounted::new(subject)?;
    let at = mounted.point();
    let at = at.to_str().unwrap();
    let untar = seconds(|| run("tar", &["-xf", from, "-C", at]).map(drop))?;
    let unmounted = mounted.end()?;
    let what = format!("untar {name} + unmount");
    report(&what, Unit::Seconds, untar + unmounted);
    Ok(())
}

/// One file from end to end, with requests of 1 MiB.
fn bytes(subject: Subject, asked: &Asked, _: &Input, report: Report<'_>) -> Result<(), String> {
    let mounted = Mounted::new(subject)?;
    // Its rate is the same with fewer.
    let mib = match subject {
        Subject::Fuse2fs => asked.mib / 8,
        _ => asked.mib,
    };
    let path = mounted.point().join("file");
    let mut file = File::create(&path).map_err(|error| error.to_string())?;
    let write = seconds(|| fill(&mut file, mib))?;
    report("sequential write", Unit::MibPerSecond, mib as f64 / write);
    let sync = seconds(|| file.sync_all().map_err(|error| error.to_string()))?;
    let rate = mib as f64 / (write + sync);
    report("sequential write + fsync", Unit::MibPerSecond, rate);
    drop(file);
    forget("1")?;
    let mut data = vec![0; REQUEST];
    let mut file = File::open(&path).map_err(|error| error.to_string())?;
    let read = seconds(|| {
        for _ in 0..mib {
            file.read_exact(&mut data)
                .map_err(|error| error.to_string())?;
        }
        Ok(())
    })?;
    report("sequential read", Unit::MibPerSecond, mib as f64 / read);
    drop(file);
    ended(mounted, report).map(drop)
}

fn fill(file: &mut File, mib: usize) -> Result<(), String> {
    let data = vec![0x5a; REQUEST];
    for _ in 0..mib {
        file.write_all(&data).map_err(|error| error.to_string())?;
    }
    Ok(())
}

/// Small writes by one thread: one after the other, appended, and at random places of the first
/// file. Each with the close, which writes what the kernel holds.
fn small(subject: Subject, _: &Asked, _: &Input, report: Report<'_>) -> Result<(), String> {
    let mounted = Mounted::new(subject)?;
    let at = |name: &str| mounted.point().join(name);
    let said = |error: std::io::Error| error.to_string();
    let data = [0x5a; SMALL];
    let sequential = seconds(|| {
        let mut file = File::create(at("pages")).map_err(said)?;
        (0..SMALL_WRITES).try_for_each(|_| file.write_all(&data).map_err(said))?;
        drop(file);
        Ok(())
    })?;
    let rate = SMALL_WRITES as f64 / sequential;
    report("4 KiB, sequential", Unit::PerSecond, rate);
    let appended = seconds(|| {
        let mut file = File::options()
            .append(true)
            .create(true)
            .open(at("log"))
            .map_err(said)?;
        (0..SMALL_WRITES).try_for_each(|_| file.write_all(&data[..LINE]).map_err(said))?;
        drop(file);
        Ok(())
    })?;
    let rate = SMALL_WRITES as f64 / appended;
    report("108 bytes, appended", Unit::PerSecond, rate);
    let count = SMALL_WRITES / 2;
    let random = seconds(|| {
        let file = File::options()
            .write(true)
            .open(at("pages"))
            .map_err(said)?;
        let mut place = 1u64;
        for _ in 0..count {
            // Knuth's numbers, of which the high bits look random.
            place = place
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let page = (place >> 33) % SMALL_WRITES as u64;
            file.write_all_at(&data, page * SMALL as u64)
                .map_err(said)?;
        }
        drop(file);
        Ok(())
    })?;
    report("4 KiB, random", Unit::PerSecond, count as f64 / random);
    ended(mounted, report).map(drop)
}

/// Many files written at the same time.
fn writers(subject: Subject, _: &Asked, _: &Input, report: Report<'_>) -> Result<(), String> {
    let mounted = Mounted::new(subject)?;
    let create = |number| File::create(mounted.point().join(format!("file-{number}")));
    let files: Result<Vec<File>, _> = (0..WRITERS).map(create).collect();
    let mut files = files.map_err(|error| error.to_string())?;
    let all = |call: &(dyn Fn(&mut File) -> Result<(), String> + Sync), files: &mut [File]| {
        std::thread::scope(|scope| {
            let begun = files.iter_mut().map(|file| scope.spawn(|| call(file)));
            let begun: Vec<_> = begun.collect();
            begun.into_iter().try_for_each(|one| one.join().unwrap())
        })
    };
    let mib = (WRITERS * WRITERS_MIB) as f64;
    let write = seconds(|| all(&|file| fill(file, WRITERS_MIB), &mut files))?;
    report("100 writers", Unit::MibPerSecond, mib / write);
    let fsync = |file: &mut File| file.sync_all().map_err(|error| error.to_string());
    let sync = seconds(|| all(&fsync, &mut files))?;
    report(
        "100 writers + fsync",
        Unit::MibPerSecond,
        mib / (write + sync),
    );
    drop(files);
    ended(mounted, report).map(drop)
}

/// Transactions of one row, each durable before the next.
fn sqlite(subject: Subject, _: &Asked, _: &Input, report: Report<'_>) -> Result<(), String> {
    for mode in ["delete", "wal"] {
        let mounted = Mounted::new(subject)?;
        let base = mounted.point().join(mode);
        database(
            &base,
            &format!("pragma journal_mode={mode}; create table t(a integer primary key, b);"),
        )?;
        let insert = "insert into t(b) values(hex(randomblob(100)));\n";
        let script = format!("pragma synchronous=full;\n{}", insert.repeat(TRANSACTIONS));
        let took = seconds(|| database(&base, &script).map(drop))?;
        let what = format!("sqlite, {mode}");
        report(&what, Unit::PerSecond, TRANSACTIONS as f64 / took);
        let said = database(&base, "pragma integrity_check; select count(*) from t;")?;
        if said != format!("ok\n{TRANSACTIONS}\n") {
            return Err(format!("sqlite: {said}"));
        }
        ended(mounted, report)?;
    }
    Ok(())
}

fn database(base: &Path, script: &str) -> Result<String, String> {
    let mut command = Command::new("sqlite3");
    command.args(["-bail"]).arg(base);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command
        .spawn()
        .map_err(|error| format!("sqlite3: {error}"))?;
    let mut input = child.stdin.take().unwrap();
    input
        .write_all(script.as_bytes())
        .map_err(|error| error.to_string())?;
    drop(input);
    let output = child
        .wait_with_output()
        .map_err(|error| error.to_string())?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(format!("sqlite3: {}", output.status)),
    }
}
