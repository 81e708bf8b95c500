//! Log lines, on standard error.

use core::fmt::Display;
use std::sync::{Mutex, OnceLock};

use base::level::Level as EventLevel;
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
        let builder = tracing_subscriber::fmt()
            .with_env_filter(filter(level))
            .with_writer(std::io::stderr)
            .with_target(false);
        let reload: Box<dyn Fn(LevelFilter) + Send + Sync> = match self.format {
            Format::Text => {
                let builder = builder.with_ansi(false).with_filter_reloading();
                let handle = builder.reload_handle();
                builder.init();
                // Fails when nobody logs any more.
                Box::new(move |level| drop(handle.reload(filter(level))))
            }
            Format::Json => {
                let builder = builder.json().flatten_event(true).with_filter_reloading();
                let handle = builder.reload_handle();
                builder.init();
                Box::new(move |level| drop(handle.reload(filter(level))))
            }
        };
        let in_force = Mutex::new(level);
        drop(SWITCH.set(Switch {
            started_with: level,
            in_force,
            reload,
        }));
    }
}

/// What changes the level of a process that logs.
struct Switch {
    started_with: LevelFilter,
    in_force: Mutex<LevelFilter>,
    reload: Box<dyn Fn(LevelFilter) + Send + Sync>,
}

static SWITCH: OnceLock<Switch> = OnceLock::new();

/// From now on this level and those above are logged, numbered as in [`wire::member::Settings`]; `None`: as when the process was started.
pub fn set_log_level(level: Option<u32>) {
    let Some(switch) = SWITCH.get() else {
        return;
    };
    let level = match level {
        None => switch.started_with,
        Some(0 | 1) => LevelFilter::ERROR,
        Some(2) => LevelFilter::WARN,
        Some(3) => LevelFilter::INFO,
        Some(4) => LevelFilter::DEBUG,
        Some(_) => LevelFilter::TRACE,
    };
    // Every thread of a process is told; one tells the others' subscriber.
    if let Ok(mut in_force) = switch.in_force.lock()
        && *in_force != level
    {
        *in_force = level;
        (switch.reload)(level);
    }
}

/// Libraries below the admin API have nothing to say that an owner of a store needs at these levels.
fn filter(level: LevelFilter) -> EnvFilter {
    EnvFilter::default()
        .add_directive(level.into())
        .add_directive(quiet("h2"))
        .add_directive(quiet("hyper"))
        .add_directive(quiet("tower"))
        // Whoever asks the API server says itself what came of it.
        .add_directive(silent("kube_client"))
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

/// Writes the line of a pure crate's event. An event whose level is off is not formatted.
pub fn report(level: EventLevel, event: &impl Display) {
    match level {
        EventLevel::Error => tracing::error!("{event}"),
        EventLevel::Warning => tracing::warn!("{event}"),
        EventLevel::Notice => tracing::info!("{event}"),
        EventLevel::Debug => tracing::debug!("{event}"),
    }
}

#[cfg(test)]
mod tests {
    use core::fmt;
    use std::cell::Cell;

    use super::*;

    /// Counts how often it was formatted.
    struct Counted<'a>(&'a Cell<u32>);

    impl Display for Counted<'_> {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            self.0.set(self.0.get() + 1);
            f.write_str("line")
        }
    }

    #[test]
    fn an_event_whose_level_is_off_is_not_formatted() {
        let formatted = Cell::new(0);
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(LevelFilter::WARN)
            .with_writer(std::io::sink)
            .finish();
        tracing::subscriber::with_default(subscriber, || {
            for level in [EventLevel::Notice, EventLevel::Debug] {
                report(level, &Counted(&formatted));
            }
            assert_eq!(formatted.get(), 0);
            for level in [EventLevel::Error, EventLevel::Warning] {
                report(level, &Counted(&formatted));
            }
            assert_eq!(formatted.get(), 2);
        });
    }
}
