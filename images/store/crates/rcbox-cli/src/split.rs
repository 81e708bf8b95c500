//! Tables that are split into parts of equal width.

use admin::split_table_request::Table;
use admin::{SplitTableRequest, SplitTableResponse};
use serde_json::{Value, json};

use super::out::Out;
use super::session::Settings;
use super::{Failure, admin_api};

pub fn run(settings: &Settings, table: &str, parts: u32, out: &mut Out) -> Result<(), Failure> {
    let request = SplitTableRequest {
        table: Some(Table::TableName(table.to_owned())),
        parts,
        expected_cluster_id: 0,
    };
    let split = admin_api::split_table(&settings.coordinator, &request)?;
    match out.json {
        true => out.json_line(&json(&split)),
        false => out.text(&text(&split, table, settings.program)),
    }
}

fn json(split: &SplitTableResponse) -> Value {
    json!({
        "tableId": format!("{:#018x}", split.table_id),
        "tablets": split.tablets,
        "boundariesMade": split.boundaries_made,
        "boundariesKept": split.boundaries_kept,
    })
}

fn text(split: &SplitTableResponse, table: &str, program: &str) -> String {
    let tablets = split.tablets;
    let now = format!(
        "table {table:?} has {tablets} tablets, which `{program}tables` shows with their servers."
    );
    match (split.boundaries_made, split.boundaries_kept) {
        (0, 0) => format!("Nothing to do: {now}"),
        (0, 1) => format!("1 boundary that the store had made for itself stays now: {now}"),
        (0, kept) => {
            format!("{kept} boundaries that the store had made for itself stay now: {now}")
        }
        (1, _) => format!("1 new boundary: {now}"),
        (made, _) => format!("{made} new boundaries: {now}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_says_what_was_done() {
        let said = |boundaries_made, boundaries_kept| {
            let split = SplitTableResponse {
                table_id: 7,
                tablets: 16,
                boundaries_made,
                boundaries_kept,
            };
            text(&split, "fruit", "rcbox ")
        };
        let now = "table \"fruit\" has 16 tablets, which `rcbox tables` shows with their servers.";
        assert_eq!(said(15, 0), format!("15 new boundaries: {now}"));
        assert_eq!(said(1, 2), format!("1 new boundary: {now}"));
        assert_eq!(
            said(0, 2),
            format!("2 boundaries that the store had made for itself stay now: {now}")
        );
        assert_eq!(said(0, 0), format!("Nothing to do: {now}"));
    }
}
