//! Certificates from files that another tool renews (cert-manager, a mounted Secret): they are reloaded when they
//! change.
//!
//! Must not depend on Kubernetes.

use std::convert::Infallible;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::time::sleep;

use super::certificates::CertificateError;
use super::resolver::{CertificateResolver, ServingCertificate};

const RELOAD_PERIOD: Duration = Duration::from_secs(30);

#[derive(Debug, thiserror::Error)]
enum FilesError {
    #[error("{}: cannot be read: {source}", path.display())]
    Read { path: PathBuf, source: std::io::Error },
    #[error("{}: {source}", directory.display())]
    Content { directory: PathBuf, source: CertificateError },
}

/// Serves the certificate in `tls.crt` and `tls.key` of a directory, forever.
pub(super) async fn follow(directory: PathBuf, certificates: CertificateResolver) -> Infallible {
    let mut reported = String::new();
    loop {
        match read(&directory) {
            Ok(serving) => {
                reported.clear();
                let until = serving.validity().until;
                if certificates.set(serving) {
                    tracing::info!(folder = %directory.display(), %until, "the webhook serves a new certificate");
                }
            }
            // Perhaps only one of the files is new: the old certificate stays in use.
            Err(error) => {
                let text = error.to_string();
                if reported != text {
                    tracing::warn!(error = text, "the webhook's certificate cannot be read from files");
                    reported = text;
                }
            }
        }
        sleep(RELOAD_PERIOD).await;
    }
}

fn read(directory: &Path) -> Result<ServingCertificate, FilesError> {
    // Small files, usually in memory: not worth a blocking task.
    let content = |name: &str| {
        let path = directory.join(name);
        fs::read(&path).map_err(|source| FilesError::Read { path, source })
    };
    ServingCertificate::read(&content("tls.crt")?, &content("tls.key")?)
        .map_err(|source| FilesError::Content { directory: directory.to_owned(), source })
}
