//! How the API server is reached.

use std::time::Duration;

use kube::Client;
use kube::core::Status;

/// What all objects of a state carry, so that people see what belongs to which store: `kubectl get configmaps,leases -l rcbox.dev/store=NAME`.
pub const STORE_LABEL: &str = "rcbox.dev/store";
/// What wrote the object: not the operator, which knows its own by another value.
const MANAGED_BY: &str = "rcbox-coordinator";

const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// Why there is no way to the API server.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    #[error(
        "no way to the API server of Kubernetes: {0}; run this in a pod with a service account, or name a kubeconfig in KUBECONFIG"
    )]
    Infer(#[source] kube::config::InferConfigError),
    #[error("cannot use the configuration of the API server: {0}")]
    Client(#[source] kube::Error),
}

/// A client as the environment says (a kubeconfig, or a pod's service account), and the namespace to use.
///
/// # Errors
/// There is no configuration, or it cannot be used: a text that says what to do.
pub async fn connect(namespace: Option<&str>) -> Result<(Client, String), ConnectError> {
    let mut config = kube::Config::infer().await.map_err(ConnectError::Infer)?;
    config.connect_timeout = Some(CONNECT_TIMEOUT);
    // Whoever asks decides what becomes of a request that failed: it may have taken effect.
    config.default_retry = false;
    let namespace = namespace.unwrap_or(&config.default_namespace).to_owned();
    let client = Client::try_from(config).map_err(ConnectError::Client)?;
    Ok((client, namespace))
}

pub fn labels(store: &str) -> std::collections::BTreeMap<String, String> {
    [
        ("app.kubernetes.io/name", "rcbox"),
        ("app.kubernetes.io/component", "coordinator"),
        ("app.kubernetes.io/managed-by", MANAGED_BY),
        (STORE_LABEL, store),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .into()
}

/// Why a request was of no use.
#[derive(Debug)]
pub enum Failure {
    NotFound,
    /// Another version than the one that was named, or there already.
    Conflict,
    /// Whether it took effect is unknown.
    Unknown(String),
}

impl From<kube::Error> for Failure {
    fn from(error: kube::Error) -> Failure {
        match error {
            kube::Error::Api(status) if status.code == 404 => Failure::NotFound,
            kube::Error::Api(status) if status.code == 409 => Failure::Conflict,
            kube::Error::Api(status) => Failure::Unknown(said(&status)),
            error => Failure::Unknown(with_causes(&error)),
        }
    }
}

fn said(status: &Status) -> String {
    let Status {
        code,
        reason,
        message,
        ..
    } = status;
    format!("the API server answered {code} {reason}: {message}")
}

/// The texts of all errors that this one came of: libraries tell only a part each.
fn with_causes(error: &kube::Error) -> String {
    let mut text = "the API server did not answer".to_owned();
    let mut cause: Option<&dyn std::error::Error> = Some(error);
    while let Some(error) = cause {
        let said = error.to_string();
        if !text.ends_with(&said) {
            text = format!("{text}: {said}");
        }
        cause = error.source();
    }
    text
}

/// What comes of `request`, or that nothing came in time.
pub async fn within<T>(
    limit: Duration,
    request: impl Future<Output = Result<T, kube::Error>>,
) -> Result<T, Failure> {
    match tokio::time::timeout(limit, request).await {
        Ok(result) => result.map_err(Failure::from),
        Err(_) => Err(Failure::Unknown(format!(
            "the API server did not answer within {} s",
            limit.as_secs()
        ))),
    }
}
