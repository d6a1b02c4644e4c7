//! What a request of a mount costs, with caller and daemon on one processor and on two.

use std::io;
use std::time::Duration;

use uext4_fuse::cost::{self, RoundTrips};

use super::Finding;

const SUBJECT: &str = "round trip";
/// Between two processors it takes so many times as long where that is worth avoiding.
const CROSSING: u32 = 2;

/// Mounts an empty file system for a moment, and measures.
pub fn check() -> Finding {
    judged(cost::round_trips())
}

fn judged(measured: io::Result<RoundTrips>) -> Finding {
    let micros = |time: Duration| time.as_nanos() as f64 / 1000.0;
    let RoundTrips { one_cpu, two_cpus } = match measured {
        Ok(measured) => measured,
        Err(error) => {
            let text = format!("could not be measured: {error}");
            return Finding::note(SUBJECT, text, "see the checks above");
        }
    };
    let one = format!("a request takes {:.1} µs on one processor", micros(one_cpu));
    match two_cpus {
        None => Finding::ok(SUBJECT, one),
        Some(two) => {
            let text = format!("{one}, {:.1} µs between two", micros(two));
            match two > one_cpu * CROSSING {
                false => Finding::ok(SUBJECT, text),
                true => Finding::note(
                    SUBJECT,
                    text,
                    "`-o placement=auto`, the default, serves one program at a time on its own \
                     processor; for several at once io_uring, and processors that wake fast",
                ),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::State;
    use super::*;

    #[test]
    fn a_costly_crossing_is_a_note() {
        let of = |one, two: Option<u64>| {
            judged(Ok(RoundTrips {
                one_cpu: Duration::from_micros(one),
                two_cpus: two.map(Duration::from_micros),
            }))
        };
        assert_eq!(of(10, Some(15)).state, State::Ok);
        assert_eq!(of(10, None).state, State::Ok);
        let slow = of(12, Some(50));
        assert_eq!(slow.state, State::Note);
        assert!(
            slow.text
                .contains("12.0 µs on one processor, 50.0 µs between two")
        );
        let refused = judged(Err(io::ErrorKind::PermissionDenied.into()));
        assert_eq!(refused.state, State::Note);
    }
}
