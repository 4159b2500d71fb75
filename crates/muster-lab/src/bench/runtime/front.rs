//! The HTTP front of the server: it counts every request, and gives pods the size that they have on real clusters.
//!
//! The playground keeps no `managedFields`; real servers send them with every pod, so the front adds them.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Context;
use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::response::Response;
use futures::StreamExt;
use muster_playground::Server;
use tokio::net::TcpListener;

use super::ledger::{Ledger, RequestKind};

/// Serves until the runtime ends.
pub(crate) async fn serve(server: Server, ledger: Arc<Ledger>, fields: String) -> anyhow::Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0").await.context("listening on loopback")?;
    let address = listener.local_addr()?;
    let fields: Arc<str> = format!("\"metadata\":{{\"managedFields\":{fields},").into();
    let router = axum::Router::new().fallback(move |request: Request| {
        let (server, ledger, fields) = (server.clone(), Arc::clone(&ledger), Arc::clone(&fields));
        async move { answer(&server, &ledger, &fields, request).await }
    });
    tokio::spawn(async move { axum::serve(listener, router).await });
    Ok(address)
}

async fn answer(server: &Server, ledger: &Ledger, fields: &Arc<str>, request: Request) -> Response {
    let kind = RequestKind::of(request.method(), request.uri());
    ledger.requested(&kind);
    let response = server.answer(request).await;
    ledger.responded(&kind, response.status());
    if kind.resource != "pods" || kind.is_write() {
        return response;
    }
    let fields = Arc::clone(fields);
    // A list is one chunk, and a watch sends whole lines.
    response.map(|body| {
        Body::from_stream(body.into_data_stream().map(move |chunk| chunk.map(|bytes| with_fields(&bytes, &fields))))
    })
}

fn with_fields(text: &Bytes, fields: &str) -> Bytes {
    match std::str::from_utf8(text) {
        Ok(text) => text.replace("\"metadata\":{", fields).into(),
        Err(_) => text.clone(),
    }
}
