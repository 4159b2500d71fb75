//! A socket with a write timeout.
//!
//! Without it a client that does not read would hold its response forever. Invariant: the peer accepts at least one
//! byte within the timeout. Must not depend on what is written.

use std::future::Future;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::Sleep;

pub(super) struct WriteTimeout {
    stream: TcpStream,
    time_max: Duration,
    /// Runs while a write is blocked.
    timer: Option<Pin<Box<Sleep>>>,
}

impl WriteTimeout {
    pub(super) fn new(stream: TcpStream, time_max: Duration) -> Self {
        Self { stream, time_max, timer: None }
    }

    fn check_timeout<T>(&mut self, outcome: Poll<io::Result<T>>, context: &mut Context<'_>) -> Poll<io::Result<T>> {
        if outcome.is_ready() {
            self.timer = None;
            return outcome;
        }
        let time_max = self.time_max;
        let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep(time_max)));
        ready!(timer.as_mut().poll(context));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl AsyncRead for WriteTimeout {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for WriteTimeout {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let outcome = Pin::new(&mut this.stream).poll_write(context, bytes);
        this.check_timeout(outcome, context)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let outcome = Pin::new(&mut this.stream).poll_write_vectored(context, pieces);
        this.check_timeout(outcome, context)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }
}
