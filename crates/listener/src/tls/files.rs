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
pub async fn follow(listener: &'static str, directory: PathBuf, certificates: CertificateResolver) -> Infallible {
    let mut reported = String::new();
    loop {
        match read(&directory) {
            Ok(serving) => {
                reported.clear();
                let until = serving.validity().until;
                if certificates.set(serving) {
                    tracing::info!(listener, folder = %directory.display(), %until, "a new certificate is served");
                }
            }
            // Perhaps only one of the files is new: the old certificate stays in use.
            Err(error) => {
                let text = error.to_string();
                if reported != text {
                    tracing::warn!(listener, error = text, "the certificate cannot be read from files");
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

#[cfg(test)]
mod tests {
    use super::super::certificates::{GeneratedCertificate, generate};
    use super::*;

    fn generated() -> GeneratedCertificate {
        generate("a", &["a".to_owned()], "2030-01-01T00:00:00Z".parse().unwrap()).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn new_files_are_served_and_broken_ones_are_not() {
        let directory: PathBuf = std::env::temp_dir().join(format!("muster-listener-files-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let write = |name: &str, text: &str| fs::write(directory.join(name), text).unwrap();
        let resolver = CertificateResolver::default();
        let following = tokio::spawn(follow("test", directory.clone(), resolver.clone()));
        let reload = || sleep(Duration::from_secs(31));
        reload().await;
        assert!(resolver.current().is_none(), "there are no files yet");
        let (first, second) = (generated(), generated());
        write("tls.crt", &first.certificate);
        write("tls.key", &first.key);
        reload().await;
        let served = |resolver: &CertificateResolver| resolver.current().unwrap().pair().cert[0].clone();
        let before = served(&resolver);
        write("tls.crt", &second.certificate);
        reload().await;
        assert_eq!(served(&resolver), before, "the key is not new yet");
        write("tls.key", &second.key);
        reload().await;
        assert_ne!(served(&resolver), before);
        following.abort();
        fs::remove_dir_all(&directory).unwrap();
    }
}
