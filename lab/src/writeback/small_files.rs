//! W3: fs_mark, millions of files of one byte.

use serde_json::{Value, json};
use uext4_lab_policies::writeback::Mode;

use super::machine::{MICRO, Model, Nanos, Plan, SECOND, Work, round};
use super::trial::{accepts, by_policy, config, machine, scaled};
use crate::claim::{Bound, Claim, Failure, Figure, Gate, Measure, Printed, Setting};

pub const CLAIM: Claim = Claim {
    name: "writeback-small-files",
    title: "fs_mark with files of 1 byte, 8 and 12 threads with a directory each: files a second, requests, processor time",
    source: "Wu Fengguang and Dave Chinner, [PATCH 00/13] IO-less dirty throttling, linux-mm, 17 November 2010",
    analysis: "Making a file costs 114 us and writing its inode 38 us, from the thread's processor shares after the \
               patch; each takes the lock of the inode lists several times. Memory is a tenth of the files' data, as \
               in the thread. Not modelled: other locks, memory reclaim, and the metadata that made Wu's disks seek \
               for each file.",
    figures: &[
        Printed {
            what: "Wu, 2.6.36: files/s, app overhead, average of 18 rows",
            printed: "1182.761 533488581.833",
        },
        Printed {
            what: "Wu, 2.6.36+, average of 28 rows",
            printed: "1146.768 294684785.143",
        },
        Printed {
            what: "Chinner, before: files/s, first rows",
            printed: "27825.7 22650.2 23606.3 23060.5 22677.4 23095.7 22639.2 23447.1 22775.8 22766.5 21685.5 22899.5 22950.7",
        },
        Printed {
            what: "Chinner, after",
            printed: "26163.6 21960.4 22099.2 22052.1 21264.4 21815.3 21557.6 21856.0 21853.5 21309.4 22130.8",
        },
        Printed {
            what: "Chinner, before",
            printed: "373.19user 14940.49system 41:42.17elapsed 612%CPU",
        },
        Printed {
            what: "Chinner, after",
            printed: "359.64user 5559.32system 40:53.23elapsed 241%CPU",
        },
        Printed {
            what: "Chinner, after: vdb wrqm/s w/s wMB/s avgrq-sz await svctm %util",
            printed: "12022.20 11431.60 114.09 20.44 2.82 0.08 94.64",
        },
        Printed {
            what: "Chinner, the write I/Os",
            printed: "the number of write IOs have dropped by ~25%",
        },
    ],
    policies: &["vanilla", "ioless", "mainline", "cell-rate"],
    accepts,
    parameters: &[],
    gates: GATES,
    measure: Measure::Counted,
    run,
};

/// Processor time of making a file: (250 % − …) of eight processors at 22,000 files a second.
const CREATE: Nanos = 114 * MICRO;

const GATES: &[Gate] = &[
    Gate {
        what: "8 threads, ioless over vanilla: files a second (printed 0.955)",
        figure: Figure::Ratio("/ioless/8/files", "/vanilla/8/files"),
        bound: Bound::Within(0.92, 1.01),
    },
    Gate {
        what: "8 threads, ioless over vanilla: requests (printed ~0.75)",
        figure: Figure::Ratio("/ioless/8/requests", "/vanilla/8/requests"),
        bound: Bound::AtMost(0.9),
    },
    Gate {
        what: "8 threads, ioless over vanilla: processor time (printed 0.386)",
        figure: Figure::Ratio("/ioless/8/cpu", "/vanilla/8/cpu"),
        bound: Bound::AtMost(0.6),
    },
    Gate {
        what: "8 threads, ioless over vanilla: elapsed (printed 0.980)",
        figure: Figure::Ratio("/ioless/8/elapsed", "/vanilla/8/elapsed"),
        bound: Bound::AtMost(1.01),
    },
    Gate {
        what: "12 disks, ioless over vanilla: files a second (printed 0.970)",
        figure: Figure::Ratio("/ioless/12/files", "/vanilla/12/files"),
        bound: Bound::Within(0.92, 1.01),
    },
    Gate {
        what: "8 threads, cell-rate with 4 flushers over mainline: elapsed",
        figure: Figure::Ratio("/cell-rate/8/elapsed", "/mainline/8/elapsed"),
        bound: Bound::AtMost(0.8),
    },
    Gate {
        what: "8 threads, cell-rate with 4 flushers over mainline: requests",
        figure: Figure::Ratio("/cell-rate/8/requests", "/mainline/8/requests"),
        bound: Bound::AtMost(1.05),
    },
];

fn run(setting: &Setting) -> Result<Value, Failure> {
    by_policy(setting, |mode| {
        // Flushers of the array: as many as our policy asks for on what does not seek.
        let flushers = if mode == Mode::CellRate { 4 } else { 1 };
        let striped = Model {
            flushers,
            ..Model::striped()
        };
        Ok(json!({
            "8": one(setting, mode, 8, vec![striped])?,
            "12": one(setting, mode, 12, vec![Model::disk(); 12])?,
        }))
    })
}

/// Threads make files, each in a directory of its own, on the one device or each on its own.
fn one(setting: &Setting, mode: Mode, threads: u64, devices: Vec<Model>) -> Result<Value, Failure> {
    let files = scaled(setting, 20_000, 100_000);
    let devices_count = devices.len();
    // A tenth of the files' data: the thread's 13 rows of 800,000 files were 42 GB beside 4 GB.
    let memory = threads * files * 4096 / 10;
    let config = config(setting, mode, memory, devices);
    let plans: Vec<Plan> = (0..threads as usize)
        .map(|index| Plan {
            device: index % devices_count,
            work: Work::Files(files, CREATE),
            ..Plan::copy()
        })
        .collect();
    let mut machine = machine(&config, &plans)?;
    let end = 3600 * SECOND;
    let made = machine.run_to_end(end).unwrap_or(end) as f64 / SECOND as f64;
    let summary = machine.summary();
    let requests = summary.requests * machine.now() as f64 / SECOND as f64;
    let cpu = (summary.writer_cpu + summary.flusher_cpu) * machine.now() as f64 / SECOND as f64;
    Ok(json!({
        "files": round((threads * files) as f64 / made, 1),
        "elapsed": round(made, 3),
        "requests": round(requests, 0),
        "cpu": round(cpu, 3),
        "flusher_cpu": round(summary.flusher_cpu, 4),
        "handovers": round(summary.handovers, 1),
        "busy": round(summary.busy, 4),
        "wakes": round(summary.wakes, 1),
        "pause_max_ms": round(summary.pause_max_ms, 2),
    }))
}
