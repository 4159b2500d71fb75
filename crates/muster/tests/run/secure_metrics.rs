//! Metrics over TLS. The playground authorises everyone and knows no token.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use muster_listener::tls::certificates::generate;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio_rustls::TlsConnector;

use super::process::{Cluster, Process};
use super::tls_client::{connect, connector};

#[test]
fn metrics_over_tls_are_reviewed_by_the_api_server() {
    let cluster = Cluster::start("secure");
    let folder = std::env::temp_dir().join(format!("muster-run-{}-secure-metrics", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.join(name), text).unwrap();
    let generated = generate("metrics", &["127.0.0.1".to_owned()], jiff::Timestamp::now()).unwrap();
    write("tls.crt", &generated.certificate);
    write("tls.key", &generated.key);
    let metrics = json!({"secure": true, "listen": "127.0.0.1:0", "certificates": {"folder": folder}});
    let (version, kind) = ("config.muster.dev/v1alpha1", "MusterConfiguration");
    write("config.yaml", &json!({"apiVersion": version, "kind": kind, "metrics": metrics}).to_string());
    let mut process = Process::start_with(&cluster, &["--config", folder.join("config.yaml").to_str().unwrap()]);
    let line = process.wait_for("serves metrics to authorised clients");
    let address = line["address"].as_str().unwrap().parse().unwrap();
    process.wait_for("a new certificate is served");
    std::fs::remove_dir_all(&folder).unwrap();

    assert!(process.ask("/livez").starts_with("HTTP/1.1 200"));
    assert!(process.ask("/metrics").starts_with("HTTP/1.1 404"), "only the other address has metrics");
    cluster.runtime.block_on(async {
        let connector = connector(generated.authority.as_bytes());
        let anonymous = scrape(&connector, address, "").await;
        assert!(anonymous.starts_with("HTTP/1.1 200") && anonymous.contains("muster_leader"), "{anonymous}");
        let unknown = scrape(&connector, address, "authorization: Bearer abc\r\n").await;
        assert!(unknown.starts_with("HTTP/1.1 401") && unknown.contains("Unauthorized"), "{unknown}");
    });
    process.signal("-TERM");
    assert_eq!(process.end().0, Some(0));
}

async fn scrape(connector: &TlsConnector, address: SocketAddr, headers: &str) -> String {
    let mut client = connect(connector, IpAddr::V4(Ipv4Addr::LOCALHOST), address).await.unwrap();
    let request = format!("GET /metrics HTTP/1.1\r\nhost: muster\r\nconnection: close\r\n{headers}\r\n");
    client.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    // The end of the connection may come without a TLS alert.
    let _ = client.read_to_string(&mut answer).await;
    answer
}
