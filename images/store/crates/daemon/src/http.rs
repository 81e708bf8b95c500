//! Health and metrics over HTTP: `/healthz`, `/readyz`, `/metrics`.

use std::future::Future;
use std::io;
use std::net::SocketAddrV4;
use std::pin::Pin;
use std::sync::Arc;

use axum::Router;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use tokio::net::TcpListener;

use crate::guarded::Guarded;
use crate::mailbox::NoAnswer;

/// What a program says of itself.
pub trait Probe: Send + Sync + 'static {
    /// Whether others may rely on it, and as what; else why not.
    fn ready(&self) -> Result<String, String>;
    /// The metrics as Prometheus reads them; an error when the program's threads do not answer.
    fn metrics(&self) -> Pin<Box<dyn Future<Output = Result<String, NoAnswer>> + Send + '_>>;
}

const METRICS_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Why there is no HTTP.
#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    #[error("cannot listen at {address} for HTTP: {error} (see --httpListen)")]
    Listen {
        address: SocketAddrV4,
        error: io::Error,
    },
    #[error("HTTP server: {0}")]
    Serve(#[source] io::Error),
}

/// Opens the listener; port 0 lets the kernel choose.
pub async fn bind(address: SocketAddrV4) -> Result<TcpListener, HttpError> {
    TcpListener::bind(address)
        .await
        .map_err(|error| HttpError::Listen { address, error })
}

/// Serves until `stop` completes.
pub async fn serve(
    listener: TcpListener,
    probe: Arc<dyn Probe>,
    stop: impl Future<Output = ()> + Send + 'static,
) -> Result<(), HttpError> {
    let (ready, metrics) = (Arc::clone(&probe), probe);
    let router = Router::new()
        .route("/healthz", get(async || "ok\n"))
        .route(
            "/readyz",
            get(async move || match ready.ready() {
                Ok(text) => (StatusCode::OK, text + "\n"),
                Err(reason) => (StatusCode::SERVICE_UNAVAILABLE, reason + "\n"),
            }),
        )
        .route(
            "/metrics",
            get(async move || match metrics.metrics().await {
                Ok(text) => ([(header::CONTENT_TYPE, METRICS_TYPE)], text).into_response(),
                Err(error) => {
                    (StatusCode::SERVICE_UNAVAILABLE, format!("{error}\n")).into_response()
                }
            }),
        );
    axum::serve(Guarded::new(listener), router)
        .with_graceful_shutdown(stop)
        .await
        .map_err(HttpError::Serve)
}
