//! A kernel's side for tests: asks a server as a mount would, without one.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use uext4::tuning::Background;
use uext4::{Image, OpenInode, OpenOptions, Volume};
use uext4_blockdev::{BlockDevice, Error, MemoryDevice, SystemClock};
use uext4_mkfs::{BlockSizeWish, FsType, Options, format, layout, parse_features};
use uext4_ondisk::BlockSize;
pub use uext4_testkit::{RingsAllowed, assert_device_clean as e2fsck};
use zerocopy::{FromBytes, IntoBytes};

use crate::abi::{
    CreateIn, EntryOut, ForgetIn, InHeader, InitIn, InterruptIn, MkdirIn, ReadIn, WriteIn, opcode,
};
use crate::answer::Answer;
use crate::dying::Threads;
use crate::errno::Result;
use crate::omitted::Omitted;
use crate::owners::Owners;
use crate::pending_reply::Channel;
use crate::protocol::Protocol;
use crate::reply::{Out, Validity};
use crate::request::{Body, Request};
use crate::serve::Serve as _;
use crate::served::Served;
use crate::server::Server;
use crate::sync_policy::SyncPolicy;

/// Bytes of the images.
const LEN: u64 = 64 << 20;

/// Where late answers go.
#[derive(Debug, Default)]
struct Answers {
    all: Mutex<HashMap<u64, Result<Vec<u8>>>>,
    came: Condvar,
    count: AtomicU64,
    /// Nodes whose attributes the kernel was to forget, each time.
    forgotten: Mutex<Vec<u64>>,
    /// Nodes of which the kernel was to write what it holds, each time.
    written: Mutex<Vec<u64>>,
    /// Whether the thread that asks may wait, and how often it has.
    may_wait: AtomicBool,
    waits: AtomicU64,
}

impl Channel for Answers {
    fn send(&self, unique: u64, answer: Result<&[u8]>) {
        let answer = answer.map(<[u8]>::to_vec);
        assert!(self.all.lock().unwrap().insert(unique, answer).is_none());
        self.count.fetch_add(1, SeqCst);
        self.came.notify_all();
    }

    fn write_back(&self, id: u64) {
        self.written.lock().unwrap().push(id);
    }

    fn forget_attributes(&self, id: u64) {
        self.forgotten.lock().unwrap().push(id);
    }

    fn may_wait(&self) -> bool {
        self.may_wait.swap(false, SeqCst)
    }

    fn has_waited(&self) {
        self.waits.fetch_add(1, SeqCst);
        self.may_wait.store(true, SeqCst);
    }
}

/// A device whose writes fail while they are to, and whose users panic.
#[derive(Debug)]
pub struct Faulty {
    device: Arc<MemoryDevice>,
    fails: AtomicBool,
    /// Writes find no space, and how many have found none.
    is_full: AtomicBool,
    full: AtomicU64,
    panics: AtomicBool,
    /// A byte that cannot be read.
    bad: AtomicU64,
    /// Nanoseconds that each byte takes to be written.
    pace: u64,
}

impl Faulty {
    fn of(device: &Arc<MemoryDevice>, pace: u64) -> Arc<Self> {
        Arc::new(Self {
            device: Arc::clone(device),
            fails: AtomicBool::new(false),
            is_full: AtomicBool::new(false),
            full: AtomicU64::new(0),
            panics: AtomicBool::new(false),
            bad: AtomicU64::new(u64::MAX),
            pace,
        })
    }

    pub fn panic(&self, on: bool) {
        self.panics.store(on, SeqCst);
    }

    pub fn fail_reads_of(&self, byte: u64) {
        self.bad.store(byte, SeqCst);
    }

    pub fn fail_writes(&self, on: bool) {
        self.fails.store(on, SeqCst);
    }

    /// Has writes find no space, or some again; how many found none since it was asked last.
    pub fn fill(&self, on: bool) -> u64 {
        self.is_full.store(on, SeqCst);
        self.full.swap(0, SeqCst)
    }
}

impl BlockDevice for Faulty {
    fn len(&self) -> u64 {
        self.device.len()
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> std::result::Result<(), Error> {
        assert!(!self.panics.load(SeqCst), "to be caught");
        let range = offset..offset + buf.len() as u64;
        match range.contains(&self.bad.load(SeqCst)) {
            true => Err(Error::Io {
                op: "read",
                offset,
                source: std::io::Error::other("injected"),
            }),
            false => self.device.read_at(offset, buf),
        }
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> std::result::Result<(), Error> {
        assert!(!self.panics.load(SeqCst), "to be caught");
        let failed = |source| Error::Io {
            op: "write",
            offset,
            source,
        };
        if self.is_full.load(SeqCst) {
            self.full.fetch_add(1, SeqCst);
            return Err(failed(std::io::ErrorKind::StorageFull.into()));
        }
        std::thread::sleep(Duration::from_nanos(self.pace * buf.len() as u64));
        match self.fails.load(SeqCst) {
            true => Err(failed(std::io::Error::other("injected"))),
            false => self.device.write_at(offset, buf),
        }
    }

    fn flush(&self) -> std::result::Result<(), Error> {
        self.device.flush()
    }

    fn discard(&self, offset: u64, len: u64) -> std::result::Result<(), Error> {
        self.device.discard(offset, len)
    }
}

/// The caller.
pub struct Client {
    pub server: Arc<Server>,
    pub device: Arc<MemoryDevice>,
    answers: Arc<Answers>,
    unique: AtomicU64,
    uid: u32,
    started: i64,
}

fn image(features: &str) -> Arc<MemoryDevice> {
    let options = Options {
        fs_type: FsType::Ext4,
        block_size: BlockSize::from_bytes(4096).map(BlockSizeWish::Exactly),
        features: parse_features(features).unwrap(),
        ..Options::new([7; 16], [9; 16], 1_700_000_000)
    };
    let device = Arc::new(MemoryDevice::new(LEN));
    format(&layout(&options, LEN).unwrap(), &*device).unwrap();
    device
}

fn open(device: &Arc<MemoryDevice>, options: &str) -> Volume {
    open_on(Arc::<MemoryDevice>::clone(device), options)
}

fn open_on(device: Arc<dyn BlockDevice>, options: &str) -> Volume {
    let mut all = OpenOptions::default();
    all.background = Background::None;
    all.options(options).unwrap();
    Volume::open(device, Arc::new(SystemClock), &all).unwrap()
}

/// An empty file system, opened for writing.
pub fn file_system() -> (Volume, Arc<MemoryDevice>) {
    let device = image("");
    (open(&device, ""), device)
}

impl Client {
    fn of(device: Arc<MemoryDevice>, fs: impl Into<Served>) -> Self {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        Self {
            server: Arc::new(Server::new(fs, Validity::default()).unwrap()),
            device,
            answers: Arc::default(),
            unique: AtomicU64::new(2),
            uid: 1000,
            started: now.unwrap().as_secs() as i64,
        }
    }

    /// After INIT.
    pub fn greeted(self) -> Self {
        self.greeted_by(40)
    }

    /// After INIT of a kernel that speaks this minor version.
    pub fn greeted_by(self, minor: u32) -> Self {
        let it = InitIn {
            major: 7,
            minor,
            flags: u32::MAX,
            flags2: u32::MAX,
            ..InitIn::default()
        };
        self.ask(opcode::INIT, 0, it.as_bytes()).unwrap();
        self
    }

    fn writable(features: &str, options: &str) -> Self {
        let device = image(features);
        let fs = open(&device, options);
        Self::of(device, fs)
    }

    /// Of a new file system that is written.
    pub fn new() -> Self {
        Self::without_init().greeted()
    }

    /// The same before INIT.
    pub fn without_init() -> Self {
        Self::writable("", "")
    }

    /// Of a new file system whose files are shown as others'.
    pub fn with_owners(owners: Owners) -> Self {
        let new = Self::without_init();
        // OK to unwrap: no other thread has it yet.
        let server = Arc::into_inner(new.server).unwrap().owned_by(owners);
        Self {
            server: Arc::new(server),
            ..new
        }
        .greeted()
    }

    /// Where any thread may write names, for nothing is summed.
    pub fn without_checksums() -> Self {
        Self::writable("^metadata_csum", "").greeted()
    }

    /// What is to be durable before it is answered.
    pub fn with_sync_policy(sync_policy: SyncPolicy) -> Self {
        Self::new().awaiting(sync_policy)
    }

    /// The same, of what was asked nothing yet.
    pub fn awaiting(self, sync_policy: SyncPolicy) -> Self {
        // OK to unwrap: no other thread has it yet.
        let server = Arc::into_inner(self.server).unwrap();
        let server = Arc::new(server.with_sync_policy(sync_policy));
        Self { server, ..self }
    }

    /// Without these kinds of requests; asked nothing yet.
    pub fn omitting(self, omitted: Omitted) -> Self {
        // OK to unwrap: no other thread has it yet.
        let server = Arc::into_inner(self.server).unwrap().omitting(omitted);
        Self {
            server: Arc::new(server),
            ..self
        }
    }

    /// For which the kernel gathers what is written.
    pub fn with_writeback_cache() -> Self {
        Self::without_init().gathering().greeted_by(45)
    }

    /// The same, of what was asked nothing yet.
    pub fn gathering(self) -> Self {
        // OK to unwrap: no other thread has it yet.
        let server = Arc::into_inner(self.server).unwrap();
        let server = Arc::new(server.with_writeback_cache());
        Self { server, ..self }
    }

    /// With projects.
    pub fn with_projects() -> Self {
        Self::writable("project,quota", "").greeted()
    }

    /// Where writers soon have to wait: for a device that takes 20 ms for a MiB.
    pub fn with_little_dirty() -> Self {
        let device = image("");
        let slow = Faulty::of(&device, 20);
        let options = "dirty_bytes=2097152,dirty_background_bytes=1048576";
        let client = Self::of(device, open_on(slow, options));
        let volume = client.server.file_system().volume().unwrap();
        volume.start_background().unwrap();
        client.greeted()
    }

    /// The same, where threads are looked up in another directory than `/proc`.
    pub fn looking_up_threads_at(self, proc: std::path::PathBuf) -> Self {
        // OK to unwrap: no other thread has it yet.
        let mut server = Arc::into_inner(self.server).unwrap();
        server.threads = Threads::at(proc);
        let server = Arc::new(server);
        Self { server, ..self }
    }

    /// Of a new file system on a device whose writes may fail.
    pub fn with_faults() -> (Self, Arc<Faulty>) {
        Self::on_faulty(image(""))
    }

    /// Of a file system there is, on a device that may fail.
    pub fn on_faulty(device: Arc<MemoryDevice>) -> (Self, Arc<Faulty>) {
        let faulty = Faulty::of(&device, 0);
        let fs = open_on(Arc::<Faulty>::clone(&faulty), "");
        (Self::of(device, fs).greeted(), faulty)
    }

    /// Of a new file system that is only read.
    pub fn read_only() -> Self {
        Self::only_reading(image(""))
    }

    fn only_reading(device: Arc<MemoryDevice>) -> Self {
        let shared: Arc<dyn BlockDevice> = Arc::<MemoryDevice>::clone(&device);
        let fs = Image::open(shared, &OpenOptions::default()).unwrap();
        Self::of(device, fs).greeted()
    }

    /// The same image, of which nothing is in memory yet.
    pub fn reopened(self) -> Self {
        let fs = open(&self.device, "");
        Self::of(self.device, fs).greeted()
    }

    /// The same image, only read.
    pub fn reopened_read_only(self) -> Self {
        Self::only_reading(self.device)
    }

    /// The same with root's id.
    pub fn asking_as_root(self) -> Self {
        Self { uid: 0, ..self }
    }

    /// As when those the caller last get a signal.
    pub fn interrupt(&self) {
        let last = self.unique.load(SeqCst);
        for back in 1..=8 {
            let unique = last.saturating_sub(2 * back);
            let reported = self.ask(opcode::INTERRUPT, 0, InterruptIn { unique }.as_bytes());
            assert_eq!(reported, Ok(Vec::new()));
        }
    }

    /// Asks and waits for the answer, in both forms that requests have.
    pub fn ask(&self, code: u32, id: u64, body: &[u8]) -> Result<Vec<u8>> {
        self.ask_by(self.server.protocol(), code, id, body)
    }

    /// The same in another form of the protocol.
    pub fn ask_by(&self, protocol: &Protocol, code: u32, id: u64, body: &[u8]) -> Result<Vec<u8>> {
        let unique = self.unique.fetch_add(2, SeqCst);
        let header = InHeader {
            len: (size_of::<InHeader>() + body.len()) as u32,
            opcode: code,
            unique,
            nodeid: id,
            uid: self.uid,
            gid: 100,
            pid: 7,
            ..InHeader::default()
        };
        let bytes = [header.as_bytes(), body].concat();
        let (header, body) = Request::header(&bytes)?;
        assert!(matches!(body, Body::Joined(_)));
        let request = protocol.decode(header, body)?;
        let mut buffer = vec![0; 1 << 21];
        let mut out = Out::new(&mut buffer);
        match self.server.handle(&request, &mut out, &self.channel()) {
            Answer::Now(done) => done.map(|()| out.filled().to_vec()),
            Answer::Later => self.answer_to(unique),
            Answer::Never => Ok(Vec::new()),
        }
    }

    /// The same where the answer begins with a structure.
    pub fn get<T: FromBytes>(&self, code: u32, id: u64, body: &[u8]) -> Result<T> {
        let reported = self.ask(code, id, body)?;
        Ok(T::read_from_prefix(&reported).unwrap().0)
    }

    /// Where late answers go.
    pub fn channel(&self) -> Arc<dyn Channel> {
        Arc::<Answers>::clone(&self.answers) as Arc<dyn Channel>
    }

    /// The late answer to a request.
    pub fn answer_to(&self, unique: u64) -> Result<Vec<u8>> {
        let mut all = self.answers.all.lock().unwrap();
        loop {
            if let Some(answer) = all.remove(&unique) {
                return answer;
            }
            let waited = self
                .answers
                .came
                .wait_timeout(all, Duration::from_secs(60))
                .unwrap();
            assert!(!waited.1.timed_out(), "no answer to {unique}");
            all = waited.0;
        }
    }

    /// From now on the thread that asks may wait for the disk, one at a time.
    pub fn allow_waiting(&self) {
        self.answers.may_wait.store(true, SeqCst);
    }

    /// How often it has waited, and whether it may again.
    pub fn waits(&self) -> (u64, bool) {
        let may_wait = self.answers.may_wait.load(SeqCst);
        (self.answers.waits.load(SeqCst), may_wait)
    }

    /// Nodes whose attributes the kernel was to forget, since this was asked last.
    pub fn forgotten(&self) -> Vec<u64> {
        std::mem::take(&mut *self.answers.forgotten.lock().unwrap())
    }

    /// Nodes of which the kernel was to write what it holds, since this was asked last.
    pub fn written_back(&self) -> Vec<u64> {
        std::mem::take(&mut *self.answers.written.lock().unwrap())
    }

    /// How many requests were answered late.
    pub fn answered_later(&self) -> u64 {
        self.answers.count.load(SeqCst)
    }

    pub fn lookup(&self, dir: u64, name: &[u8]) -> Result<EntryOut> {
        self.get(opcode::LOOKUP, dir, &[name, b"\0"].concat())
    }

    pub fn create(&self, dir: u64, name: &[u8]) -> u64 {
        let it = CreateIn {
            flags: 2,
            mode: 0o100_644,
            umask: 0o022,
            open_flags: 0,
        };
        let body = [it.as_bytes(), name, b"\0"].concat();
        let made: EntryOut = self.get(opcode::CREATE, dir, &body).unwrap();
        made.nodeid
    }

    pub fn mkdir(&self, dir: u64, name: &[u8]) -> u64 {
        let it = MkdirIn {
            mode: 0o755,
            umask: 0,
        };
        let body = [it.as_bytes(), name, b"\0"].concat();
        let made: EntryOut = self.get(opcode::MKDIR, dir, &body).unwrap();
        made.nodeid
    }

    pub fn write(&self, id: u64, offset: u64, data: &[u8]) {
        self.write_with(id, offset, data, 0, 0);
    }

    pub fn write_with(&self, id: u64, offset: u64, data: &[u8], write_flags: u32, flags: u32) {
        let it = WriteIn {
            offset,
            size: data.len() as u32,
            write_flags,
            flags,
            ..WriteIn::default()
        };
        assert_eq!(
            self.ask_to_write(id, &it, data).unwrap() as usize,
            data.len()
        );
    }

    /// Writes, and returns how many bytes were taken in.
    pub fn try_write(&self, id: u64, offset: u64, data: &[u8]) -> Result<u32> {
        let it = WriteIn {
            offset,
            size: data.len() as u32,
            ..WriteIn::default()
        };
        self.ask_to_write(id, &it, data)
    }

    fn ask_to_write(&self, id: u64, it: &WriteIn, data: &[u8]) -> Result<u32> {
        let body = [it.as_bytes(), data].concat();
        let reported: crate::abi::WriteOut = self.get(opcode::WRITE, id, &body)?;
        Ok(reported.size)
    }

    pub fn read(&self, id: u64, offset: u64, len: usize) -> Vec<u8> {
        let it = ReadIn {
            offset,
            size: len as u32,
            ..ReadIn::default()
        };
        self.ask(opcode::READ, id, it.as_bytes()).unwrap()
    }

    pub fn forget(&self, id: u64, nlookup: u64) {
        let reported = self.ask(opcode::FORGET, id, ForgetIn { nlookup }.as_bytes());
        assert_eq!(reported, Ok(Vec::new()));
    }

    /// The engine's handle of a node.
    pub fn inode(&self, id: u64) -> OpenInode {
        let node = self.server.nodes().get(id).unwrap();
        node.writable().unwrap().clone()
    }

    pub fn read_device(&self, at: u64, buf: &mut [u8]) {
        self.device.read_at(at, buf).unwrap();
    }

    /// Seconds since 1970 when this began.
    pub fn clock_start(&self) -> i64 {
        self.started
    }
}
