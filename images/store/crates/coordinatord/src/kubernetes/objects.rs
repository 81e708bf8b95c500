//! The state's objects as ConfigMaps: one `root`, and immutable chunks.
//!
//! ConfigMaps and not Secrets: there is nothing secret in them (names, addresses, ids), and rights cannot be limited to names
//! that are made on the way, so that a coordinator could read all Secrets of its namespace. Objects have no owner, for two
//! reasons: a store's state must not go because something else was deleted, and objects that are put back from a backup would
//! name owners that are not there any more, and be collected at once.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use coordinator::state::objects::{ChunkId, Name, ObjectResponse, Request, Version};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams, VersionMatch};
use kube::{Client, ResourceExt};
use serde_json::json;

use super::api::{Failure, STORE_LABEL, labels, within};

/// How long an answer may take. Objects of half a mebibyte go to a quorum of disks.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// Keeps the root from being deleted in passing.
pub const FINALIZER: &str = "rcbox.dev/state";
/// Where an object's bytes are.
const KEY: &str = "data";
/// Objects that the API server reads for one page of a list.
const PAGE: u32 = 100;
/// What chunks are told from the root by.
const KIND_LABEL: &str = "rcbox.dev/state";

/// The objects of one state.
pub struct Objects {
    configmaps: Api<ConfigMap>,
    store: String,
    /// Somebody was told already that the root was deleted.
    told: AtomicBool,
    /// The root's version as the last request about it found it; the inner `None`: there was no root.
    root_seen: Mutex<Option<RootVersion>>,
}

/// Of the root, if there is one.
type RootVersion = Option<String>;

impl Objects {
    pub fn new(client: Client, namespace: &str, store: &str) -> Objects {
        Objects {
            configmaps: Api::namespaced(client, namespace),
            store: store.to_owned(),
            told: AtomicBool::new(false),
            root_seen: Mutex::default(),
        }
    }

    /// Carries a request out. There is an answer in any case, and in time.
    pub async fn carry_out(&self, request: Request) -> ObjectResponse {
        let is_of_root = match &request {
            Request::Get(name) | Request::Create(name, _) => *name == Name::Root,
            Request::Replace(..) => true,
            Request::Delete(_) | Request::List { .. } => false,
        };
        let result = match request {
            Request::Get(name) => self.get(name).await,
            Request::Create(name, bytes) => self.create(name, &bytes).await,
            Request::Replace(version, bytes) => self.replace(&version, &bytes).await,
            Request::Delete(id) => self.delete(id).await,
            Request::List { fresh } => self.list(fresh).await,
        };
        let answer = match result {
            Ok(answer) => answer,
            Err(Failure::NotFound) => ObjectResponse::NotFound,
            Err(Failure::Conflict) => ObjectResponse::Conflict,
            Err(Failure::Unknown(why)) => ObjectResponse::Failed(why),
        };
        if is_of_root {
            self.note_root(&answer);
        }
        answer
    }

    fn note_root(&self, answer: &ObjectResponse) {
        let version = match answer {
            ObjectResponse::Found(version, _) | ObjectResponse::Done(version) => {
                Some(version.0.clone())
            }
            ObjectResponse::NotFound => None,
            ObjectResponse::Conflict | ObjectResponse::Failed(_) | ObjectResponse::Listed(_) => {
                return;
            }
        };
        *self
            .root_seen
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = Some(version);
    }

    /// Returns once the root is another one than [`Objects::carry_out`] has found last. What was decided then, people may have changed
    /// before anybody watches.
    pub async fn root_changes(&self, look_every: Duration) {
        let mut before = self
            .root_seen
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        loop {
            // Whoever cannot ask asks again.
            if let Ok(version) = self.root_version().await
                && *before.get_or_insert_with(|| version.clone()) != version
            {
                return;
            }
            tokio::time::sleep(look_every).await;
        }
    }

    /// The root's version, without the root.
    async fn root_version(&self) -> Result<RootVersion, Failure> {
        let name = self.name(Name::Root);
        let metadata = within(ANSWER_TIMEOUT, self.configmaps.get_metadata(&name)).await;
        match metadata {
            Ok(object) => Ok(Some(version_of(&object.metadata).0)),
            Err(Failure::NotFound) => Ok(None),
            Err(failure) => Err(failure),
        }
    }

    fn name(&self, name: Name) -> String {
        format!("{}-state-{name}", self.store)
    }

    /// Without a resource version a get reads from the quorum.
    async fn get(&self, name: Name) -> Result<ObjectResponse, Failure> {
        let mut object = within(ANSWER_TIMEOUT, self.configmaps.get(&self.name(name))).await?;
        self.look_at(&object.metadata);
        let version = version_of(&object.metadata);
        let data = object
            .binary_data
            .as_mut()
            .and_then(|data| data.remove(KEY));
        // One without bytes is damaged, which whoever asked can say better.
        let bytes = data.map(|ByteString(bytes)| bytes).unwrap_or_default();
        Ok(ObjectResponse::Found(version, bytes))
    }

    async fn create(&self, name: Name, bytes: &[u8]) -> Result<ObjectResponse, Failure> {
        let object = self.object(name, bytes);
        let parameters = PostParams::default();
        let created = within(ANSWER_TIMEOUT, self.configmaps.create(&parameters, &object)).await;
        match created {
            Ok(created) => Ok(ObjectResponse::Done(version_of(&created.metadata))),
            Err(Failure::NotFound) => Err(Failure::Unknown(format!(
                "there is no namespace for {}: create it",
                self.name(name)
            ))),
            Err(failure) => Err(failure),
        }
    }

    /// A patch with a version is refused at any other one, as a replacement is, and leaves labels alone that people have put there.
    async fn replace(&self, version: &Version, bytes: &[u8]) -> Result<ObjectResponse, Failure> {
        let patch = json!({
            "metadata": { "resourceVersion": version.0 },
            "binaryData": { KEY: ByteString(bytes.to_vec()) },
        });
        let (name, parameters) = (self.name(Name::Root), PatchParams::default());
        let patch = Patch::Merge(&patch);
        let patched = self.configmaps.patch(&name, &parameters, &patch);
        let patched = within(ANSWER_TIMEOUT, patched).await?;
        self.look_at(&patched.metadata);
        Ok(ObjectResponse::Done(version_of(&patched.metadata)))
    }

    async fn delete(&self, id: ChunkId) -> Result<ObjectResponse, Failure> {
        let name = self.name(Name::Chunk(id));
        let parameters = DeleteParams::background();
        within(ANSWER_TIMEOUT, self.configmaps.delete(&name, &parameters)).await?;
        Ok(ObjectResponse::Done(Version(String::new())))
    }

    /// All pages of it. One that is not fresh may come out of the API server's cache.
    async fn list(&self, fresh: bool) -> Result<ObjectResponse, Failure> {
        let mut parameters = ListParams::default()
            .labels(&format!("{STORE_LABEL}={},{KIND_LABEL}=chunk", self.store))
            .limit(PAGE);
        if !fresh {
            // The API server gives all of a cached list at once.
            parameters.limit = None;
            parameters.resource_version = Some("0".to_owned());
            parameters.version_match = Some(VersionMatch::NotOlderThan);
        }
        let prefix = self.name(Name::Root).replace("root", "");
        let mut chunks = Vec::new();
        loop {
            let page = within(ANSWER_TIMEOUT, self.configmaps.list_metadata(&parameters)).await?;
            let names = page.items.iter().map(ResourceExt::name_any);
            chunks.extend(
                names.filter_map(|name| name.strip_prefix(&prefix)?.parse::<ChunkId>().ok()),
            );
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => parameters.continue_token = Some(token),
                None => return Ok(ObjectResponse::Listed(chunks)),
            }
        }
    }

    fn object(&self, name: Name, bytes: &[u8]) -> ConfigMap {
        let (kind, about) = match name {
            Name::Root => (
                "root",
                "What the coordinator of this store knows; without it, nobody knows what is in the store's volumes.",
            ),
            Name::Chunk(_) => (
                "chunk",
                "A part of what the coordinator of this store knows. The root names those that are needed; the coordinator deletes others.",
            ),
        };
        let mut labels = labels(&self.store);
        labels.insert(KIND_LABEL.to_owned(), kind.to_owned());
        let is_root = name == Name::Root;
        ConfigMap {
            metadata: ObjectMeta {
                name: Some(self.name(name)),
                labels: Some(labels),
                annotations: Some([("rcbox.dev/about".to_owned(), about.to_owned())].into()),
                finalizers: is_root.then(|| vec![FINALIZER.to_owned()]),
                ..ObjectMeta::default()
            },
            binary_data: Some(BTreeMap::from([(
                KEY.to_owned(),
                ByteString(bytes.to_vec()),
            )])),
            immutable: (!is_root).then_some(true),
            ..ConfigMap::default()
        }
    }

    fn look_at(&self, metadata: &ObjectMeta) {
        if metadata.deletion_timestamp.is_some() && !self.told.swap(true, Ordering::Relaxed) {
            tracing::error!(
                "somebody has deleted {}: only its finalizer {FINALIZER} still keeps it. Make a copy of it (kubectl get configmap -o yaml), \
                 stop the coordinators, let it go, and put the copy back",
                self.name(Name::Root)
            );
        }
    }
}

fn version_of(metadata: &ObjectMeta) -> Version {
    Version(metadata.resource_version.clone().unwrap_or_default())
}

#[cfg(test)]
#[path = "objects_tests.rs"]
mod tests;
