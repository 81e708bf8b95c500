//! Tablets that move from one server to another.

use std::fmt::Write;
use std::time::Duration;

use admin::migrate_tablet_request::{Table, Target};
use admin::{
    Balance, GetClusterStatusResponse, GiveUpMigrationRequest, MigrateTabletRequest, Migration,
};
use base::ids::ServerId;
use serde_json::{Value, json};

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
    } = tablet
    else {
        return give_up(settings, tablet, out);
    };
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
            "Migration {} {}; `{}status` shows it.",
            migration.migration_id,
            match migration.waits_for.as_str() {
                "" => "has begun",
                _ => "waits for others",
            },
            settings.program
        )),
        false => out.text(&format!(
            "Server {} has the tablet: {} objects, {}.",
            ServerId(migration.target_server_id),
            migration.objects,
            speed(&migration, migration.ended_ns)
        )),
    }
}

fn give_up(settings: &Settings, tablet: &Tablet, out: &mut Out) -> Result<(), Failure> {
    let Tablet::GiveUp { migration_id } = tablet else {
        return Ok(());
    };
    let request = GiveUpMigrationRequest {
        migration_id: *migration_id,
        expected_cluster_id: 0,
    };
    admin_api::give_up_migration(&settings.coordinator, &request)?;
    match out.json {
        true => out.json_line(&json!({ "migrationId": migration_id })),
        false => out.text(&format!(
            "Migration {migration_id} is given up: its source has the tablet."
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
            match migration.waits_for.as_str() {
                "" => speed(migration, status.cluster_time_ns),
                why => format!("it waits: {}", escape(why.as_bytes())),
            },
            if migration.frozen {
                "; its writes wait for the end"
            } else {
                ""
            }
        );
        if !migration.reason.is_empty() {
            let _ = writeln!(text, "  Why: {}", escape(migration.reason.as_bytes()));
        }
    }
}

/// What the coordinator moves by itself; nothing if it does not.
pub fn balance(text: &mut String, status: &GetClusterStatusResponse) {
    let Some(balance) = &status.balance else {
        return;
    };
    if !balance.doing.is_empty() {
        let _ = writeln!(
            text,
            "\nThe coordinator {}: {} above servers' shares; on members that drain {} tablets with {} are left",
            escape(balance.doing.as_bytes()),
            bytes(balance.bytes_to_even_out),
            balance.tablets_to_evacuate,
            bytes(balance.bytes_to_evacuate),
        );
        if !balance.waits_for.is_empty() {
            let _ = writeln!(text, "  It waits: {}", escape(balance.waits_for.as_bytes()));
        }
    }
}

pub fn balance_json(balance: &Balance) -> Value {
    json!({
        "on": balance.on,
        "doing": balance.doing,
        "waitsFor": balance.waits_for,
        "tabletsToEvacuate": balance.tablets_to_evacuate,
        "bytesToEvacuate": balance.bytes_to_evacuate,
        "bytesToEvenOut": balance.bytes_to_even_out,
        "movesBegun": balance.moves_begun,
        "merges": balance.merges,
        "tabletsLeftAlone": balance.tablets_left_alone,
        "serversLeftAlone": balance.servers_left_alone,
    })
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
        "waitsFor": migration.waits_for,
        "reason": migration.reason,
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
