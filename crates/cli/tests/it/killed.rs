//! The daemon killed at any moment, under load: whether uext4 or the kernel replays the journal,
//! e2fsck calls the image clean, and everything that was fsynced is there.
//!
//! Each program notes outside which data its fsync made durable: records at the end of a file,
//! files with their names, files put in the place of others, rows of databases. Other programs
//! work at the same time without fsync. Over each transport ten times; with `UEXT4_LONG=1` two
//! hundred times, on one image that grows old.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use uext4_testkit::SplitMix64;

use crate::host::{Shown, assert_clean, is_long, mke2fs, run, scratch, text};
use crate::served::Served;
use crate::transport::{Transport, gathering, over_each};

/// Bytes of a record; not a part of a block, so that most blocks have parts of two.
const RECORD: usize = 700;

/// A number that looks random and depends on the seed alone.
fn random(seed: u64) -> u64 {
    SplitMix64::new(seed).next_u64()
}

/// The contents of the record or file of a number.
fn contents(number: u64, len: usize) -> Vec<u8> {
    let words = (0..len.div_ceil(8) as u64).map(|at| random(number << 32 | at).to_le_bytes());
    let mut bytes: Vec<u8> = words.flatten().collect();
    bytes.truncate(len);
    bytes
}

fn len_of(number: u64) -> usize {
    100 + (random(number) % 60_000) as usize
}

/// A program that was notified of durable data, and how many.
struct Durable {
    /// The name for them.
    what: &'static str,
    count: u64,
}

/// Appends records until it fails.
fn records(dir: &Path) -> Durable {
    let mut count = 0;
    if let Ok(mut file) = File::create(dir.join("records")) {
        let mut append = |number| {
            file.write_all(&contents(number, RECORD))?;
            file.sync_data()
        };
        while append(count).is_ok() {
            count += 1;
        }
    }
    Durable {
        what: "records",
        count,
    }
}

/// Makes files until it fails.
fn files(dir: &Path) -> Durable {
    let mut count = 0;
    let make = |number| {
        let mut file = File::create_new(dir.join(format!("file-{number}")))?;
        file.write_all(&contents(number, len_of(number)))?;
        file.sync_all()
    };
    while make(count).is_ok() {
        count += 1;
    }
    Durable {
        what: "files",
        count,
    }
}

/// Puts a newer file in the place of an older one until it fails.
fn versions(dir: &Path) -> Durable {
    let mut count = 0;
    let put = |number: u64| {
        let new = dir.join("version.new");
        let mut file = File::create(&new)?;
        file.write_all(&number.to_le_bytes())?;
        file.write_all(&contents(number, len_of(number)))?;
        file.sync_all()?;
        fs::rename(new, dir.join("version"))?;
        File::open(dir)?.sync_all()
    };
    while put(count).is_ok() {
        count += 1;
    }
    Durable {
        what: "versions",
        count,
    }
}

/// Inserts rows, each a transaction, until it fails. The removal of its journal, which makes a
/// transaction in mode `delete`, sqlite makes durable with `extra` alone.
fn rows(dir: &Path, mode: &'static str) -> Durable {
    let mut sqlite = Command::new("sqlite3");
    sqlite.arg(dir.join(format!("{mode}.db")));
    sqlite
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let mut sqlite = sqlite.spawn().unwrap();
    let mut ask = sqlite.stdin.take().unwrap();
    let printed = BufReader::new(sqlite.stdout.take().unwrap());
    let begun = writeln!(
        ask,
        ".bail on\npragma journal_mode={mode};\npragma synchronous=extra;\n\
         create table t(a integer primary key, b);"
    );
    let mut count = 0u64;
    if begun.is_ok() {
        let insert = "insert into t(b) values(hex(randomblob(150))); select last_insert_rowid();";
        // What it prints comes when the row is durable; the first line is the mode.
        for line in printed.lines().map_while(Result::ok) {
            count = line.parse().unwrap_or(count);
            if writeln!(ask, "{insert}").is_err() {
                break;
            }
        }
    }
    drop(ask);
    _ = sqlite.kill();
    _ = sqlite.wait();
    // A directory that cannot be opened for its fsync, sqlite takes for one that needs none: of
    // the last row it may report that it is durable when the daemon is gone.
    let in_doubt = u64::from(mode == "delete");
    Durable {
        what: mode,
        count: count.saturating_sub(in_doubt),
    }
}

/// Works who make nothing durable.
fn busy(dir: &Path) -> Vec<Child> {
    let lines = [
        "while mkdir -p a/b && echo x > a/b/c && mv a/b a/d && ln a/d/c a/e; do rm -r a; done",
        "while head -c 300000 /dev/urandom > big && truncate -s 1000 big; do \
           cp big big2; fallocate -p -o 0 -l 4096 big; rm big2; done",
        "i=0; while setfattr -n user.x -v $i . && : > x$i; do i=$((i+1)); rm -f x$((i-50)); done",
    ];
    let spawn = |line: &&str| {
        let mut shell = Command::new("sh");
        shell
            .args(["-c", line])
            .current_dir(dir)
            .stderr(Stdio::null());
        shell.spawn().unwrap()
    };
    lines.iter().map(spawn).collect()
}

/// All programs work until the daemon is killed. Returns what each reported as durable.
fn until_killed(served: &mut Served, dir: &Path, after: Duration) -> Vec<Durable> {
    let others = dir.join("busy");
    fs::create_dir(&others).unwrap();
    let mut busy = busy(&others);
    let printed = std::thread::scope(|scope| {
        let mut all = Vec::new();
        for work in [records, files, versions] {
            all.push(scope.spawn(move || work(dir)));
        }
        if Command::new("sqlite3").arg("-version").output().is_ok() {
            for mode in ["delete", "wal"] {
                all.push(scope.spawn(move || rows(dir, mode)));
            }
        }
        std::thread::sleep(after);
        served.kill();
        let ended = all.into_iter().map(|one| one.join().unwrap());
        ended.collect()
    });
    for child in &mut busy {
        _ = child.kill();
        child.wait().unwrap();
    }
    printed
}

/// All data that were reported as durable must exist, whole.
fn check(dir: &Path, printed: &Durable) {
    let Durable { what, count } = *printed;
    match what {
        "records" => {
            let found = fs::read(dir.join("records")).unwrap_or_default();
            assert!(found.len() >= RECORD * count as usize, "{count} records");
            for (number, record) in (0..count).zip(found.chunks(RECORD)) {
                assert!(
                    record == contents(number, RECORD),
                    "record {number} of {count}"
                );
            }
        }
        "files" => {
            for number in 0..count {
                let found = fs::read(dir.join(format!("file-{number}"))).unwrap();
                assert!(
                    found == contents(number, len_of(number)),
                    "file {number} of {count}"
                );
            }
        }
        "versions" if count > 0 => {
            let found = fs::read(dir.join("version")).unwrap();
            let (number, rest) = found.split_first_chunk().unwrap();
            let number = u64::from_le_bytes(*number);
            assert!(number + 1 >= count, "version {number} of {count}");
            assert!(rest == contents(number, len_of(number)), "version {number}");
        }
        "delete" | "wal" if count > 0 => {
            let query = "pragma integrity_check; select max(a) from t; select count(*) from t;";
            let base = dir.join(format!("{what}.db"));
            let said = String::from_utf8(run("sqlite3", &[text(&base), query])).unwrap();
            let mut lines = said.lines();
            assert_eq!(lines.next(), Some("ok"), "{what}: {said}");
            let rows: Vec<u64> = lines.map(|line| line.parse().unwrap()).collect();
            assert!(
                rows[0] >= count && rows[0] == rows[1],
                "{what}: {count} of {rows:?}"
            );
        }
        _ => {}
    }
}

gathering! {
    killed_at_any_moment_it_loses_nothing_that_was_fsynced,
    killed_after_a_commit_it_loses_neither_contents_of_replaced_files,
}

over_each! {
    killed_at_any_moment_it_loses_nothing_that_was_fsynced,
    killed_after_a_commit_it_loses_neither_contents_of_replaced_files,
}

fn killed_at_any_moment_it_loses_nothing_that_was_fsynced(transport: Transport) {
    if !transport.can_serve() {
        return;
    }
    let rounds = if is_long() { 200 } else { 10 };
    let scratch = scratch();
    let (image, dir) = (scratch.path().join("image"), scratch.path().join("mnt"));
    fs::create_dir(&dir).unwrap();
    mke2fs(&image, &["-t", "ext4", "-J", "size=8"], 512);
    let seed = u64::from(std::process::id());
    let mut all = 0;
    for round in 0i32..rounds {
        let mut served = Served::over(transport, &image, &dir, "rw");
        let place: PathBuf = dir.join(format!("round-{round}"));
        // The files of two rounds stay, older ones are removed, so that there is much to do
        // besides.
        _ = fs::remove_dir_all(dir.join(format!("round-{}", round - 2)));
        fs::create_dir(&place).unwrap();
        File::open(&dir).unwrap().sync_all().unwrap();
        let after = Duration::from_millis(20 + random(seed + round as u64) % 600);
        let printed = until_killed(&mut served, &place, after);
        drop(served);
        all += printed.iter().map(|printed| printed.count).sum::<u64>();
        let context = format!("round {round}, seed {seed}, killed after {after:?}");
        println!("{context}");
        match round % 2 {
            0 => {
                let served = Served::over(transport, &image, &dir, "rw");
                printed.iter().for_each(|printed| check(&place, printed));
                assert!(served.end().success(), "{context}");
            }
            _ => {
                let shown = Shown::new(&image, &dir, "rw");
                printed.iter().for_each(|printed| check(&place, printed));
                shown.end();
            }
        }
        assert_clean(&image);
    }
    println!("{transport:?}: {rounds} rounds, {all} things durable");
    assert!(
        all > 10 * rounds as u64,
        "hardly anything was made durable: {all}"
    );
}

/// The commit that another file's fsync makes takes the renames along, and so what they brought.
fn killed_after_a_commit_it_loses_neither_contents_of_replaced_files(transport: Transport) {
    if !transport.can_serve() {
        return;
    }
    let scratch = scratch();
    let (image, dir) = (scratch.path().join("image"), scratch.path().join("mnt"));
    fs::create_dir(&dir).unwrap();
    mke2fs(&image, &["-t", "ext4"], 64);
    let mut served = Served::over(transport, &image, &dir, "rw");
    let (old, new) = (contents(1, 60_000), contents(2, 50_000));
    for number in 0..20 {
        fs::write(dir.join(format!("file-{number}")), &old).unwrap();
    }
    File::open(dir.join("file-0")).unwrap().sync_all().unwrap();
    for number in 0..20 {
        let temporary = dir.join("temporary");
        fs::write(&temporary, &new).unwrap();
        fs::rename(&temporary, dir.join(format!("file-{number}"))).unwrap();
    }
    let other = File::create(dir.join("other")).unwrap();
    other.sync_all().unwrap();
    served.kill();
    drop(served);
    let shown = Shown::new(&image, &dir, "rw");
    for number in 0..20 {
        let found = fs::read(dir.join(format!("file-{number}"))).unwrap();
        assert!(found == new, "file {number} has {} bytes", found.len());
    }
    shown.end();
    assert_clean(&image);
}
