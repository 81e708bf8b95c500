//! What must hold of members at any time.

use super::Members;

impl Members {
    /// Looks at everything.
    ///
    /// # Errors
    /// Says what contradicts what.
    pub(super) fn recount(&self) -> Result<(), String> {
        let mut in_members = 0;
        for (name, member) in self.members.iter() {
            if member.shard_count > member.servers.len() {
                return Err(format!("member {name:?} uses servers that it lacks"));
            }
            for (shard, index) in (0..).zip(&member.servers) {
                let server = self.servers.get(index);
                let is_its =
                    |server: &super::Server| server.member == *name && server.shard_index == shard;
                if !server.is_some_and(is_its) {
                    return Err(format!("shard {shard} of member {name:?} is no server"));
                }
            }
            in_members += member.servers.len();
        }
        if in_members != self.servers.len() {
            return Err(format!(
                "there are {} servers, and members have {in_members}",
                self.servers.len()
            ));
        }
        let links = self.servers.iter();
        let links = links.filter_map(|(index, server)| Some((server.link.as_ref()?, index)));
        let mut count = 0;
        for (link, index) in links {
            if self.connections.get(&link.connection) != Some(index) {
                return Err(format!("nobody knows the connection of server {index}"));
            }
            count += 1;
        }
        match self.connections.len() == count {
            true => Ok(()),
            false => Err("a connection leads to no server".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::alone::{self, index};

    #[test]
    fn an_audit_finds_what_belongs_to_nobody() {
        let (mut store, _) = alone::store(2);
        assert_eq!(store.members.recount(), Ok(()));
        let one = index(&store, 1);
        store.members.connections.insert(999, one);
        assert!(store.members.recount().is_err());
        store.members.connections.remove(&999);
        store.members.servers.remove(&one);
        assert!(store.members.recount().is_err());
    }
}
