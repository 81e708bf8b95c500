//! Many objects at a time.

use crate::{
    Cluster, Each, Error, IncrementObject, Incremented, Keyed, Multi, Object, ReadObject,
    RemoveObject, Scan, TableId, WriteObject, ops,
};

/// Many objects at a time, in few messages to all servers at once. Not atomic, and a part whose answer got lost may take effect again.
impl Cluster {
    /// Reads many objects. Gives for each, in order, the object or why it was not read.
    ///
    /// ```
    /// # test_store::with_store(|locator| {
    /// use rcbox_client::{Cluster, ReadObject, RejectRules};
    ///
    /// let mut cluster = Cluster::connect(locator)?;
    /// let table = cluster.create_table("fruit", 1)?;
    /// cluster.write(table, b"apple", b"green")?;
    /// let rules = RejectRules::default();
    /// let wanted = [&b"apple"[..], b"ghost"].map(|key| ReadObject { table, key, rules });
    /// let objects = cluster.multi_read(&wanted)?;
    /// assert_eq!(objects[0].as_ref().unwrap().value, b"green"[..]);
    /// assert!(objects[1].as_ref().unwrap_err().is_absent());
    /// # Ok::<(), rcbox_client::Error>(())
    /// # })
    /// ```
    pub fn multi_read(&mut self, objects: &[ReadObject<'_>]) -> Result<Each<Object>, Error> {
        let multi = Multi::reads(objects)?;
        self.run(ops::MultiRead { multi })
    }

    /// Reads many objects with all their keys.
    pub fn multi_read_keys(&mut self, objects: &[ReadObject<'_>]) -> Result<Each<Keyed>, Error> {
        let multi = Multi::reads(objects)?;
        self.run(ops::MultiReadKeys { multi })
    }

    /// Writes many objects. Gives for each, in order, its new version or why it was not written.
    pub fn multi_write(&mut self, objects: &[WriteObject<'_>]) -> Result<Each<u64>, Error> {
        let multi = Multi::writes(objects)?;
        self.run(ops::MultiChange { multi })
    }

    /// Removes many objects. Gives for each, in order, the version that was removed (0: there was none) or why it was not.
    pub fn multi_remove(&mut self, objects: &[RemoveObject<'_>]) -> Result<Each<u64>, Error> {
        let multi = Multi::removes(objects)?;
        self.run(ops::MultiChange { multi })
    }

    /// Increments many objects. Gives for each, in order, its 8 bytes as they are now or why it was not changed.
    pub fn multi_increment(
        &mut self,
        objects: &[IncrementObject<'_>],
    ) -> Result<Each<Incremented<[u8; 8]>>, Error> {
        let multi = Multi::increments(objects)?;
        self.run(ops::MultiIncrement { multi })
    }

    /// All objects of a table. Those that are there from the beginning of the scan to its end come at least once.
    ///
    /// ```
    /// # test_store::with_store(|locator| {
    /// let mut cluster = rcbox_client::Cluster::connect(locator)?;
    /// let table = cluster.create_table("fruit", 1)?;
    /// cluster.write(table, b"apple", b"green")?;
    /// for object in cluster.scan(table) {
    ///     let object = object?;
    ///     println!("{:?} version {}: {:?}", object.key(), object.version, object.value);
    /// }
    /// # Ok::<(), rcbox_client::Error>(())
    /// # })
    /// ```
    pub fn scan(&mut self, table: TableId) -> Scan<'_> {
        Scan::new(self, table)
    }
}
