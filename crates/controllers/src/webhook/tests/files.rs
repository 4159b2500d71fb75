//! Tests of certificates from files, with paused time.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use tokio::time::sleep;

use super::super::certificates::{GeneratedCertificate, generate};
use super::super::files::follow;
use super::super::resolver::CertificateResolver;
use super::test_cluster::{Clock, served};

fn generated() -> GeneratedCertificate {
    generate(&["a".to_owned()], Clock::default().read()).unwrap()
}

#[tokio::test(start_paused = true)]
async fn new_files_are_served_and_broken_ones_are_not() {
    let directory: PathBuf = std::env::temp_dir().join(format!("muster-webhook-files-{}", std::process::id()));
    fs::create_dir_all(&directory).unwrap();
    let write = |name: &str, text: &str| fs::write(directory.join(name), text).unwrap();
    let resolver = CertificateResolver::default();
    let following = tokio::spawn(follow(directory.clone(), resolver.clone()));
    let reload = || sleep(Duration::from_secs(31));
    reload().await;
    assert!(resolver.current().is_none(), "there are no files yet");
    let (first, second) = (generated(), generated());
    write("tls.crt", &first.certificate);
    write("tls.key", &first.key);
    reload().await;
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
