//! What people change of the store while it runs: docs/settings.md.
//!
//! It is part of what is noted. Servers are told with their welcome and after every change, and say with each Pong what is in force there.

use base::bugs::{Bug, is_planted};
use wire::member::{Settings, ToShard, coordinator};

use crate::CoordinatorEffects;
use crate::balancing::Balancing;
use crate::movement::Terms;
use crate::orders::{Copies, SettingsError, SettingsOrder, SpecVersion};
use crate::records::Meta;
use crate::registry::members::Members;
use crate::reports::StateEvent;

/// What was set last; nothing yet, while its number is 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct InForce {
    settings: Settings,
    /// What put the numbers of copies in force; `None`: a person, or an order of an older build.
    pub copies_asked_by: Option<SpecVersion>,
}

impl InForce {
    /// As it was noted.
    pub fn noted(meta: &Meta) -> InForce {
        InForce {
            settings: meta.settings.unwrap_or_default(),
            copies_asked_by: meta.copies_asked_by.clone(),
        }
    }

    /// To be noted, and told to servers; `None`: nobody has ever set anything.
    pub fn in_force(&self) -> Option<Settings> {
        Some(self.settings).filter(|settings| settings.number > 0)
    }
}

fn numbers(settings: &Settings) -> (Option<u32>, Option<u32>) {
    (settings.replicas, settings.least_replicas())
}

impl InForce {
    /// What is set.
    pub fn settings(&self) -> Settings {
        self.settings
    }

    /// Puts these in the place of those in force, and tells the servers. Answers whether anything has changed.
    ///
    /// # Errors
    /// They are not possible, or there would be fewer copies and the order has no reason for it that holds.
    pub fn set(
        &mut self,
        members: &mut Members,
        order: &SettingsOrder,
        out: &mut impl CoordinatorEffects,
    ) -> Result<bool, SettingsError> {
        order.settings.check().map_err(SettingsError::Impossible)?;
        let in_force = self.settings;
        let wanted = self.keep_copies(members, order)?;
        if wanted.is_same(&in_force) {
            return Ok(false);
        }
        check_replicas(members, &wanted)?;
        if numbers(&wanted) != numbers(&in_force) {
            self.copies_asked_by.clone_from(&order.asked_by);
        }
        self.settings = Settings {
            number: in_force.number + 1,
            ..wanted
        };
        out.report(StateEvent::SettingsChanged(self.settings).into());
        let message = ToShard::from(coordinator::Kind::Settings(self.settings));
        for (_, _, link) in members.linked() {
            if link.takes_settings {
                out.send_member(link.connection, message.clone());
            }
        }
        Ok(true)
    }

    /// How many copies there are to be now: as was set, or else as many as any server was started with.
    pub fn copies(&self, members: &Members) -> Copies {
        let settings = &self.settings;
        let masters = members.servers().filter(|it| it.has_enlisted());
        let started_with = masters.map(|server| server.replicas).max();
        Copies {
            replicas: settings.replicas.or(started_with).unwrap_or(0),
            least: settings.least_replicas(),
        }
    }

    /// What an order comes to. Whoever is mistaken (about a member that is away, with an old copy of the specification, of an older build) makes no copies
    /// fewer: what an order leaves out stays, and one that asks for fewer has to know how many there are, and to be asked for by a newer version of the
    /// specification than the one that asked for those.
    fn keep_copies(
        &self,
        members: &Members,
        order: &SettingsOrder,
    ) -> Result<Settings, SettingsError> {
        let in_force = self.copies(members);
        let wanted = match (order.settings.replicas, order.fewer_than) {
            (None, None) if !is_planted(Bug::ObeyFewerCopies) => Settings {
                replicas: self.settings.replicas,
                min_replicas: self.settings.min_replicas,
                ..order.settings
            },
            _ => order.settings,
        };
        let asked = match numbers(&wanted) {
            (Some(replicas), least) => Copies { replicas, least },
            // As servers were started: nobody knows whether that is less.
            (None, _) if self.settings.replicas.is_some() => Copies {
                replicas: 0,
                least: None,
            },
            (None, _) => in_force,
        };
        let is_fewer = asked.replicas < in_force.replicas || asked.least < in_force.least;
        if !is_fewer || is_planted(Bug::ObeyFewerCopies) {
            return Ok(wanted);
        }
        let Some(expected) = order.fewer_than else {
            return Err(SettingsError::FewerCopies { asked, in_force });
        };
        if expected != in_force.replicas {
            return Err(SettingsError::OtherCopies { expected, in_force });
        }
        match (&self.copies_asked_by, &order.asked_by) {
            (Some(by), Some(asked_by))
                if by.uid == asked_by.uid && asked_by.generation <= by.generation =>
            {
                Err(SettingsError::NotNewer {
                    in_force,
                    by: by.clone(),
                    asked_by: asked_by.clone(),
                })
            }
            _ => Ok(wanted),
        }
    }

    /// Whether the coordinator evens servers out by itself, and how many bytes of each tablet it has copied in a second then.
    pub fn terms_of_movement(&self, balancing: &Balancing, recoveries: usize) -> Terms {
        let (evens_out, bytes_per_second) = match self.settings.rebalance_mbps {
            None => (balancing.evens_out, balancing.bytes_per_second),
            // Who drains is emptied in any case, as fast as was said when the coordinator was started.
            Some(0) => (false, balancing.bytes_per_second),
            Some(mbps) => (true, u64::from(mbps) * 1_000_000),
        };
        Terms {
            evens_out,
            bytes_per_second,
            recoveries,
        }
    }
}

/// Copies cannot begin while a log has none at all: where they are to go is said when a server is started.
fn check_replicas(members: &Members, settings: &Settings) -> Result<(), SettingsError> {
    if settings.replicas.is_none() {
        return Ok(());
    }
    let mut masters = members.servers().filter(|server| !server.backup_only);
    match masters.find(|server| server.has_enlisted() && server.replicas == 0) {
        Some(server) => Err(SettingsError::WithoutCopies {
            server: server.id,
            member: server.member.clone(),
        }),
        None => Ok(()),
    }
}
