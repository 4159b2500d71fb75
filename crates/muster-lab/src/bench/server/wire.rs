//! A minimal HTTP/1.1 client on one connection, so that the cost of the server dominates.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, bail};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const READ_SIZE: usize = 64 * 1024;

/// One connection, reused for all requests.
pub(crate) struct Wire {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Wire {
    pub(crate) async fn connect(address: SocketAddr) -> anyhow::Result<Self> {
        let stream = TcpStream::connect(address).await.with_context(|| format!("connecting to {address}"))?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, buffer: Vec::with_capacity(READ_SIZE) })
    }

    /// Sends a request and returns the body; anything but success is an error.
    pub(crate) async fn send_request(&mut self, method: &str, path: &str, body: &str) -> anyhow::Result<Vec<u8>> {
        self.send(method, path, body).await?;
        let (code, length, start) = self.head().await?;
        while self.buffer.len() < start + length {
            self.read().await?;
        }
        let rest = self.buffer.split_off(start + length);
        let answer = std::mem::replace(&mut self.buffer, rest).split_off(start);
        if !(200..300).contains(&code) {
            bail!("{method} {path}: {code}: {}", String::from_utf8_lossy(&answer));
        }
        Ok(answer)
    }

    /// Opens a watch and counts its events for as long as it lasts.
    pub(crate) async fn count_events(
        mut self,
        path: &str,
        opened: impl FnOnce(),
        events: &AtomicU64,
    ) -> anyhow::Result<()> {
        self.send("GET", path, "").await?;
        let (code, _, start) = self.head().await?;
        if code != 200 {
            bail!("GET {path}: {code}");
        }
        opened();
        // A line of the stream ends with a brace; the lines between its chunks do not.
        let count = |last: &mut u8, bytes: &[u8]| {
            let mut found = 0;
            for byte in bytes {
                found += u64::from(*byte == b'\n' && *last == b'}');
                *last = *byte;
            }
            found
        };
        let mut last = 0;
        events.fetch_add(count(&mut last, &self.buffer[start..]), Ordering::Relaxed);
        loop {
            self.buffer.clear();
            self.read().await?;
            events.fetch_add(count(&mut last, &self.buffer), Ordering::Relaxed);
        }
    }

    async fn send(&mut self, method: &str, path: &str, body: &str) -> anyhow::Result<()> {
        let length = body.len();
        let head = "HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json";
        let request = format!("{method} {path} {head}\r\nContent-Length: {length}\r\n\r\n{body}");
        Ok(self.stream.write_all(request.as_bytes()).await?)
    }

    /// Reads the head: the code, the length of the body, and where it begins in the buffer.
    async fn head(&mut self) -> anyhow::Result<(u16, usize, usize)> {
        let end = loop {
            if let Some(end) = self.buffer.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
                break end + 4;
            }
            self.read().await?;
        };
        let head = String::from_utf8_lossy(&self.buffer[..end]).to_ascii_lowercase();
        let code = head.split(' ').nth(1).and_then(|code| code.parse().ok()).context("a response that is not HTTP")?;
        let length = head.lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse().ok());
        Ok((code, length.unwrap_or(0), end))
    }

    async fn read(&mut self) -> anyhow::Result<()> {
        self.buffer.reserve(READ_SIZE);
        if self.stream.read_buf(&mut self.buffer).await? == 0 {
            bail!("the server has closed the connection");
        }
        Ok(())
    }
}
