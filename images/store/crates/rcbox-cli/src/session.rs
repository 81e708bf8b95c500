//! Carries out commands on one store.

use std::time::Duration;

use admin::GetTimeTraceRequest;
use client::{Cluster, Error, Options, Status};

use super::admin_api::Coordinator;
use super::args::{Command, Rebuild};
use super::notation::escape;
use super::out::Out;
use super::{
    Failure, admin_api, events, objects, operate, scan, settings, show, split, tablet, time_trace,
    upgrade, watch,
};

/// Which store, and how it is talked to.
#[derive(Clone)]
pub struct Settings {
    pub coordinator: Coordinator,
    pub timeout: Duration,
    /// What stands before a command in an advice: `rcbox `, or nothing in a prompt.
    pub program: &'static str,
    /// Standard input may be read for a value; a prompt reads its commands there.
    pub input: bool,
}

/// A store with the connections to it.
pub struct Session {
    pub settings: Settings,
    cluster: Option<Cluster>,
}

impl Session {
    /// Opens no connection yet.
    pub fn new(settings: Settings) -> Session {
        Session {
            settings,
            cluster: None,
        }
    }

    /// The client, made when first needed.
    pub fn cluster(&mut self) -> Result<&mut Cluster, Failure> {
        let cluster = match self.cluster.take() {
            Some(cluster) => cluster,
            None => {
                let options = Options {
                    timeout: self.settings.timeout,
                    ..Options::default()
                };
                Cluster::with_options(&self.settings.coordinator.locators, options)
                    .map_err(|error| Failure::Because(error.to_string()))?
            }
        };
        Ok(self.cluster.insert(cluster))
    }

    /// Carries out one command.
    pub fn run(&mut self, command: Command, out: &mut Out) -> Result<(), Failure> {
        let coordinator = &self.settings.coordinator;
        match command {
            Command::Status { check } => {
                let status = admin_api::status(coordinator)?;
                out.text(&match out.json {
                    true => show::pretty(&show::status_json(&status)),
                    false => show::status(&status, out.colors),
                })?;
                match check && !show::is_all_up(&status) {
                    true => Err(Failure::Shown),
                    false => Ok(()),
                }
            }
            Command::Tables => {
                let tables = admin_api::tables(coordinator)?;
                out.text(&match out.json {
                    true => show::pretty(&show::tables_json(&tables)),
                    false => show::tables(&tables, self.settings.program),
                })
            }
            Command::Servers => {
                let servers = self.cluster()?.server_list();
                let servers = servers.map_err(|error| Failure::Because(error.to_string()))?;
                out.text(&match out.json {
                    true => show::pretty(&show::servers_json(&servers)),
                    false => show::servers(&servers),
                })
            }
            Command::Events => events::run(&self.settings, out),
            Command::Get(get) => objects::get(self, &get, out),
            Command::Put(put) => objects::put(self, &put, out),
            Command::Rm(rm) => objects::rm(self, &rm, out),
            Command::Incr(incr) => objects::incr(self, &incr, out),
            Command::Scan(scan) => scan::run(self, &scan, out),
            Command::Watch(watch) => watch::run(self, &watch, out),
            Command::CreateTable { table, span } => {
                let id = self.cluster()?.create_table(&table, span);
                let id = id.map_err(|error| self.about_table(&error, &table))?;
                match out.json {
                    true => {
                        out.json_line(&serde_json::json!({ "tableId": format!("{:#018x}", id.0) }))
                    }
                    false => out.text(&id.to_string()),
                }
            }
            Command::DropTable { table, .. } => {
                let dropped = self.cluster()?.drop_table(&table);
                dropped.map_err(|error| self.about_table(&error, &table))
            }
            Command::Recovery(recovery) => operate::recovery(&self.settings, &recovery, out),
            Command::Rebuild(Rebuild::GiveUp { members, .. }) => Ok(admin_api::give_up_volumes(
                &self.settings.coordinator,
                members,
            )?),
            Command::Member(member) => operate::member(&self.settings, &member, out),
            Command::Trace {
                member,
                shard,
                last,
            } => {
                let request = GetTimeTraceRequest {
                    member: member.unwrap_or_default(),
                    shard_index: shard,
                    last,
                };
                time_trace::run(&self.settings, &request, out)
            }
            Command::Upgrade(upgrade) => upgrade::run(&self.settings, &upgrade, out),
            Command::Settings(command) => settings::run(&self.settings, &command, out),
            Command::Tablet(tablet) => tablet::run(&self.settings, &tablet, out),
            Command::Split {
                table,
                key_hash: Some(key_hash),
                ..
            } => {
                let split = self.cluster()?.split_tablet(&table, key_hash);
                split.map_err(|error| self.about_table(&error, &table))
            }
            Command::Split { table, parts, .. } => {
                split::run(&self.settings, &table, parts.unwrap_or_default(), out)
            }
        }
    }

    /// The text of an error about a table.
    pub fn about_table(&self, error: &Error, table: &str) -> Failure {
        Failure::Because(match error.status() {
            Some(Status::TableDoesntExist) => {
                let program = self.settings.program;
                let quoted = shlex::try_quote(table).unwrap_or_default();
                format!(
                    "there is no table {table:?}; create it with: {program}create-table {quoted}"
                )
            }
            _ => error.to_string(),
        })
    }

    /// The text of an error about an object.
    pub fn about_object(&self, error: &Error, table: &str, key: &[u8]) -> Failure {
        let name = format!("\"{}\"", escape(key));
        Failure::Because(match error.status() {
            Some(Status::ObjectDoesntExist) => {
                format!("there is no object {name} in table {table:?}")
            }
            Some(Status::ObjectExists) => {
                format!("there is an object {name} in table {table:?} already: {error}")
            }
            Some(Status::WrongVersion) => {
                format!(
                    "object {name} of table {table:?} was changed: {error}; get it again before you change it"
                )
            }
            Some(Status::TableDoesntExist) => return self.about_table(error, table),
            _ => format!("object {name} of table {table:?}: {error}"),
        })
    }
}
