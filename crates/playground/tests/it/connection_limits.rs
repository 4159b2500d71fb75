//! Tests of the server on a socket with clients that exceed limits: each is disconnected, and the server continues.
//!
//! No test measures time. Where something has to end, the test waits for as long as a test may take.

use std::future::Future;
use std::net::SocketAddr;
use std::time::Duration;

use muster_playground::{Limits, Server, Settings};
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::raw_http::{Answer, Wire};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const WATCH: &str = "GET /api/v1/namespaces/default/configmaps?watch=true HTTP/1.1\r\nHost: localhost\r\n\r\n";
const SHORT: Duration = Duration::from_millis(50);

struct Front {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    serving: JoinHandle<()>,
}

impl Front {
    async fn start(limits: Limits) -> Self {
        let server = Server::start(Settings::default());
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let (stop, stopped) = oneshot::channel::<()>();
        let serving = tokio::spawn(async move {
            let stopped = async { drop(stopped.await) };
            server.serve_until(listener, limits, stopped).await;
        });
        Self { address, stop: Some(stop), serving }
    }

    async fn wire(&self) -> Wire {
        Wire::connect(self.address).await.expect("a connection")
    }

    /// Retries until there is room for one more connection.
    async fn admitted(&self) -> Wire {
        loop {
            let mut wire = self.wire().await;
            match wire.send_request("GET", "/version", &Value::Null).await {
                Ok(answer) if answer.code == 200 => return wire,
                Ok(answer) => assert_eq!(answer.code, 429),
                Err(_) => {}
            }
        }
    }
}

/// Fails a test that hangs.
async fn within<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(60), work).await.expect("an end in time")
}

fn map(name: &str, size: usize) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"x": "x".repeat(size)}})
}

fn is_status(answer: &Answer, code: u16) -> bool {
    let value = answer.value();
    answer.code == code && value["kind"] == "Status" && value["code"] == code
}

#[tokio::test]
async fn slow_headers_are_cut_off() {
    let front = Front::start(Limits { header_time_max: SHORT, ..Limits::default() }).await;
    let mut wire = front.wire().await;
    wire.send(b"GET /version HTTP/1.1\r\nHost: lo").await.expect("sent");
    within(wire.rest()).await.expect("closed");
    // The same after a valid request.
    let mut wire = front.wire().await;
    assert_eq!(within(wire.send_request("GET", "/version", &Value::Null)).await.expect("an answer").code, 200);
    wire.send(b"GET /ver").await.expect("sent");
    within(wire.rest()).await.expect("closed");
}

#[tokio::test]
async fn slow_bodies_are_cut_off() {
    let front = Front::start(Limits { body_time_max: SHORT, ..Limits::default() }).await;
    for length in ["Content-Length: 100", "Content-Length: 1000000", "Transfer-Encoding: chunked"] {
        let mut wire = front.wire().await;
        wire.send(format!("POST {MAPS} HTTP/1.1\r\nHost: localhost\r\n{length}\r\n\r\n").as_bytes())
            .await
            .expect("sent");
        let answer = within(wire.answer()).await.expect("an answer");
        assert!(is_status(&answer, 408), "{length}: {answer:?}");
        within(wire.rest()).await.expect("closed");
    }
}

#[tokio::test]
async fn client_that_does_not_read_is_cut_off() {
    let limits = Limits { write_time_max: SHORT, connections_max: 2, ..Limits::default() };
    let front = Front::start(limits).await;
    let mut deaf = front.wire().await;
    deaf.send(WATCH.as_bytes()).await.expect("sent");
    assert_eq!(deaf.head().await.expect("a head").code, 200);
    let mut writer = front.wire().await;
    assert_eq!(writer.send_request("POST", MAPS, &map("m", 0)).await.expect("an answer").code, 201);
    // More than the socket buffers hold.
    for turn in 0..60 {
        let answer =
            writer.send_request("PUT", &format!("{MAPS}/m"), &map("m", 1_000_000 + turn)).await.expect("an answer");
        assert_eq!(answer.code, 200, "{}", answer.value());
    }
    within(front.admitted()).await;
    // The same for a response that is not read.
    for turn in 0..20 {
        let created = writer.send_request("POST", MAPS, &map(&format!("n{turn}"), 1_000_000)).await.expect("an answer");
        assert_eq!(created.code, 201);
    }
    let mut deaf = within(front.admitted()).await;
    deaf.send(format!("GET {MAPS} HTTP/1.1\r\nHost: localhost\r\n\r\n").as_bytes()).await.expect("sent");
    within(front.admitted()).await;
    assert!(within(deaf.rest()).await.map_or(0, |rest| rest.len()) < 20_000_000);
}

#[tokio::test]
async fn half_closed_connections_end() {
    use tokio::io::AsyncWriteExt;
    let front = Front::start(Limits { connections_max: 1, ..Limits::default() }).await;
    for request in ["", "GET /ver", WATCH] {
        let mut wire = within(front.admitted()).await;
        wire.send(request.as_bytes()).await.expect("sent");
        if request == WATCH {
            assert_eq!(wire.head().await.expect("a head").code, 200);
        }
        wire.stream.get_mut().shutdown().await.expect("half closed");
        let _ = within(wire.rest()).await;
    }
    within(front.admitted()).await;
}

#[tokio::test]
async fn number_of_connections_is_limited() {
    let front = Front::start(Limits { connections_max: 3, ..Limits::default() }).await;
    let mut held = Vec::new();
    for _ in 0..3 {
        held.push(within(front.admitted()).await);
    }
    let mut late = front.wire().await;
    let answer = within(late.send_request("GET", "/version", &Value::Null)).await.expect("an answer");
    assert!(is_status(&answer, 429), "{answer:?}");
    assert_eq!((answer.header("retry-after"), answer.header("connection")), (Some("1"), Some("close")));
    for wire in &mut held {
        assert_eq!(within(wire.send_request("GET", "/version", &Value::Null)).await.expect("an answer").code, 200);
    }
    // Connections far above the limit are closed without a response, and the server continues.
    let mut crowd = Vec::new();
    for _ in 0..200 {
        crowd.push(front.wire().await);
    }
    drop(crowd);
    held.pop();
    within(front.admitted()).await;
}

#[tokio::test]
async fn oversized_requests_are_rejected() {
    let front = Front::start(Limits::default()).await;
    let head = |lines: &str| format!("POST {MAPS} HTTP/1.1\r\nHost: localhost\r\n{lines}\r\n\r\n");
    let mut wire = front.wire().await;
    wire.send(head("Content-Length: 3145729").as_bytes()).await.expect("sent");
    assert!(is_status(&within(wire.answer()).await.expect("an answer"), 413));
    let mut wire = front.wire().await;
    wire.send(head("Transfer-Encoding: chunked").as_bytes()).await.expect("sent");
    let chunk = format!("100000\r\n{}\r\n", "x".repeat(0x10_0000));
    for _ in 0..3 {
        wire.send(chunk.as_bytes()).await.expect("sent");
    }
    wire.send(b"1\r\n").await.expect("sent");
    wire.send(b"x").await.expect("sent");
    assert!(is_status(&within(wire.answer()).await.expect("an answer"), 413));
    let mut wire = front.wire().await;
    let long = format!("X: {}", "y".repeat(100_000));
    wire.send(head(&long).as_bytes()).await.expect("sent");
    assert_eq!(within(wire.answer()).await.expect("an answer").code, 431);
    let mut wire = front.wire().await;
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let length = format!("Content-Length: {}\r\nContent-Type: application/json", deep.len());
    wire.send(format!("{}{deep}", head(&length)).as_bytes()).await.expect("sent");
    assert!(is_status(&within(wire.answer()).await.expect("an answer"), 400));
    // The connection is still usable.
    assert_eq!(within(wire.send_request("POST", MAPS, &map("m", 10))).await.expect("an answer").code, 201);
}

#[tokio::test]
async fn stop_ends_watches_and_finishes_requests() {
    let mut front = Front::start(Limits::default()).await;
    let mut watch = front.wire().await;
    watch.send(WATCH.as_bytes()).await.expect("sent");
    assert_eq!(watch.head().await.expect("a head").code, 200);
    let body = map("m", 10).to_string();
    let mut writer = front.wire().await;
    let head = format!("POST {MAPS} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n", body.len());
    writer.send(format!("{head}{}", &body[..10]).as_bytes()).await.expect("sent");
    // This request was sent later and is answered: the first one is in flight by then.
    let mut idle = front.wire().await;
    assert_eq!(idle.send_request("GET", "/version", &Value::Null).await.expect("an answer").code, 200);
    front.stop.take().expect("not stopped").send(()).expect("it serves");
    within(idle.rest()).await.expect("closed");
    let rest = within(watch.rest()).await.expect("closed");
    assert!(rest.ends_with(b"0\r\n\r\n"), "the stream ends well: {}", String::from_utf8_lossy(&rest));
    writer.send(&body.as_bytes()[10..]).await.expect("sent");
    assert_eq!(within(writer.answer()).await.expect("an answer").code, 201);
    within(front.serving).await.expect("it has stopped");
    assert!(Wire::connect(front.address).await.is_err(), "the port is closed");
}

#[tokio::test]
async fn stop_does_not_wait_forever() {
    let mut front = Front::start(Limits { stop_time_max: SHORT, ..Limits::default() }).await;
    let mut wire = front.wire().await;
    wire.send(format!("POST {MAPS} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n").as_bytes())
        .await
        .expect("sent");
    front.stop.take().expect("not stopped").send(()).expect("it serves");
    within(front.serving).await.expect("it has stopped");
    let _ = within(wire.rest()).await;
}

#[tokio::test]
async fn foreign_web_page_is_rejected() {
    let front = Front::start(Limits::default()).await;
    for header in ["Host: evil.example", "Host: localhost\r\nOrigin: https://evil.example"] {
        let mut wire = front.wire().await;
        wire.send(format!("GET /version HTTP/1.1\r\n{header}\r\n\r\n").as_bytes()).await.expect("sent");
        let answer = within(wire.answer()).await.expect("an answer");
        assert!(is_status(&answer, 403), "{header}: {answer:?}");
    }
}
