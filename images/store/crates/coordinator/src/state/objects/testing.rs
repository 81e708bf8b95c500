//! The objects of an API server, and what a request does to them once it gets there: for tests and simulations, which decide when that is.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use prost::Message;

use super::format::{Root, decode_chunk};
use super::{Batch, ChunkId, Name, ObjectResponse, Request, Version};
use crate::state::Changes;

pub type Pairs = BTreeMap<Vec<u8>, Vec<u8>>;

/// Objects with their versions.
pub type Objects = BTreeMap<Name, (u64, Arc<[u8]>)>;

/// Objects, and the lists of them that a cache may still have.
#[derive(Debug)]
pub struct ApiServer {
    pub objects: Objects,
    /// Counts writes; never goes back.
    revision: u64,
    max_object_bytes: usize,
    /// Lists as they were, the newest last.
    lists: VecDeque<Vec<ChunkId>>,
}

/// What a request has changed.
#[derive(Debug, PartialEq)]
pub enum Change {
    Nothing,
    Root,
    Created(ChunkId),
    Deleted(ChunkId),
}

impl ApiServer {
    /// Longer objects are refused.
    pub fn new(max_object_bytes: usize) -> ApiServer {
        ApiServer {
            objects: Objects::new(),
            revision: 0,
            max_object_bytes,
            lists: VecDeque::from([Vec::new()]),
        }
    }

    fn put(&mut self, name: Name, bytes: Arc<[u8]>) -> ObjectResponse {
        self.revision += 1;
        self.objects.insert(name, (self.revision, bytes));
        self.note_list();
        ObjectResponse::Done(Version(self.revision.to_string()))
    }

    /// Those that are there now.
    pub fn chunks(&self) -> Vec<ChunkId> {
        let names = self.objects.keys();
        let chunks = names.filter_map(|name| match name {
            Name::Chunk(id) => Some(*id),
            Name::Root => None,
        });
        chunks.collect()
    }

    fn note_list(&mut self) {
        self.lists.push_back(self.chunks());
        if self.lists.len() > 40 {
            self.lists.pop_front();
        }
    }

    /// `staleness`: how old a list may be, in changes.
    pub fn execute(&mut self, request: &Request, staleness: usize) -> (ObjectResponse, Change) {
        match request {
            Request::Get(name) => match self.objects.get(name) {
                Some((version, bytes)) => {
                    let version = Version(version.to_string());
                    (
                        ObjectResponse::Found(version, bytes.to_vec()),
                        Change::Nothing,
                    )
                }
                None => (ObjectResponse::NotFound, Change::Nothing),
            },
            Request::Create(_, bytes) | Request::Replace(_, bytes)
                if bytes.len() > self.max_object_bytes =>
            {
                (
                    ObjectResponse::Failed("object too large".to_owned()),
                    Change::Nothing,
                )
            }
            Request::Create(name, _) if self.objects.contains_key(name) => {
                (ObjectResponse::Conflict, Change::Nothing)
            }
            Request::Create(name, bytes) => {
                let answer = self.put(*name, bytes.clone());
                match name {
                    Name::Root => (answer, Change::Root),
                    Name::Chunk(id) => (answer, Change::Created(*id)),
                }
            }
            Request::Replace(expected, bytes) => match self.objects.get(&Name::Root) {
                None => (ObjectResponse::NotFound, Change::Nothing),
                // As Kubernetes does: no version is any version.
                Some((version, _))
                    if expected.0.is_empty() || expected.0 == version.to_string() =>
                {
                    (self.put(Name::Root, bytes.clone()), Change::Root)
                }
                Some(_) => (ObjectResponse::Conflict, Change::Nothing),
            },
            Request::Delete(id) => match self.objects.remove(&Name::Chunk(*id)) {
                Some(_) => {
                    self.note_list();
                    (
                        ObjectResponse::Done(Version(String::new())),
                        Change::Deleted(*id),
                    )
                }
                None => (ObjectResponse::NotFound, Change::Nothing),
            },
            Request::List { fresh } => {
                let staleness = if *fresh { 0 } else { staleness };
                let at = self.lists.len().saturating_sub(1 + staleness);
                (
                    ObjectResponse::Listed(self.lists[at].clone()),
                    Change::Nothing,
                )
            }
        }
    }

    /// Somebody changes the root's labels.
    pub fn touch_root(&mut self) {
        if let Some((_, bytes)) = self.objects.get(&Name::Root) {
            let bytes = bytes.clone();
            self.put(Name::Root, bytes);
        }
    }

    /// All objects are put back, with the versions that they had.
    pub fn roll_back(&mut self, objects: Objects) {
        self.objects = objects;
        self.lists.clear();
        self.note_list();
    }

    /// # Panics
    /// Somebody else than a keeper has written the root.
    pub fn root(&self) -> Option<Root> {
        let (_, bytes) = self.objects.get(&Name::Root)?;
        Some(Root::decode(bytes).expect("only keepers write the root"))
    }

    /// What the root and its chunks say, read as simply as can be.
    ///
    /// # Errors
    /// Something that the root names is missing, or not what it says.
    pub fn state(&self) -> Result<Pairs, String> {
        let root = self.root().ok_or("there is no root")?;
        let mut pairs = Pairs::new();
        for run in &root.runs {
            let mut bytes = Vec::new();
            for chunk in &run.chunks {
                let object = self.objects.get(&Name::Chunk(chunk.id));
                let (_, object) =
                    object.ok_or(format!("the root names {}, which is not there", chunk.id))?;
                bytes.extend_from_slice(decode_chunk(root.cluster_id, chunk, object)?);
            }
            let changes = Changes::decode(bytes.as_slice()).map_err(|error| error.to_string())?;
            apply(&changes, &mut pairs);
        }
        apply(&Batch::to_changes(&root.tail), &mut pairs);
        Ok(pairs)
    }
}

/// What a leader does to its pairs.
pub fn apply(changes: &Changes, pairs: &mut Pairs) {
    for pair in &changes.puts {
        pairs.insert(pair.key.clone(), pair.value.clone());
    }
    for key in &changes.deletes {
        pairs.remove(key);
    }
}
