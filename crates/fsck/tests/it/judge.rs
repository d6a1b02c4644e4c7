//! What is asked of one damaged image, and who answers: e2fsck, the examination again, and the
//! comparison with the files of before.

use std::fmt;
use std::fs;
use std::io::Read;
use std::num::NonZeroUsize;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use uext4_blockdev::MemoryDevice;
use uext4_fsck::{Finding, Observer, Options, Outcome, examine, plan};
use uext4_testkit::damage::images::Sample;
use uext4_testkit::damage::{Contents, Hurt, Survey};
use uext4_testkit::e2fsck;
use uext4_testkit::mutants::oracle::Oracle;

/// How long the examination or the plan of a small image may take.
pub const TIME_MAX: Duration = Duration::from_secs(10);
/// Bytes that they may use for tables and changes.
pub const MEMORY_MAX: u64 = 64 << 20;
/// Bytes that e2fsck may say.
const SAID_MAX: u64 = 1 << 20;

/// What e2fsck says of an image.
#[derive(Clone, Debug)]
pub struct Verdict {
    /// Its exit code.
    pub code: i32,
    /// Its first complaints. There are some that it makes, and exits with 0.
    pub complaints: String,
    /// Whether it asked to mend something.
    pub asks: bool,
}

impl Verdict {
    /// Whether it found something, mentioned or counted.
    pub fn is_seen(&self) -> bool {
        self.code != 0 || !self.complaints.is_empty()
    }

    /// Whether an examination that says this agrees: damage is what e2fsck asks to mend, whatever
    /// its exit code. What it only mentions may be a finding or not.
    pub fn agrees(&self, is_clean: bool) -> bool {
        match self.code {
            0 if self.asks => !is_clean,
            0 => is_clean || !self.complaints.is_empty(),
            _ => !is_clean,
        }
    }
}

/// Where the expectation was not met.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Fault {
    /// It panicked.
    Panic,
    /// It took too long.
    Time,
    /// One of us and e2fsck found something, and the other did not.
    Disagreement,
    /// No plan was made.
    NoPlan,
    /// e2fsck finds something after the plan.
    Unclean,
    /// A second examination finds something after the plan.
    Again,
    /// What was not damaged is not there any more.
    Lost,
}

/// A fault, and what shows it.
#[derive(Clone, Debug)]
pub struct Complaint {
    /// What went wrong.
    pub fault: Fault,
    /// What was said.
    pub said: String,
}

impl fmt::Display for Complaint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.fault, self.said)
    }
}

/// Stops what takes too long.
#[derive(Debug)]
struct Deadline(Instant);

impl Observer for Deadline {
    fn finding(&self, finding: &Finding) {
        assert!(!finding.to_string().is_empty());
    }

    fn is_cancelled(&self) -> bool {
        self.0.elapsed() > TIME_MAX
    }
}

/// The outcome of an examination or a plan, or why there is none.
pub type Answer = Result<Outcome, Complaint>;

/// Which of the two is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// [`examine`].
    Examination,
    /// [`plan`].
    Plan,
}

/// Asks for the examination or the plan of an image.
pub fn ask(asked: Asked, image: &[u8]) -> Answer {
    let options = Options {
        // The number of threads must make no difference.
        threads: match asked {
            Asked::Examination => NonZeroUsize::MIN,
            Asked::Plan => NonZeroUsize::MIN.saturating_add(1),
        },
        memory: MEMORY_MAX,
        remake: asked == Asked::Plan,
        now: now(),
        ..Options::default()
    };
    let device = Arc::new(MemoryDevice::from_bytes(image.to_vec())) as _;
    let start = Instant::now();
    let deadline = Deadline(start);
    let run = || match asked {
        Asked::Examination => examine(&device, &options, &deadline),
        Asked::Plan => plan(&device, &options, &deadline),
    };
    crate::cases::forget_panic();
    let answer = catch_unwind(AssertUnwindSafe(run));
    let complain = |fault, said: String| Complaint {
        fault,
        said: format!("{asked:?}: {said}"),
    };
    if start.elapsed() > TIME_MAX {
        return Err(complain(Fault::Time, format!("{:?}", start.elapsed())));
    }
    let answer = answer.map_err(|_| complain(Fault::Panic, crate::cases::last_panic()))?;
    answer.map_err(|error| complain(Fault::NoPlan, error.to_string()))
}

/// The time by which e2fsck finds times of the superblock in the future, too.
fn now() -> u32 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    u32::try_from(now.as_secs()).unwrap_or(u32::MAX)
}

/// The image with the changes of an outcome.
pub fn applied(image: &[u8], outcome: &Outcome) -> Vec<u8> {
    let mut bytes = image.to_vec();
    let log2 = outcome.overlay.block_size().log2();
    let changes = outcome.overlay.for_each_change(|change| {
        let at = (change.block.0 << log2) as usize;
        bytes[at..at + change.content.len()].copy_from_slice(&change.content);
        Ok(())
    });
    changes.unwrap();
    bytes
}

/// The first findings, as text.
pub fn first_findings(outcome: &Outcome) -> String {
    let findings = outcome.findings.iter().take(3);
    let lines: Vec<_> = findings.map(|(_, finding)| finding.to_string()).collect();
    lines.join("; ")
}

/// What of an image's files is no longer there though it was not hurt.
fn missing(clean: &Sample, mended: &[u8], hurt: &Hurt) -> Vec<String> {
    let after = catch_unwind(|| Contents::new(&Survey::new(mended.to_vec())));
    match after {
        Ok(after) => clean.contents.missing(&after, hurt),
        Err(_) => vec![format!("cannot be read: {}", crate::cases::last_panic())],
    }
}

/// What `e2fsck -fn` said, and its exit code.
#[derive(Debug)]
struct Said {
    code: i32,
    text: String,
}

/// Asks `e2fsck -fn`. It may complain of what it did not mend for ever: it is stopped then.
fn asked(image: &Path) -> Said {
    let mut command = Command::new("e2fsck");
    command.arg("-fn").arg(image).stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    let mut text = Vec::new();
    // Without a reader it ends at the next line.
    let pipe = child.stdout.take().unwrap();
    pipe.take(SAID_MAX).read_to_end(&mut text).unwrap();
    let status = child.wait().unwrap();
    let is_stopped = text.len() as u64 == SAID_MAX;
    Said {
        code: status.code().unwrap_or(if is_stopped { 4 } else { -1 }),
        text: String::from_utf8_lossy(&text).into_owned(),
    }
}

/// Asks e2fsck of images. Each thread has its own.
#[derive(Debug)]
pub struct Judge {
    oracle: Oracle,
}

impl Judge {
    pub fn new() -> Self {
        Self {
            oracle: Oracle::new(),
        }
    }

    /// Where the image is that was written last.
    pub fn path(&self) -> &Path {
        self.oracle.path()
    }

    /// Writes an image, its zeroes as holes.
    pub fn write(&self, image: &[u8]) {
        self.oracle.write(image);
    }

    /// Asks `e2fsck -fn`.
    pub fn e2fsck(&self, image: &[u8]) -> Verdict {
        self.write(image);
        let Said { code, text } = asked(self.path());
        let is_complaint = |line: &&str| {
            let of_the_frame = [
                "exit status",
                "Pass ",
                "e2fsck 1",
                "Fix? no",
                "/dev/shm",
                "/tmp",
            ];
            !line.is_empty() && !of_the_frame.iter().any(|start| line.starts_with(start))
        };
        let complaints: Vec<_> = text.lines().filter(is_complaint).take(4).collect();
        Verdict {
            code,
            complaints: complaints.join("; "),
            asks: text.contains("? no"),
        }
    }

    /// Makes the plan for a damaged image, and looks at what comes of it.
    pub fn repair(&self, clean: &Sample, image: &[u8], hurt: &Hurt) -> Result<Vec<u8>, Complaint> {
        let mended = self.mended(image)?;
        let missing = missing(clean, &mended, hurt);
        if missing.is_empty() {
            return Ok(mended);
        }
        Err(Complaint {
            fault: Fault::Lost,
            said: format!(
                "{}; {}",
                self.lost_by_e2fsck(clean, image, hurt),
                missing.join("; ")
            ),
        })
    }

    /// Whether e2fsck makes a clean image of it, and that image is what was written last then.
    pub fn can_e2fsck_mend(&self, image: &[u8]) -> bool {
        self.write(image);
        for _ in 0..3 {
            e2fsck(self.path(), "-fy");
        }
        asked(self.path()).code == 0
    }

    /// Whether a repair by e2fsck loses what ours loses, in words.
    fn lost_by_e2fsck(&self, clean: &Sample, image: &[u8], hurt: &Hurt) -> &'static str {
        if !self.can_e2fsck_mend(image) {
            return "e2fsck cannot repair it";
        }
        let mended = fs::read(self.path()).unwrap();
        match missing(clean, &mended, hurt).is_empty() {
            true => "e2fsck keeps it",
            false => "e2fsck loses it, too",
        }
    }

    /// What the plan for an image makes of it, if it is clean then.
    pub fn mended(&self, image: &[u8]) -> Result<Vec<u8>, Complaint> {
        let outcome = ask(Asked::Plan, image)?;
        let mended = applied(image, &outcome);
        let verdict = self.e2fsck(&mended);
        if verdict.code != 0 {
            return Err(Complaint {
                fault: Fault::Unclean,
                said: format!("e2fsck exits {}: {}", verdict.code, verdict.complaints),
            });
        }
        let again = ask(Asked::Examination, &mended)?;
        if !again.is_clean {
            return Err(Complaint {
                fault: Fault::Again,
                said: first_findings(&again),
            });
        }
        Ok(mended)
    }
}
