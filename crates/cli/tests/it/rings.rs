//! Mounts over io_uring: what is particular to them, and that nothing else is.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::OFlags;

use crate::host::{RingsAllowed, UEXT4, assert_clean, run, text, uext4, unmount_lazily};
use crate::mounted::{Mount, wait_for_end};
use crate::transport::{Transport, threads};

/// What a machine that is busy may take at most, where nothing but a hang takes so long.
const LONG: Duration = Duration::from_secs(30);

/// The permission, where all else is there too.
fn allowed() -> Option<RingsAllowed> {
    Transport::Rings.can_serve().then(RingsAllowed::new)?
}

fn over_rings(mib: u32) -> Mount {
    Mount::with(&["-t", "ext4"], mib, "transport=io_uring")
}

/// A shell that makes, moves and takes files without end, and does not mind errors.
fn busy(dir: &Path, name: &str) -> Child {
    let script = "cd \"$0\" || exit; while :; do mkdir -p $1 && dd if=/dev/zero of=$1/a bs=64k \
                  count=20 status=none; mv $1/a $1/b; cat $1/b; rm -r $1; done >/dev/null 2>&1";
    let mut command = Command::new("sh");
    command.args(["-c", script]).arg(dir).arg(name);
    command.stderr(Stdio::null()).spawn().unwrap()
}

fn end_all(children: Vec<Child>) {
    for mut child in children {
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

#[test]
fn a_queue_a_cpu_where_it_is_allowed() {
    let Some(allowed) = allowed() else { return };
    let list = fs::read_to_string("/sys/devices/system/cpu/possible").unwrap();
    let mount = over_rings(64);
    let daemon = mount.daemon();
    let queues = threads(&daemon, "uext4-ring-");
    assert!(
        queues > 0 && (queues == 1) == (list.trim() == "0"),
        "{list}"
    );
    // It may not have its name yet.
    assert!(threads(&daemon, "uext4-fuse-") <= 1);
    // A mount keeps its rings when they are forbidden to those that come.
    allowed.set(false);
    fs::write(mount.dir().join("file"), "contents").unwrap();
    let mount = mount.unmounted().mounted("transport=auto");
    assert_eq!(threads(&mount.daemon(), "uext4-ring-"), 0);
    assert_eq!(
        fs::read_to_string(mount.dir().join("file")).unwrap(),
        "contents"
    );
    let mount = mount.unmounted();
    let refused = uext4(&[
        "mount",
        "-o",
        "transport=io_uring",
        text(&mount.image()),
        text(&mount.dir()),
    ]);
    let stderr = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(32), "{stderr}");
    assert!(stderr.contains("enable_uring"), "{stderr}");
    allowed.set(true);
    let mount = mount.mounted("transport=auto");
    assert!(threads(&mount.daemon(), "uext4-ring-") > 0);
    let mount = mount.unmounted().mounted("transport=dev");
    assert_eq!(threads(&mount.daemon(), "uext4-ring-"), 0);
    mount.judged();
}

#[test]
fn a_single_stream_is_served_on_the_callers_cpu_out_of_the_sandbox() {
    let Some(_allowed) = allowed() else { return };
    let mount = over_rings(64);
    let capabilities = |process: &str| {
        let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
        u64::from_str_radix(line.unwrap().trim(), 16).unwrap()
    };
    const SYS_NICE: u64 = 1 << 23;
    const SYS_RESOURCE: u64 = 1 << 24;
    let own = capabilities("self");
    let kept = match own & SYS_RESOURCE {
        0 => own & SYS_NICE,
        _ => 0,
    };
    assert_eq!(capabilities(&mount.daemon()), kept);
    if thread::available_parallelism().unwrap().get() == 1 || own & (SYS_NICE | SYS_RESOURCE) == 0 {
        println!("skipped: needs two CPUs, and CAP_SYS_NICE or CAP_SYS_RESOURCE");
        return;
    }
    let entered = || {
        let all = run(UEXT4, &["stats", "--prometheus", text(&mount.dir())]);
        let all = String::from_utf8(all).unwrap();
        let name = "uext4_placement_total{event=\"entered\"} ";
        let count = all.lines().find_map(|line| line.strip_prefix(name));
        count.map_or(0, |count| count.parse::<u64>().unwrap())
    };
    let begun = Instant::now();
    while entered() == 0 {
        assert!(begun.elapsed() < LONG, "no thread has entered SCHED_IDLE");
        for number in 0..100 {
            fs::write(mount.dir().join(format!("file-{number}")), b"some").unwrap();
        }
    }
    mount.judged();
}

/// Writes and fsyncs, over the dirty limits, from more threads than there are entries.
fn write_much(dir: &Path, number: u8) -> PathBuf {
    let path = dir.join(format!("file-{number}"));
    let mut file = File::create(&path).unwrap();
    for _ in 0..8 {
        file.write_all(&vec![number; 256 << 10]).unwrap();
        file.sync_data().unwrap();
    }
    path
}

#[test]
fn other_requests_are_served_during_many_throttled_writers() {
    let Some(_allowed) = allowed() else { return };
    let options = "transport=io_uring,dirty_bytes=2097152,dirty_background_bytes=1048576";
    let mount = Mount::with(&["-t", "ext4"], 512, options);
    let dir = mount.dir();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let (dir, is_over) = (&dir, &is_over);
        let next_to = scope.spawn(move || {
            let mut longest = Duration::ZERO;
            while !is_over.load(Relaxed) {
                let began = Instant::now();
                rustix::fs::statvfs(dir).unwrap();
                longest = longest.max(began.elapsed());
                thread::sleep(Duration::from_millis(2));
            }
            longest
        });
        let writers: Vec<_> = (1..=100)
            .map(|number| scope.spawn(move || write_much(dir, number)))
            .collect();
        for writer in writers {
            let path = writer.join().unwrap();
            let mut read = Vec::new();
            File::open(&path).unwrap().read_to_end(&mut read).unwrap();
            let number = fs::read(&path).unwrap()[0];
            assert!(read == vec![number; 2 << 20], "{}", path.display());
        }
        is_over.store(true, Relaxed);
        let longest = next_to.join().unwrap();
        assert!(longest < LONG, "waited for {longest:?}");
    });
    mount.judged();
}

/// Where a page begins in memory.
fn aligned(memory: &[u8]) -> usize {
    memory.as_ptr().align_offset(4096)
}

#[test]
fn data_past_the_page_cache_and_through_mappings() {
    let Some(_allowed) = allowed() else { return };
    let mount = over_rings(128);
    let path = mount.dir().join("file");
    let mut options = OpenOptions::new();
    let direct = options
        .read(true)
        .write(true)
        .create(true)
        .custom_flags(OFlags::DIRECT.bits() as i32);
    let file = direct.open(&path).unwrap();
    // Aligned in memory, so that requests are whole sectors, too.
    const LEN: usize = 5 << 20;
    let (mut room, mut other) = (vec![0; LEN + 4096], vec![0; LEN + 4096]);
    let (start, begin) = (aligned(&room), aligned(&other));
    let (data, read) = (&mut room[start..][..LEN], &mut other[begin..][..LEN]);
    for (at, byte) in data.iter_mut().enumerate() {
        *byte = (at / 3 % 251) as u8;
    }
    for (at, len) in [(0usize, LEN), (4096, 512), (1 << 20, 1 << 20), (700_000, 3)] {
        let from = at / 512 * 512;
        let part = &data[from..(at + len).next_multiple_of(512)];
        assert_eq!(file.write_at(part, from as u64).unwrap(), part.len());
    }
    file.read_exact_at(read, 0).unwrap();
    assert!(read == data);
    drop(file);
    if Command::new("python3").arg("-V").output().is_ok() {
        let script = "import mmap,sys\nf=open(sys.argv[1],'r+b')\nm=mmap.mmap(f.fileno(),0)\n\
                      m[1000:1005]=b'hello'\nm[3000000:3000005]=b'world'\nm.flush()\nm.close()\n";
        run("python3", &["-c", script, text(&path)]);
        data[1000..1005].copy_from_slice(b"hello");
        data[3_000_000..3_000_005].copy_from_slice(b"world");
    }
    assert!(fs::read(&path).unwrap() == *data);
    let mount = mount.judged().mounted("ro,transport=io_uring");
    assert!(fs::read(mount.dir().join("file")).unwrap() == *data);
    mount.judged();
}

#[test]
fn a_daemon_killed_under_load_leaves_no_process_waiting() {
    let Some(_allowed) = allowed() else { return };
    let mut mount = over_rings(64);
    for round in 0..3u8 {
        let durable = mount.dir().join(format!("durable-{round}"));
        let mut file = File::create(&durable).unwrap();
        file.write_all(&[round; 100_000]).unwrap();
        file.sync_all().unwrap();
        let load: Vec<_> = (0..6)
            .map(|n| busy(&mount.dir(), &format!("d{n}")))
            .collect();
        thread::sleep(Duration::from_millis(200));
        let daemon = mount.daemon();
        run("kill", &["-KILL", &daemon]);
        wait_for_end(&daemon);
        // Errors, and at once.
        let began = Instant::now();
        assert!(fs::metadata(mount.dir().join("no_user-asked-for-this")).is_err());
        assert!(file.sync_all().is_err());
        assert!(began.elapsed() < LONG);
        end_all(load);
        drop(file);
        unmount_lazily(mount.dir());
        mount.is_gone();
        mount = mount.mounted("transport=io_uring");
        let name = mount.dir().join(format!("durable-{round}"));
        assert_eq!(fs::read(name).unwrap(), [round; 100_000]);
    }
    mount.judged();
}

#[test]
fn asked_to_end_under_load_it_ends() {
    let Some(_allowed) = allowed() else { return };
    let mut mount = over_rings(64);
    for round in 0..3 {
        let load: Vec<_> = (0..6)
            .map(|n| busy(&mount.dir(), &format!("d{n}")))
            .collect();
        let open = File::create(mount.dir().join(format!("open-{round}"))).unwrap();
        open.write_all_at(&[7; 50_000], 0).unwrap();
        thread::sleep(Duration::from_millis(200));
        let daemon = mount.daemon();
        run("kill", &["-TERM", &daemon]);
        wait_for_end(&daemon);
        mount.is_gone();
        end_all(load);
        assert!(open.write_at(b"x", 0).is_err());
        drop(open);
        assert_clean(&mount.image());
        mount = mount.mounted("transport=io_uring");
        let name = mount.dir().join(format!("open-{round}"));
        assert_eq!(fs::read(name).unwrap(), [7; 50_000]);
    }
    mount.judged();
}
