//! Certificates from files: somebody else (cert-manager, a mount) renews them, we read what is new.
//!
//! It must not know Kubernetes.

use std::convert::Infallible;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::time::sleep;

use super::certificates::CertificateError;
use super::shown::{Certificates, Serving};

const LOOK_AGAIN: Duration = Duration::from_secs(30);

#[derive(Debug, thiserror::Error)]
enum FilesError {
    #[error("{}: cannot be read: {source}", path.display())]
    Read { path: PathBuf, source: std::io::Error },
    #[error("{}: {source}", folder.display())]
    Content { folder: PathBuf, source: CertificateError },
}

/// Shows what is in `tls.crt` and `tls.key` of a folder, for ever.
pub(super) async fn follow(folder: PathBuf, certificates: Certificates) -> Infallible {
    let mut told = String::new();
    loop {
        match read(&folder) {
            Ok(serving) => {
                told.clear();
                let until = serving.validity().until;
                if certificates.show(serving) {
                    tracing::info!(folder = %folder.display(), %until, "the webhook shows another certificate");
                }
            }
            // Perhaps one file is new and the other is not yet: what was shown goes on.
            Err(error) => {
                let text = error.to_string();
                if told != text {
                    tracing::warn!(error = text, "the webhook's certificate cannot be taken from files");
                    told = text;
                }
            }
        }
        sleep(LOOK_AGAIN).await;
    }
}

fn read(folder: &Path) -> Result<Serving, FilesError> {
    // Small files, in memory as a rule: not worth another thread.
    let content = |name: &str| {
        let path = folder.join(name);
        fs::read(&path).map_err(|source| FilesError::Read { path, source })
    };
    Serving::read(&content("tls.crt")?, &content("tls.key")?)
        .map_err(|source| FilesError::Content { folder: folder.to_owned(), source })
}
