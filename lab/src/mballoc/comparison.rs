//! The subjects that do the steps: the kernel's ext4, our library, the lab's volume; and where it
//! put the files.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Map, Value, json};
use tempfile::TempDir;
use uext4::OpenOptions;
use uext4_blockdev::{Access, FileDevice};
use uext4_lab_policies::mballoc::{Design, KernelStats, Tunables};
use uext4_testkit::try_run;

use crate::experiment::Failure;
use crate::kernel::loops::{Mounted, Plan};
use crate::kernel::proc;
use crate::kernel::undo::Undo;
use crate::mballoc::bitmaps::MemoryBitmaps;
use crate::mballoc::image;
use crate::mballoc::measure::Counted;
use crate::mballoc::model::Model;
use crate::mballoc::volume::{Setup, Volume};
use crate::subject::{Directory, Files, Library};

/// The criteria in their order, by the kernel's names.
const CRITERIA: [&str; 5] = [
    "p2_aligned",
    "goal_fast",
    "best_avail",
    "goal_slow",
    "any_free",
];

/// Where files lie, and what is free.
#[derive(Debug)]
pub struct Layout {
    /// Extents of each of the files asked for.
    pub extents: Vec<u64>,
    /// The free runs: first block and length.
    pub free: Vec<(u64, u64)>,
}

/// A subject.
pub trait Subject {
    /// Its files.
    fn files(&self) -> &dyn Files;
    /// Where files lie by their inodes, and what is free; all was synced before.
    ///
    /// # Errors
    /// [`Failure::Run`] if it cannot be read.
    fn layout(&self, inos: &[u64]) -> Result<Layout, Failure>;
    /// The allocator's counters since it was mounted.
    ///
    /// # Errors
    /// [`Failure::Run`] if they cannot be read.
    fn counters(&self) -> Result<Counters, Failure>;
}

fn failed(error: impl std::fmt::Display) -> Failure {
    Failure::Run(error.to_string())
}

/// Counters that all subjects have.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Counters {
    /// Requests; of the kernel also those answered from what is preallocated.
    pub requests: u64,
    /// Runs measured.
    pub extents_scanned: u64,
    /// By criterion: requests it answered, and groups it considered.
    pub criteria: [Criterion; 5],
}

/// Counters of a criterion.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Criterion {
    /// Requests that it answered.
    pub hits: u64,
    /// Groups that were asked whether they may do.
    pub considered: u64,
}

impl Counters {
    fn of(counted: &Counted) -> Self {
        let stats = &counted.stats;
        Self {
            requests: stats.reqs,
            extents_scanned: stats.extents_scanned,
            criteria: stats.criteria.map(|criterion| Criterion {
                hits: criterion.hits,
                considered: criterion.groups_considered,
            }),
        }
    }

    /// Of the text of `mb_stats`. A group that an index gives is counted there twice: when it is
    /// given, and when it is asked whether it may do; here it is counted once, as the model does.
    fn parse(text: &str, has_index: bool) -> Self {
        let numbers = proc::tree(text);
        let number = |name: String| numbers.get(&name).map_or(0, |&number| number as u64);
        let times = |name: &str| {
            let is_indexed = has_index && !matches!(name, "goal_slow" | "any_free");
            if is_indexed { 2 } else { 1 }
        };
        Self {
            requests: number("mballoc/reqs".to_owned()),
            extents_scanned: number("mballoc/extents_scanned".to_owned()),
            criteria: CRITERIA.map(|name| Criterion {
                hits: number(format!("mballoc/cr_{name}_stats/hits")),
                considered: number(format!("mballoc/cr_{name}_stats/groups_considered"))
                    / times(name),
            }),
        }
    }

    /// What was counted since `before`.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        let mut this = *self;
        this.requests = this.requests.saturating_sub(before.requests);
        this.extents_scanned = this.extents_scanned.saturating_sub(before.extents_scanned);
        for (now, then) in this.criteria.iter_mut().zip(before.criteria) {
            now.hits = now.hits.saturating_sub(then.hits);
            now.considered = now.considered.saturating_sub(then.considered);
        }
        this
    }

    /// For a record; `searches` are the requests that were answered by a criterion.
    pub fn report(&self) -> Value {
        let sum = |of: fn(&Criterion) -> u64| self.criteria.iter().map(of).sum::<u64>();
        let (searches, considered) = (sum(|one| one.hits), sum(|one| one.considered));
        let by_name = CRITERIA.into_iter().zip(&self.criteria);
        let criteria = by_name.map(|(name, one)| {
            let reported = json!({ "hits": one.hits, "considered": one.considered });
            (name.to_owned(), reported)
        });
        let per_search = considered as f64 / searches.max(1) as f64;
        json!({
            "requests": self.requests,
            "searches": searches,
            "groups_considered": considered,
            "groups_a_search": per_search,
            "extents_scanned": self.extents_scanned,
            "criteria": criteria.collect::<Map<_, _>>(),
        })
    }
}

/// The kernel's ext4 on a loop device.
#[derive(Debug)]
pub struct Kernel {
    mounted: Mounted,
    files: Directory,
}

impl Kernel {
    /// Makes and mounts it.
    ///
    /// # Errors
    /// What stands in the way.
    pub fn new(device: u64) -> Result<Self, String> {
        let mounted = Mounted::new(&Plan {
            bytes: device,
            format: &["-b", "4096"],
            options: "noatime",
            ..Plan::default()
        })?;
        proc::store(&proc::attribute(&mounted.name(), "mb_stats"), "1")?;
        proc::ext4(&mounted.name(), "mb_stats")?;
        let files = Directory::new(mounted.path());
        Ok(Self { mounted, files })
    }

    /// The file system as it was made: the model begins with the same one.
    ///
    /// # Errors
    /// [`Failure::Run`] if it cannot be read.
    pub fn model(&self, setup: Setup, design: Design) -> Result<Model, Failure> {
        self.frozen(|image| model(image, setup, design, !self.has_index()))
    }

    /// Whether its searches begin with the indexes: a device that seeks has near groups asked
    /// first.
    fn has_index(&self) -> bool {
        let queue = Path::new("/sys/block").join(self.mounted.name());
        proc::number(&queue.join("queue/rotational")) == Ok(0.0)
    }

    /// Reads the image while nothing changes it.
    fn frozen<T>(&self, read: impl FnOnce(&Path) -> Result<T, Failure>) -> Result<T, Failure> {
        let path = self.mounted.path();
        let thaw = ["fsfreeze".as_ref(), "--unfreeze".as_ref(), path.as_os_str()];
        let undo = Undo::command(thaw).map_err(failed)?;
        try_run("fsfreeze", ["--freeze".as_ref(), path.as_os_str()]).map_err(failed)?;
        let result = read(&self.mounted.image());
        drop(undo);
        result
    }
}

impl Subject for Kernel {
    fn files(&self) -> &dyn Files {
        &self.files
    }

    fn layout(&self, inos: &[u64]) -> Result<Layout, Failure> {
        self.frozen(|image| read(image, inos))
    }

    fn counters(&self) -> Result<Counters, Failure> {
        let text = proc::ext4(&self.mounted.name(), "mb_stats").map_err(failed)?;
        Ok(Counters::parse(&text, self.has_index()))
    }
}

fn read(path: &Path, inos: &[u64]) -> Result<Layout, Failure> {
    let fs = image::open(path)?;
    Ok(Layout {
        extents: image::extents_of_all(&fs, inos)?,
        free: image::free_runs(&fs)?,
    })
}

/// A model on what an image holds.
fn model(path: &Path, setup: Setup, design: Design, seeks: bool) -> Result<Model, Failure> {
    let fs = image::open(path)?;
    let used = image::used_runs(&fs)?;
    let bitmaps = MemoryBitmaps::new(fs.geometry(), used.into_iter());
    // As many goals of streams as processors.
    let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let made = design.make(Tunables {
        rotational: seeks,
        stream_goals: u32::try_from(processors).map_err(failed)?,
        ..Tunables::default()
    });
    let format = (fs.geometry().clone(), bitmaps);
    Volume::on(setup, format, made).map(Model::new)
}

/// Our library on an image of ours.
pub struct Ours {
    library: Library,
    image: PathBuf,
    _dir: TempDir,
}

impl Ours {
    /// Makes and opens it, in memory if there is room.
    ///
    /// # Errors
    /// [`Failure::Run`] if there is no room for the image.
    pub fn new(device: u64) -> Result<Self, Failure> {
        let memory = Path::new("/dev/shm");
        let dir = TempDir::new_in(memory).or_else(|_| TempDir::new());
        let dir = dir.map_err(failed)?;
        let image = dir.path().join("image");
        let file = File::create(&image).and_then(|file| file.set_len(device));
        file.map_err(failed)?;
        let open = || FileDevice::open(&image, Access::ReadWrite).map_err(failed);
        let mut wishes = uext4_mkfs::Options::new([7; 16], [9; 16], 1_700_000_000);
        wishes.assume_zeroed = true;
        let layout = uext4_mkfs::layout(&wishes, device).map_err(failed)?;
        uext4_mkfs::format(&layout, &open()?).map_err(failed)?;
        let mut options = OpenOptions::default();
        // Of the gigabyte that is the default most would be data that nothing reads again.
        options.memory = Some(512 << 20);
        let library = Library::open(Arc::new(open()?), &options).map_err(failed)?;
        Ok(Self {
            library,
            image,
            _dir: dir,
        })
    }

    /// A model that begins with the same file system.
    ///
    /// # Errors
    /// [`Failure::Run`] if it cannot be read.
    pub fn model(&self, setup: Setup, design: Design) -> Result<Model, Failure> {
        model(&self.image, setup, design, false)
    }
}

impl Subject for Ours {
    fn files(&self) -> &dyn Files {
        &self.library
    }

    fn layout(&self, inos: &[u64]) -> Result<Layout, Failure> {
        self.library.volume().checkpoint().map_err(failed)?;
        read(&self.image, inos)
    }

    fn counters(&self) -> Result<Counters, Failure> {
        let stats = self.library.volume().image().stats();
        let stats = stats.allocator.unwrap_or_default();
        Ok(Counters::of(&Counted {
            stats,
            kernel: KernelStats::default(),
        }))
    }
}

impl Subject for Model {
    fn files(&self) -> &dyn Files {
        self
    }

    fn layout(&self, inos: &[u64]) -> Result<Layout, Failure> {
        let mut volume = self.volume();
        volume.evict();
        volume.check()?;
        let extents = inos.iter().map(|nr| volume.extents_count(*nr)).collect();
        Ok(Layout {
            extents,
            free: volume.bitmaps.free_runs(),
        })
    }

    fn counters(&self) -> Result<Counters, Failure> {
        Ok(Counters::of(&self.volume().counted()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_of_mb_stats_is_read() {
        let text = "mballoc:\n\treqs: 8\n\tsuccess: 8\n\tgroups_scanned: 2\n\
                    \tcr_p2_aligned_stats:\n\t\thits: 2\n\t\tgroups_considered: 3\n\
                    \t\textents_scanned: 2\n\tcr_any_free_stats:\n\t\thits: 1\n\
                    \textents_scanned: 9\n\t\tgoal_hits: 7\n";
        let counters = Counters::parse(text, false);
        let by_index = Counters::parse(text, true);
        assert_eq!(by_index.criteria[0].considered, 1);
        assert_eq!((counters.requests, counters.extents_scanned), (8, 9));
        let expected = Criterion {
            hits: 2,
            considered: 3,
        };
        assert_eq!(counters.criteria[0], expected);
        assert_eq!(counters.criteria[4].hits, 1);
        let reported = counters.since(&Counters::default()).report();
        assert_eq!(
            (&reported["searches"], &reported["groups_a_search"]),
            (&json!(3), &json!(1.0))
        );
        assert_eq!(counters.since(&counters), Counters::default());
    }
}
