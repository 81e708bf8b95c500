//! Health and metrics over HTTP: `/healthz`, `/readyz`, `/metrics`.

use std::future::Future;
use std::net::SocketAddrV4;
use std::pin::Pin;
use std::sync::Arc;

use axum::Router;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use tokio::net::TcpListener;

use crate::guarded::Guarded;

/// What a program says of itself.
pub trait Probe: Send + Sync + 'static {
    /// Whether others may rely on it, and as what; else why not.
    fn ready(&self) -> Result<String, String>;
    /// The metrics as Prometheus reads them; an error when the program's threads do not answer.
    fn metrics(&self) -> Pin<Box<dyn Future<Output = Result<String, String>> + Send + '_>>;
}

const METRICS_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Opens the listener; port 0 lets the kernel choose.
pub async fn bind(address: SocketAddrV4) -> Result<TcpListener, String> {
    TcpListener::bind(address)
        .await
        .map_err(|error| format!("cannot listen at {address} for HTTP: {error} (see --httpListen)"))
}

/// Serves until `stop` completes.
pub async fn serve(
    listener: TcpListener,
    probe: Arc<dyn Probe>,
    stop: impl Future<Output = ()> + Send + 'static,
) -> Result<(), String> {
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
                Err(reason) => (StatusCode::SERVICE_UNAVAILABLE, reason + "\n").into_response(),
            }),
        );
    axum::serve(Guarded::new(listener), router)
        .with_graceful_shutdown(stop)
        .await
        .map_err(|error| format!("HTTP server: {error}"))
}
