//! A listener against slow, unfinished and numerous clients, in memory and in virtual time.

use std::io;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::routing::{get, post};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use crate::server::{Accept, Listener};
use crate::{Limits, ListenerThread, Transport};

const HOSTILE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));
const HONEST: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 2));
/// What is between a client and the listener: kernel buffers, in a cluster.
const PIPE_BYTES: usize = 4 << 10;

pub(crate) fn limits() -> Limits {
    Limits {
        connections_max: 100,
        connections_per_peer_max: 50,
        header_deadline: Duration::from_secs(10),
        body_deadline: Duration::from_secs(4),
        answer_deadline: Duration::from_secs(30),
        idle_deadline: Duration::from_secs(180),
        stop_deadline: Duration::from_secs(10),
        body_bytes_max: 3 << 20,
        bodies_bytes_max: 16 << 20,
    }
}

/// A listener in memory.
struct TestListener {
    clients: mpsc::UnboundedSender<(DuplexStream, IpAddr)>,
    stop: Option<watch::Sender<()>>,
    serving: JoinHandle<()>,
}

async fn slow_length(body: Bytes) -> String {
    sleep(Duration::from_secs(20)).await;
    body.len().to_string()
}

struct Streams(mpsc::UnboundedReceiver<(DuplexStream, IpAddr)>);

impl Accept for Streams {
    type Stream = DuplexStream;

    async fn accept(&mut self) -> io::Result<(DuplexStream, IpAddr)> {
        match self.0.recv().await {
            Some(accepted) => Ok(accepted),
            None => std::future::pending().await,
        }
    }
}

impl TestListener {
    fn start(limits: Limits) -> Self {
        let router = Router::new()
            .route("/livez", get(|| async { "ok" }))
            .route("/length", post(|body: Bytes| async move { body.len().to_string() }))
            .route("/slow", post(slow_length));
        let (clients, accepted) = mpsc::unbounded_channel();
        let (stop, stopped) = watch::channel(());
        let listener = Listener::new("test", Transport::Plain, limits, router);
        let serving = tokio::spawn(listener.serve(Streams(accepted), stopped));
        Self { clients, stop: Some(stop), serving }
    }

    fn connect(&self, peer: IpAddr) -> Client {
        let (ours, theirs) = duplex(PIPE_BYTES);
        self.clients.send((theirs, peer)).unwrap();
        Client { stream: ours }
    }

    async fn is_alive(&self, peer: IpAddr) -> bool {
        let mut client = self.connect(peer);
        client.send("GET /livez HTTP/1.1\r\nhost: a\r\n\r\n").await && client.answer().await == (200, "ok".to_owned())
    }
}

struct Client {
    stream: DuplexStream,
}

impl Client {
    /// Whether the listener has taken it; it waits as long as the listener does not read.
    async fn send(&mut self, text: &str) -> bool {
        self.stream.write_all(text.as_bytes()).await.is_ok()
    }

    /// The status and the body of the next response; status 0 if the connection was closed.
    async fn answer(&mut self) -> (u16, String) {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            match self.stream.read_u8().await {
                Ok(byte) => head.push(byte),
                Err(_) => return (0, String::new()),
            }
        }
        let head = String::from_utf8(head).unwrap().to_lowercase();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        let mut body = vec![0; length.map_or(0, |length| length.parse().unwrap())];
        self.stream.read_exact(&mut body).await.unwrap();
        let text = String::from_utf8(body).unwrap();
        let retry = if head.contains("retry-after: 1") { "retry: " } else { "" };
        (head.split(' ').nth(1).unwrap().parse().unwrap(), format!("{retry}{text}"))
    }

    async fn is_closed(&mut self) -> bool {
        matches!(self.stream.read(&mut [0]).await, Ok(0) | Err(_))
    }
}

fn post_head(length: usize) -> String {
    format!("POST /length HTTP/1.1\r\nhost: a\r\ncontent-length: {length}\r\n\r\n")
}

#[tokio::test(start_paused = true)]
async fn half_sent_requests_do_not_keep_others_from_being_answered() {
    let began = Instant::now();
    let listener = TestListener::start(limits());
    let mut half_sent = Vec::new();
    for _ in 0..1100 {
        let mut client = listener.connect(HOSTILE);
        client.send("GET /livez HTTP/1.1\r\nhost: a\r\n").await;
        half_sent.push(client);
    }
    assert!(listener.is_alive(HONEST).await);
    assert!(listener.is_alive(HOSTILE).await, "also if the kubelet has the same address");
    assert_eq!(began.elapsed(), Duration::ZERO, "without waiting for a deadline");
}

#[tokio::test(start_paused = true)]
async fn unfinished_bodies_hold_no_more_than_the_budget_and_others_are_answered() {
    // Five bodies use all of it.
    let bodies_bytes_max = 15 << 20;
    let limits = Limits { connections_max: 1000, connections_per_peer_max: 500, bodies_bytes_max, ..limits() };
    let listener = TestListener::start(limits);
    let taken = Arc::new(Mutex::new(0));
    let mut hostile = Vec::new();
    for _ in 0..300 {
        let (mut client, taken) = (listener.connect(HOSTILE), Arc::clone(&taken));
        hostile.push(tokio::spawn(async move {
            client.send(&post_head(limits.body_bytes_max)).await;
            let part = "x".repeat(PIPE_BYTES);
            for _ in 1..limits.body_bytes_max / PIPE_BYTES {
                if !client.send(&part).await {
                    return client;
                }
                *taken.lock().unwrap() += PIPE_BYTES;
            }
            client
        }));
    }
    // Bodies are read as far as the budget goes, before any deadline.
    sleep(Duration::from_millis(500)).await;
    let buffers = 300 * (PIPE_BYTES + (64 << 10));
    let taken = *taken.lock().unwrap();
    assert!(taken <= limits.bodies_bytes_max + buffers, "{taken} bytes");
    assert!(taken > limits.bodies_bytes_max / 2, "{taken} bytes: the clients have sent little");
    let began = Instant::now();
    for _ in 0..10 {
        let mut client = listener.connect(HONEST);
        client.send(&(post_head(5) + "12345")).await;
        assert_eq!(client.answer().await, (200, "5".to_owned()));
    }
    assert_eq!(began.elapsed(), Duration::ZERO, "an unfinished body gave way at once");
    drop(hostile);
}

#[tokio::test(start_paused = true)]
async fn body_without_memory_is_refused_at_its_deadline() {
    let listener = TestListener::start(Limits { bodies_bytes_max: 5, body_bytes_max: 5, ..limits() });
    let mut slow = listener.connect(HOSTILE);
    slow.send("POST /slow HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\n\r\n12345").await;
    let mut client = listener.connect(HONEST);
    client.send(&(post_head(1) + "1")).await;
    let began = Instant::now();
    let reason = "the bodies of other requests use all of the 5 bytes for bodies, try again later";
    assert_eq!(client.answer().await, (503, format!("retry: /length: {reason}\n")));
    assert_eq!(began.elapsed().as_secs(), 4);
    assert!(client.is_closed().await);
    assert_eq!(slow.answer().await, (200, "5".to_owned()), "a complete body keeps its memory");
    let mut client = listener.connect(HONEST);
    client.send(&(post_head(1) + "1")).await;
    assert_eq!(client.answer().await, (200, "1".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn slow_body_gives_way_to_others_of_its_peer() {
    let listener = TestListener::start(Limits { bodies_bytes_max: 5, body_bytes_max: 5, ..limits() });
    let mut slow = listener.connect(HONEST);
    slow.send(&post_head(5)).await;
    let mut client = listener.connect(HONEST);
    client.send(&(post_head(1) + "1")).await;
    let began = Instant::now();
    assert_eq!(client.answer().await, (200, "1".to_owned()));
    assert_eq!(began.elapsed().as_secs(), 1);
    let reason = "the body was not complete when others needed its memory, try again later";
    assert_eq!(slow.answer().await, (503, format!("retry: /length: {reason}\n")));
}

#[tokio::test(start_paused = true)]
async fn deadlines_end_headers_bodies_and_idle_connections() {
    let listener = TestListener::start(limits());
    let after = async |text: &str| {
        let began = Instant::now();
        let mut client = listener.connect(HONEST);
        client.send(text).await;
        let (status, _) = client.answer().await;
        assert!(client.is_closed().await);
        (status, began.elapsed().as_secs())
    };
    assert_eq!(after("").await, (0, 10));
    assert_eq!(after("GET /livez HTTP/1.1\r\nhost: a\r\n").await, (0, 10));
    assert_eq!(after(&post_head(5)).await, (408, 4));
    assert_eq!(after("GET /livez HTTP/1.1\r\nhost: a\r\n\r\n").await, (200, 180));

    // The headers of a further request have their deadline from their first byte on.
    let mut client = listener.connect(HONEST);
    client.send("GET /livez HTTP/1.1\r\nhost: a\r\n\r\n").await;
    assert_eq!(client.answer().await.0, 200);
    sleep(Duration::from_secs(100)).await;
    let began = Instant::now();
    client.send("GET").await;
    assert!(client.is_closed().await);
    assert_eq!(began.elapsed().as_secs(), 10);
}

#[tokio::test(start_paused = true)]
async fn trickled_body_does_not_extend_its_deadline() {
    let listener = TestListener::start(limits());
    let mut client = listener.connect(HONEST);
    let began = Instant::now();
    client.send(&post_head(100)).await;
    for _ in 0..7 {
        sleep(Duration::from_millis(500)).await;
        assert!(client.send("x").await);
    }
    assert_eq!(client.answer().await, (408, "/length: the body did not arrive in time\n".to_owned()));
    assert_eq!(began.elapsed().as_secs(), 4);
}

#[tokio::test(start_paused = true)]
async fn body_above_the_limit_is_refused() {
    let listener = TestListener::start(Limits { body_bytes_max: 5, ..limits() });
    let mut client = listener.connect(HONEST);
    client.send(&post_head(6)).await;
    assert_eq!(client.answer().await, (413, "/length: the body has more than 5 bytes\n".to_owned()));
    let mut client = listener.connect(HONEST);
    let head = "POST /length HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n";
    client.send(&format!("{head}3\r\nabc\r\n3\r\ndef\r\n0\r\n\r\n")).await;
    assert_eq!(client.answer().await.0, 413);
    let mut client = listener.connect(HONEST);
    client.send(&format!("{head}3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n")).await;
    assert_eq!(client.answer().await, (200, "5".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn stop_closes_idle_connections_and_completes_requests() {
    let mut listener = TestListener::start(limits());
    let mut idle = listener.connect(HONEST);
    idle.send("GET /livez HTTP/1.1\r\nhost: a\r\n\r\n").await;
    assert_eq!(idle.answer().await.0, 200);
    let mut busy = listener.connect(HONEST);
    busy.send(&post_head(5)).await;
    sleep(Duration::from_millis(1)).await;
    listener.stop.take();
    assert!(idle.is_closed().await);
    busy.send("12345").await;
    assert_eq!(busy.answer().await, (200, "5".to_owned()));
    listener.serving.await.unwrap();
}

#[tokio::test]
async fn handler_that_blocks_does_not_delay_other_threads() {
    let (release, blocked) = std::sync::mpsc::channel::<()>();
    let (enter, entered) = tokio::sync::oneshot::channel();
    let hold = Arc::new(Mutex::new(Some((enter, blocked))));
    let router = Router::new().route(
        "/block",
        get(move || async move {
            let (enter, blocked) = hold.lock().unwrap().take().unwrap();
            enter.send(std::thread::current().name().map(str::to_owned)).unwrap();
            // Blocks the thread until the test has seen that it continues.
            blocked.recv().unwrap();
            "done"
        }),
    );
    let address = ([127, 0, 0, 1], 0).into();
    let listener = ListenerThread::start("blocked", address, Transport::Plain, limits(), router).await.unwrap();
    let mut stream = tokio::net::TcpStream::connect(listener.address()).await.unwrap();
    stream.write_all(b"GET /block HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").await.unwrap();
    assert_eq!(entered.await.unwrap().as_deref(), Some("blocked"));
    release.send(()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    listener.stop().await;
}

#[tokio::test]
async fn address_in_use_is_reported() {
    let start = |address| ListenerThread::start("taken", address, Transport::Plain, limits(), Router::new());
    let first = start(([127, 0, 0, 1], 0).into()).await.unwrap();
    let error = start(first.address()).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
}
