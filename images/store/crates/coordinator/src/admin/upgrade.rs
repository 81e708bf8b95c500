//! The format in force: what is kept is written in it, by members and here. docs/upgrade.md.
//!
//! It is part of what is noted, and is raised when somebody says so, once every member runs a build that reads the next one; there is no way back from then on.

use base::bugs::{Bug, is_planted};
use base::ids::ServerId;
use wire::format::Formats;
use wire::member::{Format, Hello, ToShard, coordinator};

use crate::CoordinatorEffects;
use crate::orders::FinalizeError;
use crate::registry::members::{self, Members};
use crate::reports::{Refusal, StateEvent};
use crate::status::Upgrade;

/// Hindrances that are named; the others are counted.
const MAX_NAMED: usize = 8;

/// The format in force.
#[derive(Debug)]
pub(crate) struct Upgrades {
    /// What this build reads.
    known: Formats,
    format: u32,
}

impl Upgrades {
    /// Those of a store whose format is in force, as this build sees them.
    pub fn of(known: Formats, format: u32) -> Upgrades {
        Upgrades { known, format }
    }

    pub fn format(&self) -> u32 {
        self.format
    }

    /// Puts a format in force that every member reads, and tells them. Answers the one that is in force then. Asking for what is so already changes nothing.
    ///
    /// # Errors
    /// Somebody does not read it.
    pub fn finalize(
        &mut self,
        members: &mut Members,
        format: u32,
        out: &mut impl CoordinatorEffects,
    ) -> Result<u32, FinalizeError> {
        let known = self.known;
        let format = match format {
            0 => known.newest,
            format => format,
        };
        if format == self.format {
            return Ok(format);
        }
        if format < self.format || !known.reads(format) {
            return Err(FinalizeError::NotPossible {
                format,
                in_force: self.format,
                known,
            });
        }
        let hindrances = self.hindrances(members, format);
        if !hindrances.is_empty() && !is_planted(Bug::FinalizeTooEarly) {
            return Err(FinalizeError::OldMembers { format, hindrances });
        }
        let former = self.format;
        out.report(StateEvent::FormatInForce { format, former }.into());
        self.format = format;
        let message = ToShard::from(coordinator::Kind::Activate(Format { format }));
        for (_, _, link) in members.linked() {
            out.send_member(link.connection, message.clone());
        }
        Ok(format)
    }

    /// What somebody should know who thinks of finalizing.
    pub fn shown(&self, members: &Members) -> Upgrade {
        let newest = self.known.newest;
        Upgrade {
            oldest_format: self.known.oldest,
            newest_format: newest,
            hindrances: match newest > self.format {
                true => self.hindrances(members, newest),
                false => Vec::new(),
            },
        }
    }

    /// For people: who does not read a format, as far as is known. A member that is away counts with the build that it ran last.
    fn hindrances(&self, members: &Members, format: u32) -> Vec<String> {
        let old = members
            .iter()
            .filter(|(_, member)| !member.formats.reads(format));
        let mut hindrances: Vec<String> = old
            .map(|(name, member)| {
                let state = match members.is_up(member.servers()) {
                    true => "runs",
                    false => "is not connected and ran",
                };
                format!(
                    "member {name:?} {state} version {:?}, which reads {}: start it with a version that reads format {format}, or remove it",
                    member.build_version, member.formats
                )
            })
            .collect();
        let more = hindrances.len().saturating_sub(MAX_NAMED);
        if more > 0 {
            hindrances.truncate(MAX_NAMED);
            hindrances.push(format!("{more} members more"));
        }
        hindrances
    }

    /// Whether a process can have a part in a store of the format in force.
    pub fn check(&self, cluster_id: u64, hello: &Hello) -> Result<(), Refusal> {
        let (known, format) = (members::formats_of(hello), self.format);
        // Of one that was let in before it is known what it reads; if others have taken its place, that is what it has to hear.
        let was_let_in = hello.cluster_id == cluster_id && ServerId(hello.server_id).is_valid();
        if known.reads(format) || was_let_in {
            return Ok(());
        }
        Err(Refusal::UnknownFormat {
            format,
            member: hello.member.clone(),
            build_version: hello.build_version.clone(),
            known,
        })
    }
}
