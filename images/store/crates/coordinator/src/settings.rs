//! What people change of the store while it runs: docs/settings.md.
//!
//! It is part of what is noted. Servers are told with their welcome and after every change, and say with each Pong what is in force there.

use wire::member::{Pong, Settings, ToShard, coordinator};

use crate::orders::{SettingsError, SettingsOrder};
use crate::{Coordinator, Output, level};

/// What was set last; nothing yet, while its number is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct InForce(Settings);

impl InForce {
    /// As it was noted.
    pub fn noted(settings: Option<Settings>) -> InForce {
        InForce(settings.unwrap_or_default())
    }

    /// To be noted, and told to servers; `None`: nobody has ever set anything.
    pub fn in_force(&self) -> Option<Settings> {
        Some(self.0).filter(|settings| settings.number > 0)
    }
}

impl Coordinator {
    /// What is set. A driver looks at it for what concerns its own process.
    pub fn settings(&self) -> Settings {
        self.settings.0
    }

    /// Puts these in the place of those in force, all of them, and tells the servers. Answers what is in force then; asking for what is so already changes
    /// nothing.
    ///
    /// # Errors
    /// They are not possible.
    pub fn set_settings(
        &mut self,
        order: &SettingsOrder,
        out: &mut impl Output,
    ) -> Result<Settings, SettingsError> {
        if let Some(why) = self.refusal() {
            return Err(SettingsError::DoesNotLead(why.to_owned()));
        }
        self.check_store(order.expected_cluster_id)
            .map_err(SettingsError::OtherStore)?;
        if order.settings.is_same(&self.settings.0) {
            return Ok(self.settings.0);
        }
        order.settings.check().map_err(SettingsError::NotPossible)?;
        self.check_replicas(&order.settings)?;
        self.settings.0 = Settings {
            number: self.settings.0.number + 1,
            ..order.settings
        };
        out.log_message(
            level::NOTICE,
            &format!("settings are changed: {:?}", self.settings.0),
        );
        let message = ToShard::from(coordinator::Kind::Settings(self.settings.0));
        for (_, _, link) in self.members.linked() {
            if link.takes_settings {
                out.send_member(link.connection, message.clone());
            }
        }
        // How tablets are moved may be another matter now.
        self.balance.look_soon();
        Ok(self.settings.0)
    }

    /// Copies cannot begin while a log has none at all: where they are to go is said when a server is started.
    fn check_replicas(&self, settings: &Settings) -> Result<(), SettingsError> {
        if settings.replicas.is_none() {
            return Ok(());
        }
        let mut masters = self.members.servers().filter(|server| !server.backup_only);
        match masters.find(|server| server.has_enlisted() && server.replicas == 0) {
            Some(server) => Err(SettingsError::NotPossible(format!(
                "replicas cannot be set while server {} of member {:?} runs without copies: start all servers with copies (-r) first",
                server.id, server.member
            ))),
            None => Ok(()),
        }
    }

    /// A server says what is in force there.
    pub(crate) fn note_settings(&mut self, index: u32, pong: &Pong) {
        let Some(replicas) = pong.replicas else {
            return;
        };
        let server = self.members.server_mut(index);
        if let Some(server) = server.filter(|server| server.replicas != replicas) {
            server.replicas = replicas;
            self.members.server_changed(index);
        }
    }

    /// Whether the coordinator evens servers out by itself, and how many bytes of each tablet it has copied in a second then.
    pub(crate) fn evens_out(&self) -> (bool, u64) {
        let balancing = &self.config.balancing;
        match self.settings.0.rebalance_mbps {
            None => (balancing.evens_out, balancing.bytes_per_second),
            // Who drains is emptied in any case, as fast as was said when the coordinator was started.
            Some(0) => (false, balancing.bytes_per_second),
            Some(mbps) => (true, u64::from(mbps) * 1_000_000),
        }
    }
}
