//! Upgrades: which format is in force, and who reads which.

use std::fmt::Write;

use admin::{FinalizeUpgradeRequest, GetClusterStatusResponse, Member};
use serde_json::{Value, json};
use wire::format::Formats;

use super::args::Upgrade;
use super::notation::escape;
use super::out::Out;
use super::session::Settings;
use super::{Failure, admin_api, show};

pub fn run(settings: &Settings, upgrade: &Upgrade, out: &mut Out) -> Result<(), Failure> {
    if let Upgrade::Finalize { .. } = upgrade {
        let request = FinalizeUpgradeRequest::default();
        let format = admin_api::finalize_upgrade(&settings.coordinator, request)?.format_version;
        return match out.json {
            true => out.json_line(&json!({ "formatVersion": format })),
            false => out.text(&format!("Format {format} is in force.")),
        };
    }
    let status = admin_api::status(&settings.coordinator)?;
    out.text(&match out.json {
        true => show::pretty(&json(&status)),
        false => text(&status, settings.program),
    })
}

fn formats(member: &Member) -> Formats {
    Formats::said(member.oldest_format, member.newest_format)
}

/// Whether the coordinator reads a newer format than the one in force.
fn is_under_way(status: &GetClusterStatusResponse) -> bool {
    let upgrade = status.upgrade.as_ref();
    upgrade.is_some_and(|upgrade| upgrade.newest_format > status.format_version)
}

fn text(status: &GetClusterStatusResponse, program: &str) -> String {
    let upgrade = status.upgrade.clone().unwrap_or_default();
    let of_coordinator = Formats::said(upgrade.oldest_format, upgrade.newest_format);
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = writeln!(text, "In force: format {}", status.format_version);
    let _ = writeln!(
        text,
        "The coordinator, version {}, reads {of_coordinator}",
        status.build_version
    );
    for member in &status.members {
        let _ = writeln!(
            text,
            "Member {}, version {}, reads {}",
            escape(member.name.as_bytes()),
            escape(member.build_version.as_bytes()),
            formats(member)
        );
    }
    for hindrance in &upgrade.hindrances {
        let _ = writeln!(text, "In the way: {}", escape(hindrance.as_bytes()));
    }
    if is_under_way(status) && upgrade.hindrances.is_empty() {
        let _ = writeln!(
            text,
            "Format {} can be put in force, and then there is no way back to older versions: {program}upgrade finalize",
            upgrade.newest_format
        );
    }
    text
}

/// In the store's status: an upgrade that waits for somebody.
pub fn line(text: &mut String, status: &GetClusterStatusResponse) {
    let Some(upgrade) = &status.upgrade else {
        return;
    };
    if !is_under_way(status) {
        return;
    }
    let next = match upgrade.hindrances.is_empty() {
        true => "`rcbox upgrade finalize` puts it in force",
        false => "not all members read it: see `rcbox upgrade status`",
    };
    let _ = writeln!(
        text,
        "\nAn upgrade to format {} is not finalized: {next}",
        upgrade.newest_format
    );
}

pub fn json(status: &GetClusterStatusResponse) -> Value {
    let upgrade = status.upgrade.clone().unwrap_or_default();
    let member = |member: &Member| {
        let formats = formats(member);
        json!({
            "name": member.name,
            "buildVersion": member.build_version,
            "oldestFormat": formats.oldest,
            "newestFormat": formats.newest,
        })
    };
    json!({
        "formatVersion": status.format_version,
        "oldestFormat": upgrade.oldest_format,
        "newestFormat": upgrade.newest_format,
        "hindrances": upgrade.hindrances,
        "members": status.members.iter().map(member).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(hindrances: &[&str], newest_format: u32) -> GetClusterStatusResponse {
        let member = Member {
            name: "m0".to_owned(),
            build_version: "1.0".to_owned(),
            ..Member::default()
        };
        GetClusterStatusResponse {
            format_version: 1,
            build_version: "1.1".to_owned(),
            members: vec![member],
            upgrade: Some(admin::Upgrade {
                oldest_format: 1,
                newest_format,
                hindrances: hindrances.iter().map(|&text| text.to_owned()).collect(),
            }),
            ..GetClusterStatusResponse::default()
        }
    }

    #[test]
    fn a_status_says_who_stands_in_the_way_or_what_to_do() {
        let waiting = text(&status(&["m0 is old"], 2), "rcbox ");
        assert_eq!(
            waiting,
            "In force: format 1\n\
             The coordinator, version 1.1, reads formats 1 to 2\n\
             Member m0, version 1.0, reads format 1\n\
             In the way: m0 is old\n"
        );
        let ready = text(&status(&[], 2), "rcbox ");
        assert!(ready.contains("rcbox upgrade finalize"), "{ready}");
        let nothing = text(&status(&[], 1), "rcbox ");
        assert!(!nothing.contains("finalize"), "{nothing}");
    }

    #[test]
    fn the_status_of_the_store_mentions_an_upgrade_that_waits() {
        let mut shown = String::new();
        line(&mut shown, &status(&[], 1));
        assert_eq!(shown, "");
        line(&mut shown, &status(&[], 2));
        assert!(shown.contains("puts it in force"), "{shown}");
    }
}
