//! The kubeconfig of the cluster for kubectl and other clients.
//!
//! Invariants: a reader finds a complete file or none, since it is put in place by renaming; a file that was not
//! written by `muster-lab up` is neither overwritten nor removed.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};

/// The first line, which marks files written here.
const MARK: &str = "# Written by muster-lab up, and removed when it ends.\n";

/// A kubeconfig on disk, removed when this is dropped.
pub(super) struct Kubeconfig {
    path: PathBuf,
    text: String,
}

impl Kubeconfig {
    /// Writes it to `path`, or else into the state folder, or else into the folder for temporary files.
    pub(super) fn write(server: SocketAddr, path: Option<&Path>, state: Option<&Path>) -> anyhow::Result<Self> {
        let path = match (path, state) {
            (Some(path), _) => path.to_owned(),
            (None, Some(folder)) => folder.join("kubeconfig"),
            (None, None) => std::env::temp_dir().join(format!("muster-up-{}.kubeconfig", server.port())),
        };
        let path = std::path::absolute(&path).with_context(|| format!("kubeconfig {}", path.display()))?;
        if path.exists() && !std::fs::read_to_string(&path).is_ok_and(|text| text.starts_with(MARK)) {
            bail!(
                "--kubeconfig {}: muster-lab up did not write this file; choose another name, or remove it",
                path.display()
            );
        }
        let mut draft = path.clone().into_os_string();
        draft.push(format!(".{}", std::process::id()));
        let text = text(server);
        let written = std::fs::write(&draft, &text).and_then(|()| std::fs::rename(&draft, &path));
        written.with_context(|| format!("writing the kubeconfig {}", path.display()))?;
        Ok(Self { path, text })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Kubeconfig {
    fn drop(&mut self) {
        // It may have been removed or replaced by another cluster's.
        if std::fs::read_to_string(&self.path).is_ok_and(|text| text == self.text) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

fn text(server: SocketAddr) -> String {
    // A client cannot connect to the unspecified address.
    let server = match server {
        SocketAddr::V4(address) if address.ip().is_unspecified() => format!("127.0.0.1:{}", address.port()),
        SocketAddr::V6(address) if address.ip().is_unspecified() => format!("[::1]:{}", address.port()),
        address => address.to_string(),
    };
    format!(
        "{MARK}apiVersion: v1\nkind: Config\ncurrent-context: muster\n\
         clusters: [{{name: muster, cluster: {{server: 'http://{server}'}}}}]\n\
         contexts: [{{name: muster, context: {{cluster: muster, user: muster}}}}]\n\
         users: [{{name: muster, user: {{}}}}]\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kubeconfig_is_readable_and_removed_on_drop() {
        let path = std::env::temp_dir().join(format!("muster-up-test-{}", std::process::id()));
        let kubeconfig = Kubeconfig::write("0.0.0.0:80".parse().unwrap(), Some(&path), None).unwrap();
        let read = kube::config::Kubeconfig::read_from(kubeconfig.path()).unwrap();
        let server = read.clusters[0].cluster.as_ref().unwrap().server.clone();
        assert_eq!(server.as_deref(), Some("http://127.0.0.1:80"));
        drop(kubeconfig);
        assert!(!path.exists());
        std::fs::write(&path, "apiVersion: v1\n").unwrap();
        let refused = Kubeconfig::write("127.0.0.1:80".parse().unwrap(), Some(&path), None).err().unwrap();
        assert!(refused.to_string().contains("muster-lab up did not write this file"), "{refused}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "apiVersion: v1\n");
        std::fs::remove_file(&path).unwrap();
    }
}
