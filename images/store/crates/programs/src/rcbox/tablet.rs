//! Tablets that move from one server to another.

use std::fmt::Write;
use std::time::Duration;

use admin::migrate_tablet_request::{Table, Target};
use admin::{GetClusterStatusResponse, MigrateTabletRequest, Migration};
use serde_json::{Value, json};
use wire::ids::ServerId;

use super::args::{Tablet, server_id};
use super::notation::escape;
use super::out::Out;
use super::session::Settings;
use super::show::{bytes, duration};
use super::{Failure, admin_api};

/// Between two looks at how it goes on.
const INTERVAL: Duration = Duration::from_millis(200);

pub fn run(settings: &Settings, tablet: &Tablet, out: &mut Out) -> Result<(), Failure> {
    let Tablet::Migrate {
        table,
        key_hash,
        target,
        megabytes_per_second,
        no_wait,
    } = tablet;
    let target = match server_id(target) {
        Ok(server) => Target::ServerId(server.0),
        Err(_) => Target::Member(target.clone()),
    };
    let request = MigrateTabletRequest {
        table: Some(Table::TableName(table.clone())),
        key_hash: *key_hash,
        target: Some(target),
        bytes_per_second: megabytes_per_second.unwrap_or(0) * 1_000_000,
        expected_cluster_id: 0,
    };
    let begun = admin_api::migrate_tablet(&settings.coordinator, &request)?;
    let mut migration = begun.migration.unwrap_or_default();
    if !no_wait {
        migration = wait(settings, migration, out)?;
    }
    if !migration.failure.is_empty() {
        let text = format!(
            "the tablet stays with server {}: {}",
            ServerId(migration.source_server_id),
            escape(migration.failure.as_bytes())
        );
        return Err(Failure::Because(text));
    }
    match out.json {
        true => out.json_line(&json(&migration)),
        false if *no_wait => out.text(&format!(
            "Migration {} has begun; `{}status` shows it.",
            migration.migration_id, settings.program
        )),
        false => out.text(&format!(
            "Server {} has the tablet: {} objects, {}.",
            ServerId(migration.target_server_id),
            migration.objects,
            speed(&migration, migration.ended_ns)
        )),
    }
}

/// Until it has ended.
fn wait(settings: &Settings, begun: Migration, out: &mut Out) -> Result<Migration, Failure> {
    loop {
        let status = admin_api::status(&settings.coordinator)?;
        let mut migrations = status.migrations.into_iter();
        let found = migrations.find(|one| one.migration_id == begun.migration_id);
        match found {
            Some(migration) if migration.ended_ns > 0 => return Ok(migration),
            Some(_) => out.pause(INTERVAL)?,
            None => {
                let text = format!(
                    "the coordinator knows nothing of migration {} any more, as it was started again or others came after: `{}tables` shows where the tablet is",
                    begun.migration_id, settings.program
                );
                return Err(Failure::Because(text));
            }
        }
    }
}

/// Those under way.
pub fn under_way(text: &mut String, status: &GetClusterStatusResponse) {
    let under_way = |migration: &&Migration| migration.ended_ns == 0;
    for migration in status.migrations.iter().filter(under_way) {
        // Writing to a string does not fail.
        let _ = writeln!(
            text,
            "\nMigration {} of a tablet of table {} from {} (server {}) to {} (server {}), for {}: {}{}",
            migration.migration_id,
            escape(migration.table.as_bytes()),
            escape(migration.source_member.as_bytes()),
            ServerId(migration.source_server_id),
            escape(migration.target_member.as_bytes()),
            ServerId(migration.target_server_id),
            duration(status.cluster_time_ns.saturating_sub(migration.started_ns)),
            speed(migration, status.cluster_time_ns),
            if migration.frozen {
                "; its writes wait for the end"
            } else {
                ""
            }
        );
    }
}

/// How much was read until then, and how fast.
fn speed(migration: &Migration, until_ns: u64) -> String {
    let took_ns = until_ns.saturating_sub(migration.started_ns).max(1);
    let per_second = u128::from(migration.bytes) * 1_000_000_000 / u128::from(took_ns);
    format!(
        "{} in {} ms, {} in a second",
        bytes(migration.bytes),
        took_ns / 1_000_000,
        bytes(u64::try_from(per_second).unwrap_or(u64::MAX))
    )
}

pub fn json(migration: &Migration) -> Value {
    json!({
        "migrationId": migration.migration_id,
        "tableId": format!("{:#018x}", migration.table_id),
        "table": migration.table,
        "startKeyHash": format!("{:#018x}", migration.start_key_hash),
        "endKeyHash": format!("{:#018x}", migration.end_key_hash),
        "sourceServerId": ServerId(migration.source_server_id).to_string(),
        "sourceMember": migration.source_member,
        "targetServerId": ServerId(migration.target_server_id).to_string(),
        "targetMember": migration.target_member,
        "startedNs": migration.started_ns,
        "endedNs": migration.ended_ns,
        "bytes": migration.bytes,
        "objects": migration.objects,
        "frozen": migration.frozen,
        "failure": migration.failure,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_says_what_moves_and_how_fast() {
        let mut status = GetClusterStatusResponse {
            cluster_time_ns: 3_000_000_000,
            migrations: vec![Migration {
                migration_id: 7,
                table: "fruit".to_owned(),
                source_server_id: 1,
                source_member: "m1".to_owned(),
                target_server_id: 2,
                target_member: "m2".to_owned(),
                started_ns: 1_000_000_000,
                bytes: 4 << 20,
                frozen: true,
                ..Migration::default()
            }],
            ..GetClusterStatusResponse::default()
        };
        let mut text = String::new();
        under_way(&mut text, &status);
        assert_eq!(
            text,
            "\nMigration 7 of a tablet of table fruit from m1 (server 1.0) to m2 (server 2.0), for 2 s: \
             4.0 MiB in 2000 ms, 2.0 MiB in a second; its writes wait for the end\n"
        );
        status.migrations[0].ended_ns = 2_000_000_000;
        text.clear();
        under_way(&mut text, &status);
        assert_eq!(text, "", "one that has ended");
    }
}
