//! Which build is where, and what becomes of those that the store has left behind.

use backup::OpenError;
use server::End;
use wire::format::Formats;
use wire::member::ToShard;
use wire::member::coordinator::Kind;

use crate::cluster::builds::BuildHost;
use crate::cluster::hosts::coordinator_host;
use crate::cluster::{Cluster, host_name, server_host};

impl Cluster {
    pub fn build_at(&self, place: BuildHost) -> Formats {
        match place {
            BuildHost::Server(server) => self.servers[server].installed,
            BuildHost::Coordinator(process) => self.coordinators[process].installed,
        }
    }

    /// The next process there is of this build.
    pub fn install(&mut self, place: BuildHost, formats: Formats) {
        let host = match place {
            BuildHost::Server(server) => {
                self.servers[server].installed = formats;
                server_host(server)
            }
            BuildHost::Coordinator(process) => {
                self.coordinators[process].installed = formats;
                coordinator_host(process)
            }
        };
        self.note_fault(host, "gets the build up to format", formats.newest.into());
    }

    /// The coordinator tells a shard which format is in force.
    pub fn note_format(&mut self, message: &ToShard) {
        let format = match &message.kind {
            Some(Kind::Welcome(welcome)) => welcome.format,
            Some(Kind::Activate(order)) => order.format,
            _ => return,
        };
        // Late words of a deposed leader are not heard any more.
        if self.scenario.fail_over.is_some() {
            self.builds.in_force = format.max(self.builds.in_force);
            return;
        }
        if format < self.builds.in_force {
            let text = format!(
                "a coordinator says that format {format} is in force, after {} was",
                self.builds.in_force
            );
            return self.fail(text);
        }
        self.builds.in_force = format;
    }

    /// A shard hears it: whoever has a part in the store reads what others write.
    pub fn hold_format(&mut self, server: usize, message: &ToShard) {
        let format = match &message.kind {
            Some(Kind::Welcome(welcome)) => welcome.format,
            Some(Kind::Activate(order)) => order.format,
            _ => return,
        };
        let formats = self.servers[server].formats;
        if !formats.reads(format) {
            let name = host_name(server_host(server));
            self.fail(format!(
                "{name} is told that format {format} is in force, and reads {formats}"
            ));
        }
    }

    /// Whether a server ends because the store has left its build behind: the coordinator says so, or its own disk, while the store is made again by
    /// somebody who does not know yet which format was in force.
    pub fn is_too_old(&self, server: usize, why: &End) -> bool {
        let formats = self.servers[server].formats;
        match why {
            End::WrongVersion(_) => formats.newest < Formats::NEXT.newest,
            End::Storage(OpenError::UnknownFormat { .. }) => !formats.reads(self.builds.in_force),
            End::Storage(_) | End::Deposed | End::Superseded(_) => false,
        }
    }

    /// A server of a build that the store has left behind was not let in: somebody starts the right one.
    pub fn server_is_too_old(&mut self, server: usize) {
        self.coverage.hit("servers of an old build refused");
        self.install(BuildHost::Server(server), Formats::NEXT);
        self.crash_server(server);
    }

    /// Likewise a coordinator.
    pub fn coordinator_is_too_old(&mut self, process: usize) {
        self.coverage.hit("coordinators of an old build refused");
        self.install(BuildHost::Coordinator(process), Formats::NEXT);
    }

    /// Whether these seeds have several builds at all.
    pub fn has_builds(&self) -> bool {
        self.builds.happen
    }
}
