//! FILL_WITH_TEST_DATA: makes objects for tests, some in every tick, so that other requests go on.

use core::time::Duration;

use base::ids::{ReplyTo, TableId};
use base::time::Time;
use wire::keys::KeysAndValue;
use wire::rpc::{self, FillWithTestDataRequest, MAX_VALUE_BYTES, RejectRules};
use wire::status::Status;

use crate::continuations::fill::Fill;
use crate::data::{Action, HashedKey, Operation};
use crate::delay::Delay;
use crate::effects::ShardEffects;
use crate::shard::Shard;

/// What one tick writes, about.
const STEP_BYTES: usize = 64 << 10;
const STEP_OBJECTS: usize = 256;
/// A fill that has made no object for so long is told to come again: the cleaner makes no room.
const LONGEST: Duration = Duration::from_secs(600);
/// Every byte of every value.
const CONTENT: u8 = 0xcc;
const COME_AGAIN: Delay = Delay {
    min_us: 10_000,
    max_us: 20_000,
};

impl Shard {
    /// Begins to fill; the reply comes when it is done. One at a time.
    pub(crate) fn fill_with_test_data(
        &mut self,
        now: Time,
        to: ReplyTo,
        payload: &[u8],
        out: &mut impl ShardEffects,
    ) -> Result<(), Status> {
        self.test_rpc("FILL_WITH_TEST_DATA", out)?;
        let request = FillWithTestDataRequest::decode(payload)?;
        if request.object_bytes as usize > MAX_VALUE_BYTES {
            return Err(Status::RequestTooLarge);
        }
        let whole = self.store.tablets.all().iter();
        let whole =
            whole.filter(|range| range.start_key_hash == 0 && range.end_key_hash == u64::MAX);
        let tables: Vec<_> = whole.map(|range| TableId(range.table_id)).collect();
        if tables.is_empty() {
            // Not UNKNOWN_TABLET, at which clients look for the owner and come again for ever.
            return Err(Status::TabletDoesntExist);
        }
        let fill = Fill {
            to,
            tables,
            next: 0,
            count: request.object_count,
            value: vec![CONTENT; request.object_bytes as usize],
        };
        if self.fills.push(now + LONGEST, fill).is_none() {
            self.come_again(to, COME_AGAIN, out);
        }
        Ok(())
    }

    /// Writes some more objects. True while there is more to do.
    pub(crate) fn fill_some(&mut self, now: Time, out: &mut impl ShardEffects) -> bool {
        let Some(mut one) = self.fills.take_one() else {
            return false;
        };
        let fill = &mut one.state;
        let step = STEP_OBJECTS.min(STEP_BYTES / (fill.value.len() + 1) + 1);
        for _ in 0..step {
            if fill.next == fill.count {
                let (durable, seen) = (self.durable_position(), self.store.log.head_position());
                let done = rpc::status_bytes(Status::Ok);
                self.gate.reply(durable, seen, fill.to, &[&done], out);
                return false;
            }
            match self.fill_one(fill) {
                Status::Ok => {
                    fill.next += 1;
                    one.deadline = now + LONGEST;
                }
                // The cleaner has to get on first.
                Status::Retry => break,
                status => {
                    out.reply(fill.to, &[&rpc::status_bytes(status)]);
                    return false;
                }
            }
        }
        self.fills.put_back(one);
        true
    }

    fn fill_one(&mut self, fill: &Fill) -> Status {
        let tables = fill.tables.len() as u32;
        let table_id = fill.tables[(fill.next % tables) as usize];
        let key = (fill.next / tables).to_string();
        let place = HashedKey::of(table_id, key.as_bytes());
        let Ok(object) = KeysAndValue::single(place.key, &fill.value) else {
            return Status::RequestFormatError;
        };
        let operation = Operation {
            place,
            rules: RejectRules {
                exists: true,
                ..RejectRules::default()
            },
            action: Action::Write(object),
        };
        let outcome = self.execute_unnumbered(&operation);
        self.count(&operation, &outcome);
        outcome.status
    }
}
