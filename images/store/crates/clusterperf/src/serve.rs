//! A run that others watch: its progress and results over HTTP, from its start until somebody ends the process. Whoever starts the run need
//! not be there when it ends, and what is there of one that fails is not lost.

use std::net::SocketAddrV4;
use std::sync::Arc;

use axum::Router;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use daemon::guarded::Guarded;
use daemon::http::{self, HttpError};
use daemon::runtime::{Stop, run_until_signal};
use program::{tokio_runtime, version};
use serde::Serialize;

use super::error::PerfError;
use super::report::{self, Results, Row};
use super::{Board, Options, data, drop_tables, guarded, measure, plot};

/// Rows of the report; the rest is in the other documents only.
const MAX_ROWS: usize = 256;

/// What figures of two runs can be compared by.
#[derive(Clone, Serialize)]
struct Environment {
    kernel: String,
    cpu: String,
    cpus: usize,
    /// Of the node, averaged over the last minute before the start.
    load: String,
}

impl Environment {
    fn read() -> Environment {
        // What cannot be read is left out; a run needs none of it.
        let text = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let info = text("/proc/cpuinfo");
        let model = info.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            (name.trim() == "model name").then(|| value.trim().to_owned())
        });
        Environment {
            kernel: text("/proc/sys/kernel/osrelease").trim().to_owned(),
            cpu: model.unwrap_or_default(),
            cpus: std::thread::available_parallelism().map_or(0, usize::from),
            load: text("/proc/loadavg")
                .split(' ')
                .next()
                .unwrap_or_default()
                .to_owned(),
        }
    }
}

#[derive(Clone, Copy, Serialize)]
enum State {
    Running,
    Complete,
    Failed,
}

/// What `/report` answers.
#[derive(Serialize)]
struct Report<'a> {
    version: &'static str,
    state: State,
    /// Why it failed.
    error: String,
    tests_done: usize,
    tests: usize,
    /// What it does at the moment.
    note: String,
    environment: &'a Environment,
    rows: Vec<Row>,
    /// Rows beyond what a report has.
    rows_omitted: usize,
}

struct Watched {
    options: Options,
    board: Board,
    environment: Environment,
}

impl Watched {
    fn report(&self) -> serde_json::Result<String> {
        // First the end, so that a run that has ended is never shown without its last results.
        let (state, error) = match &*guarded(&self.board.end) {
            None => (State::Running, String::new()),
            Some(Ok(())) => (State::Complete, String::new()),
            Some(Err(error)) => (State::Failed, error.to_string()),
        };
        let results = guarded(&self.board.results);
        let mut rows = report::rows(&results);
        let rows_omitted = rows.len().saturating_sub(MAX_ROWS);
        rows.truncate(MAX_ROWS);
        let report = Report {
            version: version(),
            state,
            error,
            tests_done: results.len(),
            tests: self.options.tests.len(),
            note: data::last_progress(),
            environment: &self.environment,
            rows,
            rows_omitted,
        };
        serde_json::to_string(&report)
    }
}

/// Measures in a thread and serves HTTP beside it, until SIGTERM or SIGINT.
pub fn run(options: &Options, address: SocketAddrV4) -> Result<(), PerfError> {
    let watched = Arc::new(Watched {
        options: options.clone(),
        board: Board::default(),
        environment: Environment::read(),
    });
    let runner = Arc::clone(&watched);
    let served = tokio_runtime()?.block_on(async {
        let listener = http::bind(address).await?;
        let address = listener.local_addr().map_err(PerfError::NoHttpAddress)?;
        eprintln!("# serving http://{address}");
        std::thread::Builder::new()
            .name("measure".to_owned())
            .spawn(move || {
                let result = measure(&runner.options, &runner.board);
                if let Err(error) = &result {
                    eprintln!("error: {error}");
                }
                *guarded(&runner.board.end) = Some(result);
            })
            .map_err(PerfError::Spawn)?;
        let served = Arc::clone(&watched);
        run_until_signal(Vec::new(), |stop| serve(listener, served, stop)).await?;
        Ok(())
    });
    let end = guarded(&watched.board.end).take();
    match end {
        Some(end) => served.and(end),
        // Told to end before its time: the tables would be nobody's.
        None if !options.table_prefix.is_empty() => served.and(drop_tables(options)),
        None => served,
    }
}

async fn serve(
    listener: tokio::net::TcpListener,
    watched: Arc<Watched>,
    stop: Stop,
) -> Result<(), HttpError> {
    let document = |kind: &'static str, make: fn(&[Results]) -> Result<String, PerfError>| {
        let watched = Arc::clone(&watched);
        get(async move || answer(kind, make(&guarded(&watched.board.results))))
    };
    let report = Arc::clone(&watched);
    let router = Router::new()
        .route(
            "/report",
            get(async move || answer("application/json", report.report())),
        )
        .route(
            "/results.json",
            document("application/json", |results| Ok(report::json(results)?)),
        )
        .route(
            "/table.txt",
            document("text/plain", |results| Ok(report::text(results))),
        )
        .route(
            "/plot.svg",
            document("image/svg+xml", |results| Ok(plot::svg(results)?)),
        );
    axum::serve(Guarded::new(listener), router)
        .with_graceful_shutdown(stop.wait())
        .await
        .map_err(HttpError::Serve)
}

fn answer(kind: &'static str, text: Result<String, impl ToString>) -> Response {
    match text {
        Ok(text) => ([(header::CONTENT_TYPE, kind)], text).into_response(),
        Err(error) => {
            let text = error.to_string() + "\n";
            (StatusCode::INTERNAL_SERVER_ERROR, text).into_response()
        }
    }
}
