//! Log lines, on standard error.

use clap::{Args, ValueEnum};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Format {
    /// One readable line each.
    Text,
    /// One JSON object each.
    Json,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Level {
    Error,
    #[value(alias = "warning")]
    Warn,
    #[value(alias = "notice")]
    Info,
    Debug,
    Trace,
}

#[derive(Args, Debug)]
pub struct Logging {
    /// What is logged, to standard error: this level and above
    #[arg(
        long = "logLevel",
        short = 'l',
        env = "RCBOX_LOG_LEVEL",
        default_value = "info",
        value_name = "LEVEL"
    )]
    pub level: Level,
    /// How log lines look
    #[arg(
        long = "logFormat",
        env = "RCBOX_LOG_FORMAT",
        default_value = "text",
        value_name = "FORMAT"
    )]
    pub format: Format,
}

impl Logging {
    /// Sets up logging for the whole process; to be called once.
    pub fn start(&self) {
        let level = match self.level {
            Level::Error => LevelFilter::ERROR,
            Level::Warn => LevelFilter::WARN,
            Level::Info => LevelFilter::INFO,
            Level::Debug => LevelFilter::DEBUG,
            Level::Trace => LevelFilter::TRACE,
        };
        // Libraries below the admin API have nothing to say that an owner of a store needs at these levels.
        let filter = EnvFilter::default()
            .add_directive(level.into())
            .add_directive(quiet("h2"))
            .add_directive(quiet("hyper"))
            .add_directive(quiet("tower"))
            // Whoever asks the API server says itself what came of it.
            .add_directive(silent("kube_client"));
        let builder = tracing_subscriber::fmt()
            .with_env_filter(filter)
            .with_writer(std::io::stderr)
            .with_target(false);
        match self.format {
            Format::Text => builder.with_ansi(false).init(),
            Format::Json => builder.json().flatten_event(true).init(),
        }
    }
}

fn quiet(target: &str) -> tracing_subscriber::filter::Directive {
    match format!("{target}=warn").parse() {
        Ok(directive) => directive,
        Err(_) => LevelFilter::WARN.into(),
    }
}

fn silent(target: &str) -> tracing_subscriber::filter::Directive {
    match format!("{target}=off").parse() {
        Ok(directive) => directive,
        Err(_) => LevelFilter::ERROR.into(),
    }
}

/// A line of a pure crate, with the wire protocol's levels: 1 error, 2 warning, 3 notice, 4 debug.
pub fn log_message(level: u32, text: &str) {
    match level {
        0 | 1 => tracing::error!("{text}"),
        2 => tracing::warn!("{text}"),
        3 => tracing::info!("{text}"),
        _ => tracing::debug!("{text}"),
    }
}
