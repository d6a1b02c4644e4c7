//! STATFS: how much space there is, when what is being deleted is gone.

use std::sync::Arc;
use std::time::{Duration, Instant};

use zerocopy::IntoBytes;

use crate::answer::Answer;
use crate::deletions::{Expected, LOOK};
use crate::reply::Out;
use crate::server::Server;
use crate::ticket::{Asker, Ticket};

/// How long STATFS waits at most.
const ASK: Duration = Duration::from_secs(1);

/// STATFS.
pub fn statfs(server: &Arc<Server>, out: &mut Out<'_>, caller: &Asker<'_>) -> Answer {
    let expected = server.deletions.expected();
    if !server.deletions.is_due(expected, &server.fs) {
        return out.put(&server.statfs()).into();
    }
    answer_statfs(server, expected, Instant::now() + ASK, caller.ticket());
    Answer::Later
}

/// Answers when nothing is due any more, or it is time.
fn answer_statfs(server: &Arc<Server>, expected: Expected, until: Instant, ticket: Ticket) {
    if !server.deletions.is_due(expected, &server.fs) || Instant::now() >= until {
        return ticket.answer(Ok(server.statfs().as_bytes()));
    }
    let (again, unique) = (Arc::clone(server), ticket.unique());
    let looked = move |all_ends: bool| {
        let until = if all_ends { Instant::now() } else { until };
        answer_statfs(&again, expected, until, ticket);
    };
    server.late.after(LOOK, unique, looked);
}
