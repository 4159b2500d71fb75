//! Clients that occupy the listeners of a process: probes are still answered, the memory of the process is bounded, and
//! it still leads. That honest reviews are answered in the meantime is tested in virtual time, with the listener.

use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};

use futures::future::join_all;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio_rustls::TlsConnector;

use super::process::{Cluster, Process};
use super::tls_client::{self, Client, connect};

const HOSTILE: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));
const HONEST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
/// More than the open files that a process may have.
const HALF_SENT: usize = 1100;
const UNFINISHED: usize = 300;
const LARGE: usize = 250;
/// The largest body that the webhook reads.
const BODY_BYTES_MAX: usize = 3 << 20;
/// The budget for bodies is 64 MiB; the rest is the process itself and the buffers of its connections.
const MEMORY_MIB_MAX: u64 = 400;

#[test]
fn half_sent_requests_do_not_keep_probes_from_being_answered() {
    let cluster = Cluster::start("half-sent");
    let mut process = Process::start(&cluster);
    process.wait_for("this process leads");
    let mut half_sent = Vec::new();
    for _ in 0..HALF_SENT {
        let mut stream = TcpStream::connect(process.address).unwrap();
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: muster\r\n").unwrap();
        half_sent.push(stream);
    }
    assert!(process.ask("/livez").starts_with("HTTP/1.1 200"));
    process.signal("-TERM");
    assert_eq!(process.end().0, Some(0));
}

#[test]
fn unfinished_bodies_hold_little_memory() {
    let cluster = Cluster::start("unfinished");
    let (process, address) = start_with_webhook(&cluster, "unfinished");
    cluster.runtime.block_on(async {
        let connector = connector(&cluster).await;
        let _unfinished = join_all((0..UNFINISHED).map(|_| send_unfinished(&connector, address))).await;
        assert_eq!(review(&connector, address).await, 200);
    });
    let peak = process.memory_mib_peak();
    assert!(peak < MEMORY_MIB_MAX, "the process has had {peak} MiB");
    process.signal("-TERM");
    assert_eq!(process.end().0, Some(0));
}

#[test]
fn many_large_reviews_do_not_end_the_leadership() {
    let cluster = Cluster::start("large");
    let (process, address) = start_with_webhook(&cluster, "large");
    cluster.runtime.block_on(async {
        let connector = connector(&cluster).await;
        // Expensive to parse.
        let mut body = format!("[{}[]]", "[[]],".repeat(BODY_BYTES_MAX / 5 - 1)).into_bytes();
        body.resize(BODY_BYTES_MAX, b' ');
        join_all((0..LARGE).map(|_| send_large(&connector, address, &body))).await;
    });
    // A process that has lost its lease has ended with code 1.
    process.signal("-TERM");
    let (code, last) = process.end();
    assert_eq!(code, Some(0), "{last}");
}

/// A leader with the webhook, and the webhook's address.
fn start_with_webhook(cluster: &Cluster, name: &str) -> (Process, SocketAddr) {
    let path = std::env::temp_dir().join(format!("muster-run-{}-{name}.yaml", std::process::id()));
    let configuration = json!({
        "apiVersion": "config.muster.dev/v1alpha1", "kind": "MusterConfiguration",
        "webhook": {
            "enabled": true, "listen": "127.0.0.1:0",
            "certificates": {"namespace": "default", "extraNames": ["127.0.0.1"]},
        },
    });
    std::fs::write(&path, configuration.to_string()).unwrap();
    let mut process = Process::start_with(cluster, &["--config", path.to_str().unwrap()]);
    let address = process.wait_for("serves the admission webhook")["address"].as_str().unwrap().parse().unwrap();
    process.wait_for("wrote a new webhook certificate");
    process.wait_for("this process leads");
    std::fs::remove_file(&path).unwrap();
    (process, address)
}

/// A TLS client that trusts the webhook's own authority.
async fn connector(cluster: &Cluster) -> TlsConnector {
    let secrets: Api<Secret> = Api::namespaced(cluster.server.client(), "default");
    let secret = secrets.get("muster-webhook").await.unwrap();
    tls_client::connector(&secret.data.unwrap()["ca.crt"].0)
}

/// Sends a body without its last byte, as far as the webhook reads it. The connection stays open if it may.
async fn send_unfinished(connector: &TlsConnector, address: SocketAddr) -> Option<Client> {
    let mut client = connect(connector, HOSTILE, address).await.ok()?;
    send_body(&mut client, &vec![b' '; BODY_BYTES_MAX - 1]).await.ok()?;
    Some(client)
}

/// Sends a complete body and waits for the answer.
async fn send_large(connector: &TlsConnector, address: SocketAddr, body: &[u8]) -> Option<()> {
    let mut client = connect(connector, HOSTILE, address).await.ok()?;
    send_body(&mut client, body).await.ok()?;
    client.read_u8().await.ok()?;
    Some(())
}

async fn send_body(client: &mut Client, body: &[u8]) -> std::io::Result<()> {
    let head = format!("POST /mutate HTTP/1.1\r\nhost: muster\r\ncontent-length: {BODY_BYTES_MAX}\r\n\r\n");
    client.write_all(head.as_bytes()).await?;
    client.write_all(body).await?;
    client.flush().await
}

/// The status of the answer to an honest review.
async fn review(connector: &TlsConnector, address: SocketAddr) -> u16 {
    let body: Value = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {"uid": "u"}});
    let body = body.to_string();
    let length = body.len();
    let mut client = connect(connector, HONEST, address).await.unwrap();
    let request =
        format!("POST /mutate HTTP/1.1\r\nhost: muster\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}");
    client.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    // The end of the connection may come without a TLS alert.
    let _ = client.read_to_end(&mut answer).await;
    String::from_utf8_lossy(&answer).split(' ').nth(1).expect("a status").parse().unwrap()
}
