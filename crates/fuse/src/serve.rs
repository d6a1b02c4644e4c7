//! The answering side, as a transport sees it: the [`Server`] of an image, or any
//! other.

use std::fmt::Debug;
use std::sync::Arc;

use crate::abi::flags::init as has;
use crate::answer::Answer;
use crate::init::Negotiated;
use crate::pending_reply::Channel;
use crate::protocol::{self, Protocol};
use crate::reply::Out;
use crate::request::Request;
use crate::server::Server;

/// Answers requests of a mount, of as many threads as there are.
pub trait Serve: Debug + Send + Sync + Sized + 'static {
    /// Does what is asked for; the reply goes into `out`, or through the channel later. The first
    /// request is INIT, after whose answer there is a [`Serve::negotiated`].
    fn handle(
        self: &Arc<Self>,
        request: &Request<'_>,
        out: &mut Out<'_>,
        channel: &Arc<dyn Channel>,
    ) -> Answer;

    /// What was agreed on, once INIT was answered.
    fn negotiated(&self) -> Option<&Negotiated>;

    /// After the last request: what waits for an answer gets one, and all is durable.
    ///
    /// # Errors
    /// Those of the engine.
    fn finish(&self) -> uext4::Result<()>;

    /// The form in which the kernel asks.
    fn protocol(&self) -> &'static Protocol {
        match self.negotiated() {
            Some(negotiated) if negotiated.has(has::SETXATTR_EXT) => &protocol::CURRENT,
            _ => &protocol::BEFORE_SETXATTR_EXT,
        }
    }
}

impl Serve for Server {
    fn handle(
        self: &Arc<Self>,
        request: &Request<'_>,
        out: &mut Out<'_>,
        channel: &Arc<dyn Channel>,
    ) -> Answer {
        // The server's own; the same for the others.
        Server::handle(self, request, out, channel)
    }

    fn negotiated(&self) -> Option<&Negotiated> {
        Server::negotiated(self)
    }

    fn finish(&self) -> uext4::Result<()> {
        Server::finish(self)
    }
}
