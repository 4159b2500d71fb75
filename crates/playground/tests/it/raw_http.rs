//! A raw HTTP client, for tests that need the bytes.

use std::net::SocketAddr;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

/// A connection for consecutive requests.
pub(crate) struct Wire {
    pub(crate) stream: BufReader<TcpStream>,
}

/// A response, as far as tests need it.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) code: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn value(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }
}

impl Wire {
    pub(crate) async fn connect(address: SocketAddr) -> std::io::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream: BufReader::new(stream) })
    }

    pub(crate) async fn send(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.stream.get_mut().write_all(bytes).await
    }

    pub(crate) async fn send_request(&mut self, method: &str, path: &str, body: &Value) -> std::io::Result<Answer> {
        let (body, media_type) = match (body, method) {
            (Value::Null, _) => (String::new(), "application/json"),
            (body, "PATCH") => (body.to_string(), "application/merge-patch+json"),
            (body, _) => (body.to_string(), "application/json"),
        };
        let length = body.len();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {media_type}\r\nContent-Length: {length}\r\n\r\n"
        );
        self.send(format!("{head}{body}").as_bytes()).await?;
        self.answer().await
    }

    /// Status and headers.
    pub(crate) async fn head(&mut self) -> std::io::Result<Answer> {
        let ended = || std::io::Error::from(std::io::ErrorKind::UnexpectedEof);
        let mut line = String::new();
        if self.stream.read_line(&mut line).await? == 0 {
            return Err(ended());
        }
        let code = line.split(' ').nth(1).and_then(|code| code.parse().ok()).ok_or_else(ended)?;
        let mut headers = Vec::new();
        loop {
            line.clear();
            if self.stream.read_line(&mut line).await? == 0 {
                return Err(ended());
            }
            let Some((name, value)) = line.trim_end().split_once(':') else { break };
            headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
        Ok(Answer { code, headers, body: Vec::new() })
    }

    /// A whole response: with a content length, or chunked as large lists are.
    pub(crate) async fn answer(&mut self) -> std::io::Result<Answer> {
        let mut answer = self.head().await?;
        if answer.header("transfer-encoding") == Some("chunked") {
            answer.body = self.pieces().await?;
            return Ok(answer);
        }
        let length = answer.header("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
        answer.body.resize(length, 0);
        self.stream.read_exact(&mut answer.body).await?;
        Ok(answer)
    }

    /// A chunked body.
    async fn pieces(&mut self) -> std::io::Result<Vec<u8>> {
        let garbled = || std::io::Error::from(std::io::ErrorKind::InvalidData);
        let mut body = Vec::new();
        loop {
            let mut line = String::new();
            self.stream.read_line(&mut line).await?;
            let length = usize::from_str_radix(line.trim_end(), 16).map_err(|_| garbled())?;
            let start = body.len();
            body.resize(start + length + 2, 0);
            self.stream.read_exact(&mut body[start..]).await?;
            if !body.ends_with(b"\r\n") {
                return Err(garbled());
            }
            body.truncate(start + length);
            if length == 0 {
                return Ok(body);
            }
        }
    }

    /// Everything until the server closes the connection; an error if it is reset.
    pub(crate) async fn rest(&mut self) -> std::io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.stream.read_to_end(&mut bytes).await?;
        Ok(bytes)
    }
}
