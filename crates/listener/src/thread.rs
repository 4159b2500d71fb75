//! A listener on a thread and runtime of its own, so that its clients delay nothing else in the process.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use tokio::net::TcpListener;
use tokio::runtime;
use tokio::sync::{oneshot, watch};

use crate::server::Listener;
use crate::{Limits, Transport};

/// A running listener. Dropping it closes the socket and idle connections; requests in progress are answered within
/// the deadline of the limits, and then the thread ends.
#[derive(Debug)]
pub struct ListenerThread {
    address: SocketAddr,
    /// Dropping it stops the listener.
    stop: watch::Sender<()>,
    ended: oneshot::Receiver<()>,
}

impl ListenerThread {
    /// Listens on an address; port 0 selects a free port. The name is that of the thread, and is in log lines.
    pub async fn start(
        name: &'static str,
        address: SocketAddr,
        transport: Transport,
        limits: Limits,
        router: Router,
    ) -> io::Result<Self> {
        let (stop, stopped) = watch::channel(());
        let (start, started) = oneshot::channel();
        let (end, ended) = oneshot::channel();
        let listener = Listener::new(name, transport, limits, router);
        let run = move || {
            run(listener, address, start, stopped);
            // The receiver may be gone.
            let _ = end.send(());
        };
        std::thread::Builder::new().name(name.to_owned()).spawn(run)?;
        let address = started.await.map_err(|_| io::Error::other("the thread of the listener has panicked"))??;
        Ok(Self { address, stop, ended })
    }

    /// The address it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Waits until the listener ends on its own, which only a bug can cause.
    pub async fn ended(&mut self) {
        // An error means that the thread has panicked.
        let _ = (&mut self.ended).await;
    }

    /// Stops the listener and waits until its requests in progress have ended.
    pub async fn stop(self) {
        drop(self.stop);
        let _ = self.ended.await;
    }
}

/// The thread: reports the address that it listens on, and serves until it is stopped.
fn run(
    listener: Arc<Listener>,
    address: SocketAddr,
    start: oneshot::Sender<io::Result<SocketAddr>>,
    stopped: watch::Receiver<()>,
) {
    let bound = runtime::Builder::new_current_thread().enable_all().build().and_then(|runtime| {
        let socket = runtime.block_on(TcpListener::bind(address))?;
        let address = socket.local_addr()?;
        Ok((runtime, socket, address))
    });
    match bound {
        Ok((runtime, socket, address)) => {
            if start.send(Ok(address)).is_ok() {
                runtime.block_on(listener.serve(socket, stopped));
            }
        }
        Err(error) => {
            // The receiver may be gone.
            let _ = start.send(Err(error));
        }
    }
}
