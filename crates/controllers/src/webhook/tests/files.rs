//! Certificates from files, under paused time.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use tokio::time::sleep;

use super::super::certificates::{Made, make};
use super::super::files::follow;
use super::super::shown::Certificates;
use super::world::{Clock, shown};

fn made() -> Made {
    make(&["a".to_owned()], Clock::default().read()).unwrap()
}

#[tokio::test(start_paused = true)]
async fn what_is_new_in_the_files_is_shown_and_what_is_broken_is_not() {
    let folder: PathBuf = std::env::temp_dir().join(format!("muster-webhook-files-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let write = |name: &str, text: &str| fs::write(folder.join(name), text).unwrap();
    let cell = Certificates::default();
    let following = tokio::spawn(follow(folder.clone(), cell.clone()));
    let look = || sleep(Duration::from_secs(31));
    look().await;
    assert!(cell.current().is_none(), "there are no files yet");
    let (first, second) = (made(), made());
    write("tls.crt", &first.certificate);
    write("tls.key", &first.key);
    look().await;
    let before = shown(&cell);
    write("tls.crt", &second.certificate);
    look().await;
    assert_eq!(shown(&cell), before, "the key is not new yet");
    write("tls.key", &second.key);
    look().await;
    assert_ne!(shown(&cell), before);
    following.abort();
    fs::remove_dir_all(&folder).unwrap();
}
