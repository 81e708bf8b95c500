//! What has happened to the store lately.

use std::fmt::Write;

use admin::{Event, EventKind, ListEventsResponse};
use serde_json::{Value, json};

use super::notation::escape;
use super::out::Out;
use super::session::Settings;
use super::{Failure, admin_api, show};

pub fn run(settings: &Settings, out: &mut Out) -> Result<(), Failure> {
    let listed = admin_api::events(&settings.coordinator)?;
    out.text(&match out.json {
        true => show::pretty(&json(&listed.events)),
        false => text(&listed),
    })
}

/// A line for each, the oldest first.
fn text(listed: &ListEventsResponse) -> String {
    let mut text = String::new();
    for event in &listed.events {
        let ago = listed.cluster_time_ns.saturating_sub(event.cluster_time_ns);
        let (ago, what) = (show::duration(ago), escape(event.text.as_bytes()));
        // Writing to a string does not fail.
        let _ = writeln!(text, "{ago} ago: {what}");
    }
    text
}

fn json(events: &[Event]) -> Value {
    let event = |event: &Event| {
        json!({
            "clusterTimeNs": event.cluster_time_ns,
            "kind": kind(event),
            "text": event.text,
        })
    };
    events.iter().map(event).collect()
}

/// A kind that only a newer coordinator knows has no name.
fn kind(event: &Event) -> &'static str {
    let name = EventKind::try_from(event.kind).unwrap_or_default();
    let name = name.as_str_name();
    name.strip_prefix("EVENT_KIND_").unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_shown_with_their_age_and_kind() {
        let event = |cluster_time_ns, kind, text: &str| Event {
            cluster_time_ns,
            kind,
            text: text.to_owned(),
        };
        let removed = EventKind::MemberRemoved.into();
        let listed = ListEventsResponse {
            cluster_time_ns: 90_000_000_000,
            events: vec![
                event(60_000_000_000, removed, "m1 was\nremoved"),
                event(89_000_000_000, 77, "something new"),
            ],
        };
        assert_eq!(
            text(&listed),
            "30 s ago: m1 was\\nremoved\n1 s ago: something new\n"
        );
        let shown = json(&listed.events);
        assert_eq!(shown[0]["kind"], "MEMBER_REMOVED");
        assert_eq!(shown[1]["kind"], "UNSPECIFIED");
    }
}
