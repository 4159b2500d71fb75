//! Reads the body of a request within the limits of its listener.

use std::net::IpAddr;
use std::sync::Arc;

use axum::response::{IntoResponse as _, Response};
use http::StatusCode;
use http::header::{CONNECTION, RETRY_AFTER};
use http_body::Body;
use http_body_util::BodyExt as _;
use tokio::time::{Instant, timeout_at};

use crate::Limits;
use crate::byte_budget::{ByteBudget, Reservation};

/// A complete body and its part of the budget, which is to be kept as long as the bytes are in use.
#[derive(Debug, Default)]
pub(crate) struct CompleteBody {
    pub(crate) bytes: Vec<u8>,
    pub(crate) reservation: Option<Reservation>,
}

/// Why a body was not read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    TooLarge {
        bytes_max: usize,
    },
    /// There was no memory before the deadline.
    NoMemory {
        bytes_max: usize,
    },
    /// Its memory was needed for another one before it was complete.
    Reclaimed,
    /// It was not complete at the deadline.
    TooSlow,
    /// The client ended it, or it is not valid HTTP.
    Broken(String),
}

/// Reads the body completely.
pub(crate) async fn read<B>(
    body: B,
    peer: IpAddr,
    limits: &Limits,
    budget: &Arc<ByteBudget>,
) -> Result<CompleteBody, Refusal>
where
    B: Body + Unpin,
    B::Error: std::fmt::Display,
{
    if body.is_end_stream() {
        return Ok(CompleteBody::default());
    }
    let deadline = Instant::now() + limits.body_deadline;
    let too_large = Refusal::TooLarge { bytes_max: limits.body_bytes_max };
    let declared = body.size_hint();
    if declared.lower() > limits.body_bytes_max as u64 {
        return Err(too_large);
    }
    let bytes_max = declared.exact().map_or(limits.body_bytes_max, |bytes| bytes as usize);
    let mut reservation = timeout_at(deadline, budget.reserve(peer, bytes_max))
        .await
        .map_err(|_| Refusal::NoMemory { bytes_max: limits.bodies_bytes_max })?;
    let bytes = tokio::select! {
        () = reservation.reclaimed() => return Err(Refusal::Reclaimed),
        read = timeout_at(deadline, collect(body, bytes_max)) => read.map_err(|_| Refusal::TooSlow)??,
    };
    reservation.complete();
    // Without a declared length, only the limit is known before the end.
    bytes.map(|bytes| CompleteBody { bytes, reservation: Some(reservation) }).ok_or(too_large)
}

/// All data of a body; `None` if there is more than `bytes_max`. The parts are copied together: a client could otherwise
/// send parts of one byte, each of which is much larger in memory.
async fn collect<B>(mut body: B, bytes_max: usize) -> Result<Option<Vec<u8>>, Refusal>
where
    B: Body + Unpin,
    B::Error: std::fmt::Display,
{
    let mut bytes = Vec::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| Refusal::Broken(error.to_string()))?;
        if let Ok(mut data) = frame.into_data() {
            use hyper::body::Buf as _;
            if bytes.len() + data.remaining() > bytes_max {
                return Ok(None);
            }
            if bytes.is_empty() {
                bytes.reserve_exact(bytes_max);
            }
            while data.has_remaining() {
                let part = data.chunk();
                bytes.extend_from_slice(part);
                let length = part.len();
                data.advance(length);
            }
        }
    }
    Ok(Some(bytes))
}

impl Refusal {
    pub(crate) fn status(&self) -> StatusCode {
        match self {
            Self::TooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
            Self::NoMemory { .. } | Self::Reclaimed => StatusCode::SERVICE_UNAVAILABLE,
            Self::TooSlow => StatusCode::REQUEST_TIMEOUT,
            Self::Broken(_) => StatusCode::BAD_REQUEST,
        }
    }

    pub(crate) fn reason(&self) -> String {
        match self {
            Self::TooLarge { bytes_max } => format!("the body has more than {bytes_max} bytes"),
            Self::NoMemory { bytes_max } => {
                format!("the bodies of other requests use all of the {bytes_max} bytes for bodies, try again later")
            }
            Self::Reclaimed => "the body was not complete when others needed its memory, try again later".to_owned(),
            Self::TooSlow => "the body did not arrive in time".to_owned(),
            Self::Broken(reason) => format!("the body cannot be read: {reason}"),
        }
    }

    /// The rest of the body is not read, so the connection closes.
    pub(crate) fn response(&self, path: &str) -> Response {
        let text = format!("{path}: {}\n", self.reason());
        let mut response = (self.status(), [(CONNECTION, "close")], text).into_response();
        if self.status() == StatusCode::SERVICE_UNAVAILABLE {
            response.headers_mut().insert(RETRY_AFTER, http::HeaderValue::from_static("1"));
        }
        response
    }
}
