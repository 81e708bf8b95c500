//! What only an operator, a person, may decide.

use std::fmt::Write;

use admin::{AcceptLossRequest, RemoveMemberRequest};
use base::ids::ServerId;

use super::args::{Member, Recovery};
use super::out::Out;
use super::session::Settings;
use super::{Failure, admin_api, drain, show};

pub fn recovery(settings: &Settings, recovery: &Recovery, out: &mut Out) -> Result<(), Failure> {
    let Recovery::AcceptLoss { server, token, .. } = recovery;
    let Some(token) = token else {
        return show_loss(settings, *server, out);
    };
    let request = AcceptLossRequest {
        server_id: server.0,
        loss_token: token.clone(),
        expected_cluster_id: 0,
    };
    let accepted = admin_api::accept_loss(&settings.coordinator, &request)?;
    let loss = accepted.loss.unwrap_or_default();
    match out.json {
        true => out.json_line(&show::loss_json(&loss)),
        false => out.text(&format!(
            "Given up, and recorded as a loss: {}. The recovery goes on; `{}status` shows it.",
            show::loss(&loss),
            settings.program
        )),
    }
}

/// What would be given up, and how.
fn show_loss(settings: &Settings, server: ServerId, out: &mut Out) -> Result<(), Failure> {
    let status = admin_api::status(&settings.coordinator)?;
    let mut recoveries = status.recoveries.iter();
    let recovery = recoveries
        .find(|recovery| recovery.server_id == server.0 && recovery.tablets_left > 0)
        .ok_or_else(|| {
            Failure::Because(format!(
                "no recovery of server {server} is under way; the status names those that are"
            ))
        })?;
    if out.json {
        return out.json_line(&show::recovery_json(recovery));
    }
    if recovery.loss_token.is_empty() {
        let why = match recovery.waits_for.as_str() {
            "" => "it goes on by itself".to_owned(),
            what => format!("what it waits for: {what}"),
        };
        return Err(Failure::Because(format!(
            "the recovery of server {server} misses nothing that could be given up; {why}"
        )));
    }
    let mut text = show::missing(recovery);
    let _ = write!(
        text,
        "Nothing was changed. If the disks that have it are gone for ever:\n  {}recovery accept-loss {server} --token {}",
        settings.program, recovery.loss_token
    );
    out.text(&text)
}

pub fn member(settings: &Settings, member: &Member, out: &mut Out) -> Result<(), Failure> {
    match member {
        Member::Drain { name, wait } => drain::run(settings, name, *wait, out),
        Member::Undrain { name } => Ok(admin_api::undrain_member(&settings.coordinator, name)?),
        Member::Remove {
            name,
            instance,
            give_up_copies,
            ..
        } => {
            let request = RemoveMemberRequest {
                name: name.clone(),
                instance: instance.clone(),
                expected_cluster_id: 0,
                gives_up_copies: *give_up_copies,
            };
            Ok(admin_api::remove_member(&settings.coordinator, &request)?)
        }
    }
}
