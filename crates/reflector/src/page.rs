//! One page of a list, with a deadline and a limit of bytes.
//!
//! Users decide how large objects are: 500 of them can be more than the memory of this process. So a page that is too
//! large is not read to its end, and is requested again with fewer objects.

use std::time::Duration;

use futures::AsyncReadExt as _;
use kube::Client;
use kube::api::{ListParams, ObjectList};
use kube::core::Request;
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use crate::error::WatchError;

/// The most objects in a page, as in client-go.
pub(crate) const PAGE_SIZE: u32 = 500;
/// The API server ends requests that take longer.
pub(crate) const PAGE_DEADLINE: Duration = Duration::from_secs(60);
/// The most bytes of a page with more than one object.
const PAGE_BYTES_MAX: u64 = 8 << 20;

/// Reads the next page. Halves `params.limit` until the page is small enough, and doubles it after a small one.
pub(crate) async fn read<K: Clone + DeserializeOwned>(
    client: &Client,
    url: &str,
    params: &mut ListParams,
) -> Result<ObjectList<K>, WatchError> {
    loop {
        let bytes = timeout(PAGE_DEADLINE, read_bytes(client, url, params));
        let bytes = bytes.await.map_err(|_| WatchError::ListDeadline(PAGE_DEADLINE))?.map_err(WatchError::List)?;
        let Some(bytes) = bytes else {
            params.limit = params.limit.map(|limit| limit.div_ceil(2));
            continue;
        };
        if (bytes.len() as u64) < PAGE_BYTES_MAX / 2 {
            // A few large objects must not make the rest of the list slow.
            params.limit = params.limit.map(|limit| (limit * 2).min(PAGE_SIZE));
        }
        return serde_json::from_slice(&bytes).map_err(WatchError::Unreadable);
    }
}

/// The bytes of a page; `None` if there are too many.
async fn read_bytes(client: &Client, url: &str, params: &ListParams) -> kube::Result<Option<Vec<u8>>> {
    let request = Request::new(url).list(params).map_err(kube::Error::BuildRequest)?;
    let body = client.request_stream(request).await?;
    // A server that ignores the limit must not keep a kind from being listed.
    let bytes_max = if params.limit == Some(1) { u64::MAX } else { PAGE_BYTES_MAX };
    let mut bytes = Vec::new();
    std::pin::pin!(body)
        .take(bytes_max.saturating_add(1))
        .read_to_end(&mut bytes)
        .await
        .map_err(kube::Error::ReadEvents)?;
    Ok((bytes.len() as u64 <= bytes_max).then_some(bytes))
}
