//! A small API server for tests, over HTTP: objects with resource versions, as Kubernetes keeps them, and faults when asked for.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{Query, State};
pub use axum::http::Method;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

/// What is to go wrong with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Answered by this, and not carried out.
    Instead(u16),
    /// Carried out, and answered by this.
    Afterwards(u16),
    /// Not carried out, and never answered.
    Silent,
    /// Carried out, and never answered.
    SilentAfterwards,
}

/// One request that goes wrong: the next with this method, and this in its path.
#[derive(Clone, Debug)]
struct Trap {
    method: Method,
    path_part: String,
    fault: Fault,
}

#[derive(Default)]
struct Kept {
    revision: u64,
    /// By path.
    objects: BTreeMap<String, Value>,
    traps: VecDeque<Trap>,
    is_away: bool,
    /// All that was asked, but for leases: method and path.
    asked: Vec<String>,
    longest_object_bytes: usize,
}

type Shared = Arc<Mutex<Kept>>;

pub struct ApiServer {
    kept: Shared,
    pub address: SocketAddr,
    /// `None` only while it is dropped.
    runtime: Option<tokio::runtime::Runtime>,
}

impl Drop for ApiServer {
    fn drop(&mut self) {
        // Whoever drops it may be a task of another runtime, which must not wait; its listener is closed afterwards.
        let runtime = self.runtime.take();
        let _ = std::thread::spawn(move || drop(runtime)).join();
    }
}

impl ApiServer {
    pub fn start() -> ApiServer {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let kept = Shared::default();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let router = Router::new()
            .fallback(serve)
            .layer(axum::extract::DefaultBodyLimit::max(3 << 20))
            .with_state(Arc::clone(&kept));
        runtime.spawn(async move {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            axum::serve(listener, router).await.unwrap()
        });
        ApiServer {
            kept,
            address,
            runtime: Some(runtime),
        }
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap()
    }

    /// The text of a kubeconfig that leads here.
    pub fn kubeconfig(&self) -> String {
        json!({
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "test",
            "clusters": [{ "name": "test", "cluster": { "server": format!("http://{}", self.address) } }],
            "contexts": [{ "name": "test", "context": { "cluster": "test", "user": "test", "namespace": "default" } }],
            "users": [{ "name": "test", "user": {} }],
        })
        .to_string()
    }

    /// The next request like this goes wrong.
    pub fn trap(&self, method: Method, path_part: &str, fault: Fault) {
        let path_part = path_part.to_owned();
        self.kept().traps.push_back(Trap {
            method,
            path_part,
            fault,
        });
    }

    /// All traps were met.
    pub fn no_traps_left(&self) -> bool {
        self.kept().traps.is_empty()
    }

    /// While it is away it answers 503 to everything.
    pub fn set_away(&self, is_away: bool) {
        self.kept().is_away = is_away;
    }

    /// The object at a path below `/apis/GROUP/VERSION/namespaces/default/` or `/api/v1/namespaces/default/`: `leases/box-coordinator`.
    pub fn object(&self, path: &str) -> Option<Value> {
        let kept = self.kept();
        let (_, object) = kept.objects.iter().find(|(at, _)| at.ends_with(path))?;
        Some(object.clone())
    }

    /// Names of all objects of a kind.
    pub fn names(&self, kind: &str) -> Vec<String> {
        let kept = self.kept();
        let paths = kept.objects.keys();
        let names = paths.filter_map(|path| path.split_once(&format!("/{kind}/")));
        names.map(|(_, name)| name.to_owned()).collect()
    }

    /// Somebody changes an object.
    pub fn change(&self, path: &str, change: impl FnOnce(&mut Value)) {
        let mut kept = self.kept();
        kept.revision += 1;
        let revision = kept.revision.to_string();
        let mut objects = kept.objects.iter_mut();
        let (_, object) = objects.find(|(at, _)| at.ends_with(path)).unwrap();
        change(object);
        object["metadata"]["resourceVersion"] = revision.into();
    }

    pub fn remove(&self, path: &str) {
        self.kept().objects.retain(|at, _| !at.ends_with(path));
    }

    /// All objects as they are.
    pub fn copy(&self) -> BTreeMap<String, Value> {
        self.kept().objects.clone()
    }

    /// Puts ConfigMaps back as a backup tool does: the same content under new versions. Others that there are now stay.
    pub fn put_back(&self, objects: BTreeMap<String, Value>) {
        let mut kept = self.kept();
        for (path, mut object) in objects {
            if path.contains("/configmaps/") {
                kept.revision += 1;
                object["metadata"]["resourceVersion"] = kept.revision.to_string().into();
                object["metadata"]["uid"] = format!("uid-{}", kept.revision).into();
                kept.objects.insert(path, object);
            }
        }
    }

    pub fn asked(&self) -> Vec<String> {
        self.kept().asked.clone()
    }

    /// The longest object ever written, as Kubernetes counts: without names, not as JSON.
    pub fn longest_object_bytes(&self) -> usize {
        self.kept().longest_object_bytes
    }
}

async fn serve(
    State(kept): State<Shared>,
    method: Method,
    uri: Uri,
    Query(query): Query<BTreeMap<String, String>>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let path = uri.path().to_owned();
    let fault = {
        let mut kept = kept.lock().unwrap();
        if !path.contains("/leases/") {
            kept.asked.push(format!("{method} {path}"));
        }
        if kept.is_away {
            return failure(503, "ServiceUnavailable", "the API server is away");
        }
        let is_hit = |trap: &Trap| trap.method == method && path.contains(trap.path_part.as_str());
        let at = kept.traps.iter().position(is_hit);
        at.and_then(|at| kept.traps.remove(at))
            .map(|trap| trap.fault)
    };
    match fault {
        Some(Fault::Instead(code)) => return failure(code, "Test", "a fault that was asked for"),
        Some(Fault::Silent) => return silence().await,
        Some(Fault::Afterwards(_) | Fault::SilentAfterwards) | None => {}
    }
    let only_metadata = headers.get("accept").is_some_and(|accept| {
        accept
            .to_str()
            .unwrap_or("")
            .contains("PartialObjectMetadata")
    });
    let response = {
        let mut kept = kept.lock().unwrap();
        kept.carry_out(&method, &path, &query, &body, only_metadata)
    };
    match fault {
        Some(Fault::Afterwards(code)) => failure(code, "Test", "a fault that was asked for"),
        Some(Fault::SilentAfterwards) => silence().await,
        _ => response,
    }
}

async fn silence() -> Response {
    tokio::time::sleep(Duration::from_secs(3600)).await;
    failure(504, "Timeout", "nobody waits so long")
}

fn failure(code: u16, reason: &str, message: &str) -> Response {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "code": code, "reason": reason, "message": message,
    });
    answer(code, &status)
}

fn answer(code: u16, value: &Value) -> Response {
    let code = StatusCode::from_u16(code).unwrap();
    (
        code,
        [("content-type", "application/json")],
        value.to_string(),
    )
        .into_response()
}

impl Kept {
    fn carry_out(
        &mut self,
        method: &Method,
        path: &str,
        query: &BTreeMap<String, String>,
        body: &[u8],
        only_metadata: bool,
    ) -> Response {
        let given: Value = serde_json::from_slice(body).unwrap_or(Value::Null);
        let is_collection = ["configmaps", "leases", "endpointslices"]
            .iter()
            .any(|kind| path.ends_with(kind));
        match (method.as_str(), is_collection) {
            ("GET", true) => self.list(path, query, only_metadata),
            ("GET", false) => match self.objects.get(path) {
                Some(object) if only_metadata => answer(200, &metadata_of(object)),
                Some(object) => answer(200, object),
                None => not_found(path),
            },
            ("POST", true) => {
                let name = given["metadata"]["name"].as_str().unwrap_or("").to_owned();
                let path = format!("{path}/{name}");
                if self.objects.contains_key(&path) {
                    return failure(409, "AlreadyExists", &format!("{name} already exists"));
                }
                self.put(path, given, 201)
            }
            ("PUT", false) => self.replace(path, given),
            ("PATCH", false) => match self.objects.get(path) {
                None => not_found(path),
                Some(object) => {
                    let mut patched = object.clone();
                    merge(&mut patched, &given);
                    let version = &given["metadata"]["resourceVersion"];
                    if version.is_string() && *version != object["metadata"]["resourceVersion"] {
                        return conflict(path);
                    }
                    self.replace(path, patched)
                }
            },
            ("DELETE", false) => match self.objects.get_mut(path) {
                None => not_found(path),
                Some(object) if object["metadata"]["finalizers"].is_array() => {
                    object["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
                    answer(200, object)
                }
                Some(_) => {
                    self.revision += 1;
                    self.objects.remove(path);
                    answer(
                        200,
                        &json!({"kind": "Status", "status": "Success", "code": 200}),
                    )
                }
            },
            _ => failure(405, "MethodNotAllowed", "no such thing"),
        }
    }

    fn replace(&mut self, path: &str, given: Value) -> Response {
        let Some(object) = self.objects.get(path) else {
            return not_found(path);
        };
        let version = &given["metadata"]["resourceVersion"];
        if version.as_str().is_some_and(|version| !version.is_empty())
            && *version != object["metadata"]["resourceVersion"]
        {
            return conflict(path);
        }
        if object["immutable"] == true && object["binaryData"] != given["binaryData"] {
            return failure(422, "Invalid", "field is immutable when `immutable` is set");
        }
        self.put(path.to_owned(), given, 200)
    }

    fn put(&mut self, path: String, mut object: Value, code: u16) -> Response {
        let bytes = object["binaryData"]
            .as_object()
            .into_iter()
            .flat_map(|data| data.values())
            .map(|text| text.as_str().unwrap_or("").len() / 4 * 3)
            .sum();
        if bytes > 1 << 20 {
            return failure(422, "Invalid", "Too long: must have at most 1048576 bytes");
        }
        self.longest_object_bytes = self.longest_object_bytes.max(bytes);
        self.revision += 1;
        object["metadata"]["resourceVersion"] = self.revision.to_string().into();
        if object["metadata"]["uid"].is_null() {
            object["metadata"]["uid"] = format!("uid-{}", self.revision).into();
        }
        let response = answer(code, &object);
        self.objects.insert(path, object);
        response
    }

    fn list(&self, path: &str, query: &BTreeMap<String, String>, only_metadata: bool) -> Response {
        let selector = query.get("labelSelector").map_or("", String::as_str);
        let wanted: Vec<(&str, &str)> = selector
            .split(',')
            .filter_map(|part| part.split_once('='))
            .collect();
        let prefix = format!("{path}/");
        let after = query.get("continue").map_or("", String::as_str);
        let limit = query
            .get("limit")
            .and_then(|limit| limit.parse().ok())
            .unwrap_or(usize::MAX);
        let mut found = self
            .objects
            .range(prefix.clone()..)
            .take_while(|(at, _)| at.starts_with(&prefix))
            .filter(|(at, object)| {
                let labels = &object["metadata"]["labels"];
                at.as_str() > after && wanted.iter().all(|(name, value)| labels[*name] == *value)
            });
        let page: Vec<(&String, &Value)> = found.by_ref().take(limit).collect();
        let token = match (page.last(), found.next()) {
            (Some((at, _)), Some(_)) => at.as_str(),
            _ => "",
        };
        let items = page.iter().map(|(_, object)| match only_metadata {
            true => metadata_of(object),
            false => (*object).clone(),
        });
        let (kind, version) = match only_metadata {
            true => ("PartialObjectMetadataList", "meta.k8s.io/v1"),
            false => ("List", "v1"),
        };
        let list = json!({
            "kind": kind, "apiVersion": version,
            "metadata": { "resourceVersion": self.revision.to_string(), "continue": token },
            "items": items.collect::<Vec<_>>(),
        });
        answer(200, &list)
    }
}

fn metadata_of(object: &Value) -> Value {
    json!({
        "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1",
        "metadata": object["metadata"],
    })
}

fn not_found(path: &str) -> Response {
    failure(404, "NotFound", &format!("{path} not found"))
}

fn conflict(path: &str) -> Response {
    let text = format!("Operation cannot be fulfilled on {path}: the object has been modified");
    failure(409, "Conflict", &text)
}

/// RFC 7386.
fn merge(into: &mut Value, patch: &Value) {
    let Value::Object(fields) = patch else {
        *into = patch.clone();
        return;
    };
    if !into.is_object() {
        *into = json!({});
    }
    for (name, value) in fields {
        match value {
            Value::Null => {
                into.as_object_mut().map(|into| into.remove(name));
            }
            value => merge(&mut into[name.as_str()], value),
        }
    }
}
