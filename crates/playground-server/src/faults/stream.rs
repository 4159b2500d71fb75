//! Fault injection into the stream of a watch, event by event.

use std::collections::VecDeque;
use std::io;

use axum::body::{Body, BodyDataStream};
use bytes::{Bytes, BytesMut};
use futures::StreamExt;
use http::Response;
use serde_json::json;

use super::{Faults, StreamFault, lost, status};

/// The same response, with faults in its stream.
pub(super) fn with_faults(response: Response<Body>, faults: Faults, path: String) -> Response<Body> {
    let (parts, body) = response.into_parts();
    let lines = Lines {
        stream: body.into_data_stream(),
        rest: BytesMut::new(),
        ready: VecDeque::new(),
        faults,
        path,
        over: false,
    };
    let stream =
        futures::stream::unfold(lines, |mut lines| async move { lines.next().await.map(|line| (line, lines)) });
    Response::from_parts(parts, Body::from_stream(stream))
}

struct Lines {
    stream: BodyDataStream,
    /// An incomplete line.
    rest: BytesMut,
    ready: VecDeque<Bytes>,
    faults: Faults,
    path: String,
    over: bool,
}

impl Lines {
    async fn next(&mut self) -> Option<io::Result<Bytes>> {
        if self.over {
            return None;
        }
        let line = loop {
            if let Some(line) = self.ready.pop_front() {
                break line;
            }
            match self.stream.next().await? {
                Ok(chunk) => self.split(&chunk),
                Err(error) => return Some(Err(io::Error::other(error))),
            }
        };
        match self.faults.draw_for_event(&self.path) {
            None => Some(Ok(line)),
            Some(StreamFault::Late(time)) => {
                tokio::time::sleep(time).await;
                Some(Ok(line))
            }
            Some(StreamFault::Repeated) => {
                let mut repeated = BytesMut::from(&*line);
                repeated.extend_from_slice(&line);
                Some(Ok(repeated.freeze()))
            }
            Some(fault) => {
                self.over = true;
                match fault {
                    StreamFault::Cut => None,
                    StreamFault::Expired => {
                        let gone = status(410, "Expired", "too old resource version", None);
                        Some(Ok(format!("{}\n", json!({"type": "ERROR", "object": gone})).into()))
                    }
                    _ => Some(Err(lost())),
                }
            }
        }
    }

    fn split(&mut self, chunk: &[u8]) {
        self.rest.extend_from_slice(chunk);
        while let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
            self.ready.push_back(self.rest.split_to(end + 1).freeze());
        }
    }
}
