//! The client of a cluster, without automatic retries.
//!
//! kube would resend a request that was answered with 429, 503 or 504 up to fifteen times. A write answered with 504
//! may have taken effect, and the fence cannot stop retries that it does not see: the scheduler retries requests
//! itself.

use std::path::Path;

use anyhow::Context as _;
use http::HeaderValue;
use http::header::USER_AGENT;
use kube::config::{KubeConfigOptions, Kubeconfig};

/// The user agent in the server's logs; the part before the slash is also the field manager of writes.
const AGENT: &str = concat!("muster/", env!("CARGO_PKG_VERSION"));

/// The configuration of the connection: the given kubeconfig, else `$KUBECONFIG`, `~/.kube/config` or the service
/// account.
pub async fn config(kubeconfig: Option<&Path>) -> anyhow::Result<kube::Config> {
    let mut config = match kubeconfig {
        Some(path) => {
            let read = Kubeconfig::read_from(path).with_context(|| format!("--kubeconfig {}", path.display()))?;
            kube::Config::from_custom_kubeconfig(read, &KubeConfigOptions::default())
                .await
                .with_context(|| format!("--kubeconfig {}", path.display()))?
        }
        None => kube::Config::infer().await.context("finding the cluster")?,
    };
    config.default_retry = false;
    config.headers.push((USER_AGENT, HeaderValue::from_static(AGENT)));
    Ok(config)
}

/// Creates a client; it belongs to the runtime on which it is created.
pub fn connect(config: &kube::Config) -> anyhow::Result<kube::Client> {
    kube::Client::try_from(config.clone()).with_context(|| format!("connecting to {}", config.cluster_url))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn client_uses_tls_sends_its_user_agent_and_does_not_retry() {
        let text = "{apiVersion: v1, kind: Config, current-context: c, clusters: [{name: c, cluster: {server: 'https://127.0.0.1:1'}}],
            contexts: [{name: c, context: {cluster: c, user: u}}], users: [{name: u, user: {token: t}}]}";
        let path = std::env::temp_dir().join(format!("muster-kubeconfig-{}", std::process::id()));
        std::fs::write(&path, text).unwrap();
        let config = config(Some(&path)).await.unwrap();
        std::fs::remove_file(&path).unwrap();
        assert!(!config.default_retry);
        assert_eq!(config.headers, [(USER_AGENT, HeaderValue::from_static(AGENT))]);
        connect(&config).unwrap();
    }

    #[tokio::test]
    async fn missing_kubeconfig_is_named() {
        let error = config(Some(Path::new("/no/such/file"))).await.unwrap_err();
        assert!(error.to_string().contains("/no/such/file"));
    }
}
