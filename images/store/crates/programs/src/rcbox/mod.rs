//! The `rcbox` program: what a store looks like, and its objects, from a command line.

mod objects;
mod show;

use std::time::Duration;

use admin::admin_client::AdminClient;
use clap::{Parser, Subcommand};
use client::{Cluster, Error, Options as ClientOptions};
use tonic::transport::{Channel, Endpoint};

use crate::VERSION;
use crate::locators::coordinators;
use crate::runtime::tokio_runtime;

/// Looks into a store and works with its tables and objects.
#[derive(Parser, Debug)]
#[command(name = "rcbox", version = VERSION, after_help = EXAMPLES)]
pub struct Options {
    /// Locator of the coordinator, or several separated by ';'
    #[arg(
        short = 'C',
        long = "coordinator",
        env = "RCBOX_COORDINATOR",
        value_name = "LOCATOR",
        global = true
    )]
    coordinator: Option<String>,
    /// Print JSON instead of text
    #[arg(long, global = true)]
    json: bool,
    /// How long an operation is tried
    #[arg(long, default_value_t = 10.0, value_name = "SECONDS", global = true)]
    timeout: f64,
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  rcbox -C tcp:host=127.0.0.1,port=11100 status
  export RCBOX_COORDINATOR=tcp:host=127.0.0.1,port=11100
  rcbox create-table fruit --span 3
  rcbox put fruit apple green
  rcbox put fruit photo < photo.jpg
  rcbox get fruit apple
  rcbox get fruit --hex 6170706c65
  rcbox tables --json

Exit codes: 0 done, 1 failed (also: no such object), 2 wrong use.";

#[derive(Subcommand, Debug)]
enum Command {
    /// Shows members, durability and losses
    Status,
    /// Lists tables and where their tablets are
    Tables,
    /// Writes an object's value to standard output
    Get {
        #[command(flatten)]
        key: Key,
    },
    /// Writes an object; prints its version
    Put {
        #[command(flatten)]
        key: Key,
        /// The value; standard input without it
        value: Option<String>,
        /// Only if there is no such object yet
        #[arg(long)]
        if_absent: bool,
        /// Only if the object has this version
        #[arg(long, value_name = "VERSION", conflicts_with = "if_absent")]
        if_version: Option<u64>,
    },
    /// Removes an object; prints the version that was removed
    Rm {
        #[command(flatten)]
        key: Key,
    },
    /// Makes a table, or finds the one of that name; prints its id
    CreateTable {
        table: String,
        /// Over how many servers it is spread
        #[arg(long, default_value_t = 1, value_name = "SERVERS")]
        span: u32,
    },
    /// Drops a table with all its objects
    DropTable { table: String },
}

#[derive(clap::Args, Debug)]
struct Key {
    table: String,
    key: String,
    /// The key is written in hexadecimal digits
    #[arg(long)]
    hex: bool,
}

/// Carries out one command.
pub fn run(options: &Options) -> Result<(), String> {
    let coordinator = options.coordinator.as_deref().ok_or(
        "which store? Give the coordinator's locator with -C tcp:host=HOST,port=PORT or in RCBOX_COORDINATOR",
    )?;
    if !(options.timeout > 0.0 && options.timeout <= 86_400.0) {
        return Err("--timeout: a number of seconds above 0, at most 86400".to_owned());
    }
    let out = objects::Out { json: options.json };
    match &options.command {
        Command::Status => {
            let status = admin_call(coordinator, async |client| {
                client
                    .get_cluster_status(admin::GetClusterStatusRequest {})
                    .await
            })?;
            out.text(&if options.json {
                show::status_json(&status)?
            } else {
                show::status(&status)
            })
        }
        Command::Tables => {
            let tables = all_tables(coordinator)?;
            out.text(&if options.json {
                show::tables_json(&tables)?
            } else {
                show::tables(&tables)
            })
        }
        command => {
            let timeout = Duration::from_secs_f64(options.timeout);
            let client = ClientOptions {
                timeout,
                ..ClientOptions::default()
            };
            let mut cluster =
                Cluster::with_options(coordinator, client).map_err(|error| error.to_string())?;
            objects::run(&mut cluster, command, &out)
        }
    }
}

/// The text of an error about `table`.
fn explain(error: &Error, table: &str) -> String {
    match error.status() {
        Some(client::Status::TableDoesntExist) => {
            format!("there is no table {table:?}; create it with: rcbox create-table {table}")
        }
        _ => error.to_string(),
    }
}

/// How long the admin API has to be reached, and to answer.
const ADMIN_CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
const ADMIN_TIMEOUT: Duration = Duration::from_secs(5);

/// Asks the first coordinator of the list whose admin API answers.
fn admin_call<A>(
    locators: &str,
    call: impl AsyncFn(&mut AdminClient<Channel>) -> Result<tonic::Response<A>, tonic::Status>,
) -> Result<A, String> {
    let coordinators = coordinators(locators)?;
    tokio_runtime()?.block_on(async {
        let mut problems = Vec::new();
        for coordinator in &coordinators {
            let address = &coordinator.admin;
            let answer = async {
                let endpoint = Endpoint::from_shared(format!("http://{address}")).map_err(|error| error.to_string())?;
                let channel = endpoint
                    .connect_timeout(ADMIN_CONNECT_TIMEOUT)
                    .timeout(ADMIN_TIMEOUT)
                    .connect()
                    .await
                    .map_err(|error| chain(&error))?;
                let answer = call(&mut AdminClient::new(channel)).await;
                answer.map(tonic::Response::into_inner).map_err(|status| status.message().to_owned())
            };
            match answer.await {
                Ok(answer) => return Ok(answer),
                Err(problem) => problems.push(format!("{address}: {problem}")),
            }
        }
        Err(format!(
            "the coordinator's admin API does not answer ({}); is the coordinator running, and is its admin port the client \
             port + 200? (else add adminPort= to the locator; under Kubernetes give -C tcp:host=STORE-coordinator.NAMESPACE.svc,port=11100)",
            problems.join("; ")
        ))
    })
}

/// An error with its causes.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}

fn all_tables(coordinator: &str) -> Result<Vec<admin::Table>, String> {
    let mut tables = Vec::new();
    let mut after_table_id = 0;
    loop {
        let page = admin_call(coordinator, async |client| {
            client
                .list_tables(admin::ListTablesRequest {
                    page_size: 0,
                    after_table_id,
                })
                .await
        })?;
        tables.extend(page.tables);
        if page.next_after_table_id <= after_table_id {
            return Ok(tables);
        }
        after_table_id = page.next_after_table_id;
    }
}
