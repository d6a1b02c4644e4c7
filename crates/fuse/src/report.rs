//! Messages that belong to no request. They go to standard error and to the system log, because a
//! daemon has no other channel.

use std::io::Write;
use std::os::unix::net::UnixDatagram;

/// Where the system's log takes messages.
const LOG: &str = "/dev/log";
/// `LOG_DAEMON | LOG_ERR`.
const PRIORITY: u32 = 3 << 3 | 3;

/// Reports a sentence.
pub fn report(what: &str) {
    // Where neither is there, no thread listens.
    _ = writeln!(std::io::stderr(), "uext4: {what}");
    if let Ok(socket) = UnixDatagram::unbound() {
        _ = socket.set_nonblocking(true);
        let line = format!("<{PRIORITY}>uext4[{}]: {what}", std::process::id());
        _ = socket.send_to(line.as_bytes(), LOG);
    }
}
