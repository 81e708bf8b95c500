use client::*;
pub struct PerfStats {
    pub cycles_per_second: f64,
    pub collection_time: u64,
    pub read_count: u64,
    pub write_count: u64,
}
pub struct Keyed {
    pub version: u64,
    pub keys: Vec<Vec<u8>>,
    pub value: Vec<u8>,
}
pub struct ReadObject<'a> {
    pub table: TableId,
    pub key: &'a [u8],
    pub rules: RejectRules,
}
pub struct Server {
    pub id: wire::ids::ServerId,
    pub services: u32,
    pub locator: String,
    pub status: u32,
}
pub struct Inc<T> {
    pub version: u64,
    pub value: T,
}
pub struct Scan<'a>(&'a mut Cluster);
impl Scan<'_> {
    pub fn keys_only(self) -> Self {
        self
    }
}
impl Iterator for Scan<'_> {
    type Item = Result<Keyed, Error>;
    fn next(&mut self) -> Option<Self::Item> {
        None
    }
}
type R<T> = Result<T, Error>;
pub trait Shim {
    fn server_list(&mut self) -> R<Vec<Server>> {
        Err(Error::Invalid("shim"))
    }
    fn perf_stats_all(&mut self) -> R<Vec<(wire::ids::ServerId, PerfStats)>> {
        Err(Error::Invalid("shim"))
    }
    fn split_tablet(&mut self, _: &str, _: u64) -> R<()> {
        Err(Error::Invalid("shim"))
    }
    fn multi_read(&mut self, _: &[ReadObject<'_>]) -> R<Vec<R<Object>>> {
        Err(Error::Invalid("shim"))
    }
    fn increment_if(&mut self, _: TableId, _: &[u8], _: i64, _: &RejectRules) -> R<Inc<i64>> {
        Err(Error::Invalid("shim"))
    }
    fn increment_f64_if(&mut self, _: TableId, _: &[u8], _: f64, _: &RejectRules) -> R<Inc<f64>> {
        Err(Error::Invalid("shim"))
    }
    fn scan(&mut self, _: TableId) -> Scan<'_>;
}
impl Shim for Cluster {
    fn scan(&mut self, _: TableId) -> Scan<'_> {
        Scan(self)
    }
}
