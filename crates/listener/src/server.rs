//! Accepts the connections of a listener, each in its own task: a failure affects no other one.

use std::fmt;
use std::future::Future;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet};
use tokio::time::sleep;
use tokio_rustls::TlsAcceptor;

use crate::byte_budget::ByteBudget;
use crate::connection;
use crate::connection_table::{Admission, ConnectionTable, Slot};
use crate::{Limits, ThrottledLog};

const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The IP address of the client, an extension of every request.
#[derive(Clone, Copy, Debug)]
pub struct Peer(pub IpAddr);

/// How clients talk to a listener.
#[derive(Clone)]
pub enum Transport {
    /// Plain HTTP.
    Plain,
    /// HTTPS.
    Tls(TlsAcceptor),
}

impl fmt::Debug for Transport {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Plain => "Plain",
            Self::Tls(_) => "Tls",
        })
    }
}

/// What all connections of a listener share.
pub(crate) struct Listener {
    pub(crate) name: &'static str,
    pub(crate) transport: Transport,
    pub(crate) limits: Limits,
    pub(crate) router: Router,
    pub(crate) budget: Arc<ByteBudget>,
    pub(crate) log: ThrottledLog,
    table: Arc<ConnectionTable>,
}

/// A source of connections: a socket, or the streams of a test.
pub(crate) trait Accept {
    type Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static;

    fn accept(&mut self) -> impl Future<Output = io::Result<(Self::Stream, IpAddr)>> + Send;
}

impl Accept for TcpListener {
    type Stream = TcpStream;

    async fn accept(&mut self) -> io::Result<(TcpStream, IpAddr)> {
        let (stream, peer) = TcpListener::accept(self).await?;
        // Answers are written whole, so delaying small packets has no benefit. A failure is harmless.
        let _ = stream.set_nodelay(true);
        Ok((stream, peer.ip().to_canonical()))
    }
}

impl Listener {
    pub(crate) fn new(name: &'static str, transport: Transport, limits: Limits, router: Router) -> Arc<Self> {
        let (budget, table) = (ByteBudget::new(limits.bodies_bytes_max), ConnectionTable::new(&limits));
        Arc::new(Self { name, transport, limits, router, budget, log: ThrottledLog::default(), table })
    }

    /// Serves until the sender of `stop` is dropped: then no connection is accepted, and requests in progress are
    /// completed within their deadline.
    pub(crate) async fn serve(self: Arc<Self>, mut accept: impl Accept, mut stop: watch::Receiver<()>) {
        let mut connections = JoinSet::new();
        loop {
            tokio::select! {
                _ = stop.changed() => break,
                Some(ended) = connections.join_next() => self.report_panic(ended),
                accepted = accept.accept() => match accepted {
                    Ok((stream, peer)) => {
                        if let Some(slot) = self.admit(peer) {
                            connections.spawn(connection::run(Arc::clone(&self), slot, stream, stop.clone()));
                        }
                    }
                    Err(error) => self.recover(&error).await,
                },
            }
        }
        drop(accept);
        while let Some(ended) = connections.join_next().await {
            self.report_panic(ended);
        }
    }

    fn admit(&self, peer: IpAddr) -> Option<Slot> {
        let listener = self.name;
        match self.table.admit(peer) {
            Admission::Admitted(slot) => Some(slot),
            Admission::Replaces(slot, replaced) => {
                if let Some(suppressed) = self.log.admit() {
                    tracing::warn!(
                        listener, %peer, %replaced, suppressed,
                        "too many connections: closed one that waited for its client"
                    );
                }
                Some(slot)
            }
            Admission::Refused => {
                if let Some(suppressed) = self.log.admit() {
                    tracing::warn!(listener, %peer, suppressed, "too many connections: refused a new one");
                }
                None
            }
        }
    }

    /// The client of a new connection is gone already, or there are too many open files.
    async fn recover(&self, error: &io::Error) {
        let replaced = self.table.evict_one();
        if let Some(suppressed) = self.log.admit() {
            tracing::warn!(listener = self.name, %error, ?replaced, suppressed, "a connection could not be accepted");
        }
        sleep(ACCEPT_PAUSE).await;
    }

    fn report_panic(&self, ended: Result<(), JoinError>) {
        if let Err(error) = ended {
            tracing::error!(listener = self.name, %error, "a connection ended by a bug");
        }
    }
}
