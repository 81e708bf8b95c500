//! Members that are to leave the store.

use std::fmt::Write;
use std::time::Duration;

use admin::GetClusterStatusResponse;
use serde_json::{Value, json};

use super::notation::escape;
use super::out::Out;
use super::session::Settings;
use super::{Failure, admin_api};

/// Between two looks at how far it is.
const INTERVAL: Duration = Duration::from_millis(500);

/// With `wait`, until nobody needs anything that the member has; what is left is shown whenever it has changed.
pub fn run(settings: &Settings, name: &str, wait: bool, out: &mut Out) -> Result<(), Failure> {
    let mut draining = admin_api::drain_member(&settings.coordinator, name)?;
    let mut shown = None;
    loop {
        if shown.as_ref() != Some(&draining) {
            match out.json {
                true => out.json_line(&json(&draining))?,
                false => out.text(&format!("{}: {}", escape(name.as_bytes()), text(&draining)))?,
            }
            shown = Some(draining);
        }
        if !wait || shown.as_ref().is_some_and(|draining| draining.drained) {
            return Ok(());
        }
        out.pause(INTERVAL)?;
        let status = admin_api::status(&settings.coordinator)?;
        let mut members = status.members.into_iter();
        let member = members.find(|member| member.name == name);
        let Some(member) = member else {
            let why = format!("{name:?} was removed from the store meanwhile");
            return Err(Failure::Because(why));
        };
        draining = member.draining.ok_or_else(|| {
            Failure::Because(format!(
                "{name:?} is not drained any more: somebody has taken it back"
            ))
        })?;
    }
}

/// Members that are to leave.
pub fn under_way(text: &mut String, status: &GetClusterStatusResponse) {
    for member in &status.members {
        if let Some(found) = &member.draining {
            // Writing to a string does not fail.
            let _ = writeln!(
                text,
                "\n{}: {}",
                escape(member.name.as_bytes()),
                self::text(found)
            );
        }
    }
}

/// How far a member is with leaving.
fn text(draining: &admin::Draining) -> String {
    match draining.drained {
        true => "drained: nobody needs anything that it has, and it can be removed".to_owned(),
        false => format!(
            "draining: {} tablets and {} copies are left; {}",
            draining.tablets,
            draining.copies,
            escape(draining.waits_for.join("; ").as_bytes())
        ),
    }
}

pub fn json(draining: &admin::Draining) -> Value {
    json!({
        "drained": draining.drained,
        "tablets": draining.tablets,
        "copies": draining.copies,
        "waitsFor": draining.waits_for,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_says_who_leaves_and_what_is_left() {
        let mut status = GetClusterStatusResponse {
            members: vec![
                admin::Member {
                    name: "m1".to_owned(),
                    draining: Some(admin::Draining {
                        drained: false,
                        tablets: 2,
                        copies: 14,
                        waits_for: vec!["a".to_owned(), "b".to_owned()],
                    }),
                    ..Default::default()
                },
                admin::Member::default(),
            ],
            ..Default::default()
        };
        let mut shown = String::new();
        under_way(&mut shown, &status);
        assert_eq!(
            shown,
            "\nm1: draining: 2 tablets and 14 copies are left; a; b\n"
        );
        status.members[0].draining = Some(admin::Draining {
            drained: true,
            ..Default::default()
        });
        shown.clear();
        under_way(&mut shown, &status);
        assert!(shown.contains("m1: drained"), "{shown}");
    }
}
