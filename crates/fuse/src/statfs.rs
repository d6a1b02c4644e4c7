//! STATFS: how much space there is, when what is being deleted is gone.

use std::sync::Arc;
use std::time::{Duration, Instant};

use zerocopy::IntoBytes;

use crate::answer::Answer;
use crate::deletions::{Expected, LOOK};
use crate::pending_reply::{PendingReply, RequestContext};
use crate::reply::Out;
use crate::server::Server;

/// How long STATFS waits at most.
const ASK: Duration = Duration::from_secs(1);

/// STATFS.
pub fn statfs(server: &Arc<Server>, out: &mut Out<'_>, caller: &RequestContext<'_>) -> Answer {
    let expected = server.deletions.expected();
    if !server.deletions.is_due(expected, &server.fs) {
        return out.put(&server.statfs()).into();
    }
    answer_statfs(
        server,
        expected,
        Instant::now() + ASK,
        caller.pending_reply(),
    );
    Answer::Later
}

/// Answers when nothing is due any more, or it is time.
fn answer_statfs(
    server: &Arc<Server>,
    expected: Expected,
    until: Instant,
    pending_reply: PendingReply,
) {
    if !server.deletions.is_due(expected, &server.fs) || Instant::now() >= until {
        return pending_reply.answer(Ok(server.statfs().as_bytes()));
    }
    let (again, unique) = (Arc::clone(server), pending_reply.unique());
    let looked = move |all_ends: bool| {
        let until = if all_ends { Instant::now() } else { until };
        answer_statfs(&again, expected, until, pending_reply);
    };
    server.executor.after(LOOK, unique, looked);
}
