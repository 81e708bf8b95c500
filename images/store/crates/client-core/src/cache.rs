//! What the client knows of where tablets are.

use core::time::Duration;

use base::ids::TableId;
use base::map::Map;
use base::time::Time;
use wire::cost;
use wire::proto::{TableConfig, TabletState};
use wire::status::Status;

use crate::operation_id::OperationId;

/// A table is asked for again not before this long after the last time.
pub const REFETCH_DELAY: Duration = Duration::from_millis(10);
/// Tables that are remembered.
const MAX_TABLES: usize = 4096;
/// Of a config's tablets, decoded. A coordinator's tables have a quarter of them at most.
const MAX_CONFIG_BYTES: usize = 8 << 20;

#[derive(Debug)]
struct Tablet {
    end_key_hash: u64,
    start_key_hash: u64,
    is_normal: bool,
    /// Empty while the server is gone.
    locator: String,
    /// The session used last; it may be gone.
    session: Option<u64>,
}

/// What is known of a table.
#[derive(Debug, Default)]
pub struct Table {
    /// In order of their ranges.
    tablets: Vec<Tablet>,
    /// False before the first fetch, and after an answer that showed the config to be out of date.
    is_current: bool,
    /// Goes up with every fetch.
    pub generation: u64,
    /// The last fetch was sent then.
    pub fetched_at: Option<Time>,
    /// A fetch is under way, or a timer for one is set.
    pub is_fetching: bool,
    pub waiting: Vec<OperationId>,
}

/// Where to send a request.
#[derive(Debug, PartialEq, Eq)]
pub enum Route<'a> {
    /// To this server; the config was fetched as this generation.
    To {
        locator: &'a str,
        session: Option<u64>,
        generation: u64,
    },
    /// The table must be fetched (again) first.
    Unknown,
    /// No tablet has this hash: the table does not exist.
    Nowhere,
}

#[derive(Debug, Default)]
pub struct Tables {
    tables: Map<TableId, Table>,
}

impl Tables {
    pub fn route(&self, table: TableId, key_hash: u64) -> Route<'_> {
        let Some(known) = self.tables.get(&table).filter(|known| known.is_current) else {
            return Route::Unknown;
        };
        let Some(tablet) = known.covering(key_hash) else {
            return Route::Nowhere;
        };
        let tablet = &known.tablets[tablet];
        if !tablet.is_normal || tablet.locator.is_empty() {
            return Route::Unknown;
        }
        Route::To {
            locator: &tablet.locator,
            session: tablet.session,
            generation: known.generation,
        }
    }

    /// Remembers which session leads to the server of this hash.
    pub fn set_session(&mut self, table: TableId, key_hash: u64, session: u64) {
        if let Some(known) = self.tables.get_mut(&table)
            && let Some(tablet) = known.covering(key_hash)
        {
            known.tablets[tablet].session = Some(session);
        }
    }

    /// An answer has shown the config of this generation to be out of date.
    pub fn invalidate(&mut self, table: TableId, generation: u64) {
        if let Some(known) = self.tables.get_mut(&table)
            && known.generation == generation
        {
            known.is_current = false;
        }
    }

    /// The entry of a table, made if it is not there.
    pub fn entry(&mut self, table: TableId) -> &mut Table {
        if self.tables.len() >= MAX_TABLES && !self.tables.contains_key(&table) {
            self.tables
                .retain(|_, known| known.is_fetching || !known.waiting.is_empty());
        }
        self.tables.entry(table).or_default()
    }

    pub fn get_mut(&mut self, table: TableId) -> Option<&mut Table> {
        self.tables.get_mut(&table)
    }
}

impl Table {
    fn covering(&self, key_hash: u64) -> Option<usize> {
        let at = self
            .tablets
            .partition_point(|tablet| tablet.end_key_hash < key_hash);
        self.tablets
            .get(at)
            .is_some_and(|tablet| tablet.start_key_hash <= key_hash)
            .then_some(at)
    }

    /// Whether there is no such table.
    pub fn is_empty(&self) -> bool {
        self.tablets.is_empty()
    }

    /// Takes a fetched config in.
    pub fn update(&mut self, encoded: &[u8]) -> Result<(), Status> {
        let config = cost::decode::<TableConfig>(encoded, MAX_CONFIG_BYTES);
        let config = config.map_err(|_| Status::ResponseFormatError)?;
        self.tablets = config
            .tablet
            .into_iter()
            .map(|tablet| Tablet {
                start_key_hash: tablet.start_key_hash,
                end_key_hash: tablet.end_key_hash,
                is_normal: tablet.state == i32::from(TabletState::Normal),
                locator: tablet.service_locator.unwrap_or_default(),
                session: None,
            })
            .collect();
        self.tablets.sort_by_key(|tablet| tablet.end_key_hash);
        self.generation += 1;
        self.is_current = true;
        Ok(())
    }
}
