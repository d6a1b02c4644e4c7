//! Contents, asked for as the kernel asks.

use uext4::InodeFlags;
use zerocopy::FromBytes;

use super::*;
use crate::abi::{AttrOut, CreateIn, EntryOut, FsyncIn, OpenOut, ReleaseIn, Rename2In, opcode};
use crate::testing::{Client, e2fsck};

const LEN: usize = 300_000;

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at / 7 % 251) as u8).collect()
}

fn size(client: &Client, id: u64) -> u64 {
    let reported: AttrOut = client.get(opcode::GETATTR, id, &[0; 16]).unwrap();
    reported.attr.size
}

fn seek(client: &Client, id: u64, offset: u64, whence: u32) -> Result<u64> {
    let it = LseekIn {
        offset,
        whence,
        ..LseekIn::default()
    };
    let reported: Result<LseekOut> = client.get(opcode::LSEEK, id, it.as_bytes());
    Ok(reported?.offset)
}

fn allocate(client: &Client, id: u64, mode: u32, offset: u64, length: u64) -> Result<()> {
    let it = FallocateIn {
        offset,
        length,
        mode,
        ..FallocateIn::default()
    };
    client.ask(opcode::FALLOCATE, id, it.as_bytes()).map(|_| ())
}

fn opened_with(client: &Client, id: u64, flags: u32, open_flags: u32) -> Result<OpenOut> {
    client.get(opcode::OPEN, id, OpenIn { flags, open_flags }.as_bytes())
}

#[test]
fn what_was_written_is_read_across_every_edge() {
    let client = Client::new();
    let file = client.create(1, b"file");
    let data = pattern(LEN);
    for (index, part) in data.chunks(70_001).enumerate() {
        client.write(file, (index * 70_001) as u64, part);
    }
    assert_eq!(client.read(file, 0, LEN + 100), data);
    assert_eq!(client.read(file, 12_345, 4096), data[12_345..16_441]);
    assert_eq!(client.read(file, LEN as u64, 10), b"");
    assert!(
        client
            .ask(opcode::FSYNC, file, &[0; 16])
            .unwrap()
            .is_empty()
    );
    assert!(
        client
            .ask(opcode::FSYNCDIR, 1, &[0; 16])
            .unwrap()
            .is_empty()
    );
    assert!(client.ask(opcode::SYNCFS, 1, &[0; 8]).unwrap().is_empty());
    assert_eq!(client.read(file, 0, LEN), data);
}

/// Bytes of file data that the engine keeps.
fn kept(client: &Client) -> u64 {
    let stats = client.server.file_system().stats();
    stats.pages.unwrap().nr_file_pages
}

#[test]
fn read_data_is_cached_by_the_kernel_alone() {
    let client = Client::new();
    let data = pattern(LEN);
    let file = client.create(1, b"file");
    client.write(file, 0, &data);
    client.server.finish().unwrap();
    let client = client.reopened();
    assert_eq!(client.lookup(1, b"file").unwrap().nodeid, file);
    for at in (0..LEN).step_by(1 << 17) {
        let read = client.read(file, at as u64, 1 << 17);
        assert!(read == data[at..LEN.min(at + (1 << 17))]);
    }
    // No more than was asked for, though whole blocks are read.
    for (at, len) in [(0, 1), (4096, 4097), (8192, 100), (LEN & !4095, 5)] {
        let read = client.read(file, at as u64, len);
        assert_eq!(read, data[at..at + len], "{len} from {at}");
    }
    assert_eq!(client.read(file, LEN as u64, 10), b"");
    assert_eq!(kept(&client), 0);
    // What is changed is cached, with the block around it.
    client.write(file, 5000, b"changed");
    assert!(kept(&client) > 0);
    let read = client.read(file, 0, 1 << 17);
    assert_eq!(read[5000..5007], *b"changed");
    assert!(read[..5000] == data[..5000] && read[5007..] == data[5007..1 << 17]);
    client.server.finish().unwrap();
    e2fsck(&client.device);
}

/// Blocks that are preallocated for files.
fn preallocated(client: &Client) -> u64 {
    let stats = client.server.file_system().stats();
    stats.preallocation.unwrap().kept
}

/// A file that was made and is open, and its handle.
fn made_open(client: &Client, name: &str) -> (u64, u64) {
    let it = CreateIn {
        flags: 0o2,
        mode: 0o100_644,
        ..CreateIn::default()
    };
    let body = [it.as_bytes(), name.as_bytes(), b"\0"].concat();
    let reply = client.ask(opcode::CREATE, 1, &body).unwrap();
    let (made, opened) = EntryOut::read_from_prefix(&reply).unwrap();
    let (opened, _) = OpenOut::read_from_prefix(opened).unwrap();
    (made.nodeid, opened.fh)
}

fn write_by(client: &Client, id: u64, fh: u64, offset: u64, data: &[u8]) {
    let it = WriteIn {
        fh,
        offset,
        size: data.len() as u32,
        ..WriteIn::default()
    };
    let body = [it.as_bytes(), data].concat();
    let reply: WriteOut = client.get(opcode::WRITE, id, &body).unwrap();
    assert_eq!(reply.size as usize, data.len());
}

fn release(client: &Client, id: u64, fh: u64) {
    let it = ReleaseIn {
        fh,
        ..ReleaseIn::default()
    };
    client.ask(opcode::RELEASE, id, it.as_bytes()).unwrap();
}

fn sync(client: &Client) {
    client.ask(opcode::SYNCFS, 1, &[0; 8]).unwrap();
}

#[test]
fn files_that_were_closed_keep_no_space_though_the_kernel_knows_them() {
    let client = Client::new();
    let data = pattern(200_000);
    for number in 0..100 {
        let (file, fh) = made_open(&client, &format!("file{number}"));
        write_by(&client, file, fh, 0, &data[..2000 * (number % 100 + 1)]);
        release(&client, file, fh);
    }
    sync(&client);
    // What the small files of a thread share is kept for the next ones.
    assert!(
        preallocated(&client) <= 2 * 512,
        "{}",
        preallocated(&client)
    );
    assert_eq!(client.server.nodes().len(), 101);
    client.server.finish().unwrap();
    e2fsck(&client.device);
}

#[test]
fn space_is_kept_while_a_file_is_open_for_writing_and_given_back_by_the_last_close() {
    let client = Client::new();
    let data = pattern(8 << 20);
    let (file, one) = made_open(&client, "file");
    let two = opened_with(&client, file, 0o1, 0).unwrap().fh;
    let reader = opened_with(&client, file, 0, 0).unwrap().fh;
    assert_eq!(reader, 0);
    write_by(&client, file, one, 0, &data);
    sync(&client);
    assert!(preallocated(&client) > 0);
    release(&client, file, one);
    assert!(preallocated(&client) > 0);
    release(&client, file, two);
    assert_eq!(preallocated(&client), 0);
    // A program that closes while data wait leaves it to the thread that writes them.
    let (file, fh) = made_open(&client, "other");
    write_by(&client, file, fh, 0, &data);
    sync(&client);
    write_by(&client, file, fh, data.len() as u64, &data);
    assert!(preallocated(&client) > 0);
    release(&client, file, fh);
    sync(&client);
    assert_eq!(preallocated(&client), 0);
    // By the kernel after the close, by no handle at all, and by that of another file.
    let (third, fh) = made_open(&client, "third");
    client.write_with(file, 0, &data, WRITE_CACHE, 0);
    write_by(&client, file, 0, 2 * data.len() as u64, &data);
    write_by(&client, file, fh, 3 * data.len() as u64, &data);
    sync(&client);
    assert_eq!(preallocated(&client), 0);
    assert_eq!(size(&client, third), 0);
    client.server.finish().unwrap();
    e2fsck(&client.device);
}

#[test]
fn set_id_bits_go_with_the_writes_of_others() {
    let client = Client::new();
    let file = client.create(1, b"file");
    let from = client.create(1, b"from");
    client.write(from, 0, b"contents");
    let mode = || -> u32 {
        let reported: AttrOut = client.get(opcode::GETATTR, file, &[0; 16]).unwrap();
        reported.attr.mode & 0o7777
    };
    let inode = client.inode(file);
    let set = SetAttributes {
        mode: Some(0o6755),
        ..SetAttributes::default()
    };
    inode.set_attributes(&set).unwrap();
    client.write(file, 0, b"of root");
    assert_eq!(mode(), 0o6755);
    assert_eq!(client.forgotten(), []);
    client.write_with(file, 0, b"of another", WRITE_KILL_SUIDGID, 0);
    // The kernel, which keeps attributes, is notified that they have changed; and only then.
    assert_eq!((mode(), client.forgotten()), (0o755, vec![file]));
    client.write_with(file, 0, b"of another", WRITE_KILL_SUIDGID, 0);
    assert_eq!(client.forgotten(), []);
    inode.set_attributes(&set).unwrap();
    opened_with(&client, file, flag::TRUNC | 1, OPEN_KILL_SUIDGID).unwrap();
    assert_eq!((mode(), size(&client, file)), (0o755, 0));
    assert_eq!(client.forgotten(), [file]);
    inode.set_attributes(&set).unwrap();
    allocate(&client, file, 0, 0, 4096).unwrap();
    assert_eq!((mode(), client.forgotten()), (0o755, vec![file]));
    // Where it is refused they stay; where it ends halfway they go.
    inode.set_attributes(&set).unwrap();
    let refused = allocate(&client, file, 0x80, 0, 4096);
    assert_eq!((refused.is_err(), mode()), (true, 0o6755));
    let ended = allocate(&client, file, 0, 0, 1 << 30);
    assert_eq!(ended.map(|_| ()), Err(Errno::ENOSPC));
    assert_eq!((mode(), client.forgotten()), (0o755, vec![file]));
    let copy = |client: &Client| {
        let it = CopyFileRangeIn {
            nodeid_out: file,
            len: 8,
            ..CopyFileRangeIn::default()
        };
        let reported: Result<WriteOut> = client.get(opcode::COPY_FILE_RANGE, from, it.as_bytes());
        assert_eq!(reported.unwrap().size, 8);
    };
    inode.set_attributes(&set).unwrap();
    copy(&client);
    assert_eq!((mode(), client.forgotten()), (0o755, vec![file]));
    // Root keeps them.
    inode.set_attributes(&set).unwrap();
    let client = client.asking_as_root();
    copy(&client);
    allocate(&client, file, 0, 0, 8192).unwrap();
    assert_eq!(inode.mode() & 0o7777, 0o6755);
    assert_eq!(client.forgotten(), []);
}

#[test]
fn immutable_and_append_only_files() {
    let client = Client::new();
    let file = client.create(1, b"file");
    client.write(file, 0, b"start");
    let inode = client.inode(file);
    let flags = |flags| {
        let set = SetAttributes {
            flags: Some(flags),
            ..SetAttributes::default()
        };
        inode.set_attributes(&set).unwrap();
    };
    flags(InodeFlags::APPEND);
    assert_eq!(opened_with(&client, file, 1, 0), Err(Errno::EPERM));
    assert_eq!(
        opened_with(&client, file, 1 | flag::APPEND | flag::TRUNC, 0),
        Err(Errno::EPERM)
    );
    opened_with(&client, file, 1 | flag::APPEND, 0).unwrap();
    client.write_with(file, 5, b" end", 0, flag::APPEND);
    assert_eq!(client.read(file, 0, 100), b"start end");
    flags(InodeFlags::IMMUTABLE);
    assert_eq!(
        opened_with(&client, file, 2 | flag::APPEND, 0),
        Err(Errno::EPERM)
    );
    opened_with(&client, file, 0, 0).unwrap();
    flags(InodeFlags::default());
    opened_with(&client, file, 2, 0).unwrap();
}

#[test]
fn holes_are_made_filled_and_found() {
    let client = Client::new();
    let file = client.create(1, b"file");
    client.write(file, 0, &pattern(40_960));
    allocate(&client, file, 3, 8192, 8192).unwrap();
    assert_eq!(seek(&client, file, 0, 4), Ok(8192));
    assert_eq!(seek(&client, file, 8192, 3), Ok(16_384));
    assert_eq!(seek(&client, file, 40_960, 3), Err(Errno::ENXIO));
    assert_eq!(seek(&client, file, 0, 1), Err(Errno::EINVAL));
    assert_eq!(client.read(file, 8192, 8192), vec![0; 8192]);
    allocate(&client, file, 0, 0, 81_920).unwrap();
    assert_eq!(size(&client, file), 81_920);
    allocate(&client, file, 1, 0, 163_840).unwrap();
    assert_eq!(size(&client, file), 81_920);
    allocate(&client, file, 0x10, 4096, 4096).unwrap();
    assert_eq!(client.read(file, 4096, 4096), vec![0; 4096]);
    allocate(&client, file, 8, 4096, 12_288).unwrap();
    assert_eq!(size(&client, file), 69_632);
    assert_eq!(
        client.read(file, 4096, 4096),
        pattern(40_960)[16_384..20_480]
    );
    allocate(&client, file, 0x20, 4096, 4096).unwrap();
    assert_eq!(size(&client, file), 73_728);
    for mode in [2, 4, 0x40, 0x29] {
        assert_eq!(
            allocate(&client, file, mode, 0, 4096),
            Err(Errno::EOPNOTSUPP)
        );
    }
    assert_eq!(allocate(&client, 1, 0, 0, 4096), Err(Errno::EISDIR));
    client.server.finish().unwrap();
    e2fsck(&client.device);
}

#[test]
fn holes_of_a_file_opened_for_reading() {
    let client = Client::new();
    let file = client.create(1, b"file");
    client.write(file, 0, &pattern(4096));
    client.write(file, 1 << 20, &pattern(4096));
    client.server.finish().unwrap();
    let client = client.reopened_read_only();
    let file = client.lookup(1, b"file").unwrap().nodeid;
    assert_eq!(seek(&client, file, 0, 4), Ok(4096));
    assert_eq!(seek(&client, file, 4096, 3), Ok(1 << 20));
    assert_eq!(seek(&client, file, 1 << 20, 4), Ok((1 << 20) + 4096));
    assert_eq!(seek(&client, file, 2 << 20, 3), Err(Errno::ENXIO));
    assert_eq!(client.read(file, 1 << 20, 8192), pattern(4096));
    let body = [
        WriteIn {
            size: 1,
            ..WriteIn::default()
        }
        .as_bytes(),
        b"x",
    ]
    .concat();
    assert_eq!(client.ask(opcode::WRITE, file, &body), Err(Errno::EROFS));
    assert!(
        client
            .ask(opcode::FSYNC, file, &[0; 16])
            .unwrap()
            .is_empty()
    );
}

#[test]
fn ranges_are_copied_in_both_forms() {
    let client = Client::new();
    let from = client.create(1, b"from");
    let to = client.create(1, b"to");
    let data = pattern(50_000);
    client.write(from, 0, &data);
    let it = CopyFileRangeIn {
        off_in: 100,
        nodeid_out: to,
        off_out: 5000,
        len: 1 << 40,
        ..CopyFileRangeIn::default()
    };
    let reported: WriteOut = client
        .get(opcode::COPY_FILE_RANGE, from, it.as_bytes())
        .unwrap();
    assert_eq!(reported.size, 49_900);
    let code = opcode::COPY_FILE_RANGE_64;
    let reported: CopyFileRangeOut = client.get(code, from, it.as_bytes()).unwrap();
    assert_eq!(reported.bytes_copied, 49_900);
    assert_eq!(client.read(to, 5000, 60_000), data[100..]);
    let odd = CopyFileRangeIn { flags: 1, ..it };
    assert_eq!(client.ask(code, from, odd.as_bytes()), Err(Errno::EINVAL));
}

#[test]
fn blocks_are_found_where_they_lie() {
    let client = Client::new();
    let file = client.create(1, b"file");
    client.write(file, 8192, &pattern(4096));
    let ask = |block| -> u64 {
        let it = BmapIn {
            block,
            blocksize: 4096,
            padding: 0,
        };
        let reported: BmapOut = client.get(opcode::BMAP, file, it.as_bytes()).unwrap();
        reported.block
    };
    assert_eq!(ask(0), 0);
    let at = ask(2);
    assert!(at > 0);
    let mut read = vec![0; 4096];
    client.read_device(at * 4096, &mut read);
    assert!(read == pattern(4096));
}

#[test]
fn writers_over_the_limit_are_answered_when_their_pause_is_over() {
    let client = Client::with_little_dirty();
    let file = client.create(1, b"file");
    let data = pattern(1 << 20);
    for round in 0..12u64 {
        client.write(file, round << 20, &data);
    }
    for round in 0..12u64 {
        assert!(client.read(file, round << 20, 1 << 20) == data);
    }
    assert!(client.answered_later() > 0);
    client.server.finish().unwrap();
    e2fsck(&client.device);
}

#[test]
fn a_signal_cuts_no_write_short() {
    let client = Client::with_little_dirty();
    let file = client.create(1, b"file");
    let data = pattern(1 << 20);
    std::thread::scope(|scope| {
        // Each is taken in wholly.
        let writes = scope.spawn(|| {
            for round in 0..12u64 {
                client.write(file, round << 20, &data);
            }
        });
        while !writes.is_finished() {
            client.interrupt();
        }
    });
    assert!(client.answered_later() > 0);
    for round in 0..12u64 {
        assert!(client.read(file, round << 20, 1 << 20) == data);
    }
}

#[test]
fn a_writer_that_is_killed_waits_for_nothing() {
    let proc = tempfile::tempdir().unwrap();
    let thread = proc.path().join("7");
    std::fs::create_dir(&thread).unwrap();
    std::fs::write(thread.join("status"), "SigPnd:\t0000000000000100\n").unwrap();
    let client = Client::with_little_dirty().looking_up_threads_at(proc.path().to_owned());
    let file = client.create(1, b"file");
    let data = pattern(1 << 20);
    let taken = std::thread::scope(|scope| {
        let writes = scope.spawn(|| {
            let write = |round: u64| client.try_write(file, round << 20, &data);
            (0..64).map(write).collect::<Vec<_>>()
        });
        while !writes.is_finished() {
            client.interrupt();
        }
        writes.join().unwrap()
    });
    // It got an answer in the middle of a write.
    let is_short = |taken: &Result<u32>| match taken {
        Ok(size) => *size < 1 << 20,
        Err(error) => *error == Errno::EINTR,
    };
    assert!(taken.iter().any(is_short), "{taken:?}");
    client.server.finish().unwrap();
    e2fsck(&client.device);
}

#[test]
fn a_write_error_is_reported_once_to_each_open_file() {
    let (client, device) = Client::with_faults();
    let file = client.create(1, b"file");
    client.ask(opcode::SYNCFS, 1, &[0; 8]).unwrap();
    let handles: Vec<u64> = (0..2)
        .map(|_| opened_with(&client, file, 2, 0).unwrap().fh)
        .collect();
    let synced = |fh| {
        let it = FsyncIn {
            fh,
            ..FsyncIn::default()
        };
        client.ask(opcode::FSYNC, file, it.as_bytes()).map(|_| ())
    };
    client.write(file, 0, &pattern(50_000));
    device.fail_writes(true);
    assert_eq!(synced(handles[0]), Err(Errno::EIO));
    device.fail_writes(false);
    let executor = opened_with(&client, file, 2, 0).unwrap().fh;
    assert_eq!(synced(handles[1]), Err(Errno::EIO));
    for fh in [handles[0], handles[1], executor] {
        assert_eq!(synced(fh), Ok(()));
    }
    let release = ReleaseIn {
        fh: executor,
        ..ReleaseIn::default()
    };
    client
        .ask(opcode::RELEASE, file, release.as_bytes())
        .unwrap();
    assert!(client.server.handles.get(executor).is_none());
}

#[test]
fn what_cannot_be_read_is_an_error_and_no_end_of_the_file() {
    let client = Client::new();
    let id = client.create(1, b"file");
    client.write(id, 0, &[5; 16 * 4096]);
    let (inode, mut at) = (client.inode(id), 0);
    inode.fsync().unwrap();
    let block = 8 * 4096;
    inode
        .fiemap(0..16 * 4096, |part| {
            at = part.physical.unwrap() + block - part.offset;
            false
        })
        .unwrap();
    drop(inode);
    client.server.finish().unwrap();
    let (client, device) = Client::on_faulty(client.device);
    let id = client.lookup(1, b"file").unwrap().nodeid;
    device.fail_reads_of(at + 100);
    let read = |offset, size| {
        let it = ReadIn {
            offset,
            size,
            ..ReadIn::default()
        };
        client.ask(opcode::READ, id, it.as_bytes())
    };
    assert_eq!(read(0, 16 * 4096), Err(Errno::EIO));
    assert_eq!(read(0, block as u32), Ok(vec![5; block as usize]));
    assert_eq!(read(block, 4096), Err(Errno::EIO));
    assert_eq!(read(block + 4096, 1 << 17), Ok(vec![5; 7 * 4096]));
}

#[test]
fn data_that_replace_older_contents_are_written_by_rename_and_release() {
    let client = Client::new();
    let old = client.create(1, b"old");
    client.write(old, 0, &pattern(50_000));
    client.inode(old).fsync().unwrap();
    let new = client.create(1, b"new");
    client.write(new, 0, &pattern(40_000));
    let waits = |id| client.inode(id).delayed_blocks() > 0;
    assert!(waits(new));
    let moved = Rename2In {
        newdir: 1,
        flags: 0,
        padding: 0,
    };
    let body = [moved.as_bytes(), b"new\0old\0"].concat();
    assert_eq!(client.ask(opcode::RENAME2, 1, &body), Ok(Vec::new()));
    assert!(!waits(new));
    assert_eq!(client.lookup(1, b"old").unwrap().nodeid, new);
    let fh = opened_with(&client, new, flag::TRUNC | 1, 0).unwrap().fh;
    client.write(new, 0, &pattern(30_000));
    assert!(waits(new));
    let release = ReleaseIn {
        fh,
        ..ReleaseIn::default()
    };
    client
        .ask(opcode::RELEASE, new, release.as_bytes())
        .unwrap();
    // A thread of the pool writes.
    while waits(new) {
        std::thread::yield_now();
    }
    // Once written, later closes leave new data to the flushers.
    let fh = opened_with(&client, new, 1, 0).unwrap().fh;
    client.write(new, 40_000, &pattern(30_000));
    let release = ReleaseIn {
        fh,
        ..ReleaseIn::default()
    };
    client
        .ask(opcode::RELEASE, new, release.as_bytes())
        .unwrap();
    assert!(waits(new));
}
