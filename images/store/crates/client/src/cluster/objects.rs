//! Tables, and their objects one at a time.

use client_core::Owned;

use crate::{Cluster, Error, Incremented, Keyed, Object, RejectRules, TableId, Tablet, ops};

/// Tables.
impl Cluster {
    /// Makes a table, or finds the one of that name. It is spread over `span` servers.
    pub fn create_table(&mut self, name: &str, span: u32) -> Result<TableId, Error> {
        self.run(ops::CreateTable { name, span })
    }

    /// The table of that name.
    ///
    /// # Errors
    /// [`crate::Status::TableDoesntExist`] among others.
    pub fn table_id(&mut self, name: &str) -> Result<TableId, Error> {
        self.run(ops::GetTableId { name })
    }

    /// Drops a table with all its objects; dropping one that is not there succeeds.
    pub fn drop_table(&mut self, name: &str) -> Result<(), Error> {
        self.run(ops::DropTable { name })
    }

    /// Makes two tablets of the one that holds `key_hash`, which becomes the first of the second. Nothing moves.
    pub fn split_tablet(&mut self, name: &str, key_hash: u64) -> Result<(), Error> {
        self.run(ops::SplitTablet { name, key_hash })
    }

    /// Where the tablets of a table are, as the coordinator knows it; empty if there is no such table.
    pub fn table_config(&mut self, table: TableId) -> Result<Vec<Tablet>, Error> {
        self.run(ops::TableConfig { table })
    }
}

/// Objects, one at a time. Each of these operations is linearizable, and takes effect once.
impl Cluster {
    /// Reads an object.
    ///
    /// # Errors
    /// [`crate::Status::ObjectDoesntExist`] among others; see [`Error::is_absent`].
    pub fn read(&mut self, table: TableId, key: &[u8]) -> Result<Object, Error> {
        let rules = RejectRules::default();
        self.run(ops::Read { table, key, rules })
    }

    /// Reads an object into `value`, whose former content is gone, unless `rules` reject its version. Gives the version.
    pub fn read_into(
        &mut self,
        table: TableId,
        key: &[u8],
        rules: &RejectRules,
        value: &mut Vec<u8>,
    ) -> Result<u64, Error> {
        let now = net::now();
        let (link, io) = (&mut self.link, self.reactor.io());
        let id = link.start(now, io, |core, now, out| {
            core.read(now, table, key, rules, out)
        });
        std::mem::swap(&mut self.link.results.value, value);
        self.link.results.into_value = true;
        let answer = self.await_operation(id, now + self.options.timeout);
        self.link.results.into_value = false;
        std::mem::swap(&mut self.link.results.value, value);
        match answer? {
            Owned::Version(version) => Ok(version),
            _ => Err(Error::Invalid(
                "the client mixed up two answers; please report this",
            )),
        }
    }

    /// Reads an object with all its keys.
    pub fn read_keys_and_value(&mut self, table: TableId, key: &[u8]) -> Result<Keyed, Error> {
        let rules = RejectRules::default();
        self.run(ops::ReadKeysAndValue { table, key, rules })
    }

    /// Writes an object; gives its new version.
    pub fn write(&mut self, table: TableId, key: &[u8], value: &[u8]) -> Result<u64, Error> {
        self.write_if(table, key, value, &RejectRules::default())
    }

    /// Writes an object unless `rules` reject the version that is there; gives the new version.
    ///
    /// ```
    /// # test_store::with_store(|locator| {
    /// use rcbox_client::{Cluster, RejectRules, Status};
    ///
    /// let mut cluster = Cluster::connect(locator)?;
    /// let table = cluster.create_table("fruit", 1)?;
    /// let version = cluster.write(table, b"apple", b"green")?;
    /// let unchanged = RejectRules { version_ne_given: true, given_version: version, ..RejectRules::default() };
    /// cluster.write_if(table, b"apple", b"red", &unchanged)?;
    /// let error = cluster.write_if(table, b"apple", b"blue", &unchanged).unwrap_err();
    /// assert_eq!(error.status(), Some(Status::WrongVersion));
    /// # Ok::<(), rcbox_client::Error>(())
    /// # })
    /// ```
    pub fn write_if(
        &mut self,
        table: TableId,
        key: &[u8],
        value: &[u8],
        rules: &RejectRules,
    ) -> Result<u64, Error> {
        let rules = *rules;
        self.run(ops::Write {
            table,
            key,
            value,
            rules,
        })
    }

    /// Writes an object with several keys, the first of them the primary one, by which it is found.
    pub fn write_keys(
        &mut self,
        table: TableId,
        keys: &[&[u8]],
        value: &[u8],
        rules: &RejectRules,
    ) -> Result<u64, Error> {
        let (keys, rules) = (keys.to_vec(), *rules);
        self.run(ops::WriteKeys {
            table,
            keys,
            value,
            rules,
        })
    }

    /// Removes an object; gives the version that was removed, 0 if there was none.
    pub fn remove(&mut self, table: TableId, key: &[u8]) -> Result<u64, Error> {
        self.remove_if(table, key, &RejectRules::default())
    }

    /// Removes an object unless `rules` reject the version that is there.
    pub fn remove_if(
        &mut self,
        table: TableId,
        key: &[u8],
        rules: &RejectRules,
    ) -> Result<u64, Error> {
        let rules = *rules;
        self.run(ops::Remove { table, key, rules })
    }

    /// Adds to a value of 8 bytes that is a little-endian integer; one that is not there counts as 0. Wraps around.
    ///
    /// ```
    /// # test_store::with_store(|locator| {
    /// let mut cluster = rcbox_client::Cluster::connect(locator)?;
    /// let table = cluster.create_table("counters", 1)?;
    /// assert_eq!(cluster.increment(table, b"visits", 2)?.value, 2);
    /// assert_eq!(cluster.increment(table, b"visits", -5)?.value, -3);
    /// # Ok::<(), rcbox_client::Error>(())
    /// # })
    /// ```
    ///
    /// # Errors
    /// [`crate::Status::InvalidObject`] if the value has not 8 bytes.
    pub fn increment(
        &mut self,
        table: TableId,
        key: &[u8],
        by: i64,
    ) -> Result<Incremented<i64>, Error> {
        self.increment_if(table, key, by, &RejectRules::default())
    }

    /// As [`Cluster::increment`], unless `rules` reject the version that is there.
    pub fn increment_if(
        &mut self,
        table: TableId,
        key: &[u8],
        by: i64,
        rules: &RejectRules,
    ) -> Result<Incremented<i64>, Error> {
        let rules = *rules;
        self.run(ops::IncrementI64 {
            table,
            key,
            by,
            rules,
        })
    }

    /// Adds to a value of 8 bytes that is a little-endian floating point number; see [`Cluster::increment`].
    pub fn increment_f64(
        &mut self,
        table: TableId,
        key: &[u8],
        by: f64,
    ) -> Result<Incremented<f64>, Error> {
        self.increment_f64_if(table, key, by, &RejectRules::default())
    }

    /// As [`Cluster::increment_f64`], unless `rules` reject the version that is there.
    pub fn increment_f64_if(
        &mut self,
        table: TableId,
        key: &[u8],
        by: f64,
        rules: &RejectRules,
    ) -> Result<Incremented<f64>, Error> {
        let rules = *rules;
        self.run(ops::IncrementF64 {
            table,
            key,
            by,
            rules,
        })
    }
}
