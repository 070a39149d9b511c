//! Creates printed objects in the cluster of the user's kubeconfig, for jobs without a server and without `kubectl`.
//!
//! Creates all objects or none: after a failure, the objects created so far are deleted. Existing objects are left
//! alone.

use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::core::GroupVersionKind;
use kube::{Client, Config, ResourceExt as _};
use serde_json::Value;

use crate::engine::CallError;
use crate::manifests::GROUP;

/// Kinds that are not namespaced.
const OF_THE_CLUSTER: [&str; 1] = ["PersistentVolume"];

/// Why objects were not created.
#[derive(Debug, thiserror::Error)]
pub enum CreateError {
    #[error("the kubeconfig cannot be used: {0}")]
    Kubeconfig(#[from] KubeconfigError),
    #[error("the kubeconfig has no current context")]
    NoContext,
    #[error("{0}")]
    NoClient(String),
    #[error("not a Kubernetes object: {0}")]
    Object(String),
    #[error("{kind} `{name}` already exists in namespace `{namespace}`; nothing was created")]
    There {
        kind: String,
        name: String,
        namespace: String,
        /// The label value that all objects of its job share.
        group: String,
    },
    #[error("cannot create {kind} `{name}`: {source}")]
    Call {
        kind: String,
        name: String,
        source: CallError,
    },
}

impl CreateError {
    pub fn hint(&self) -> Option<String> {
        match self {
            CreateError::There { group, namespace, .. } => Some(format!(
                "choose another job name, or remove the old job: `kubectl delete service,job,pvc,pv -n {namespace} -l \
                 {GROUP}={group}`"
            )),
            CreateError::NoContext => Some("choose one: `kubectl config use-context NAME`".to_owned()),
            _ => None,
        }
    }
}

/// Creates objects in a namespace, by default that of the context. Returns the names of the context and the namespace.
pub async fn create_objects(
    objects: &[Value],
    namespace: Option<&str>,
) -> Result<(String, String), CreateError> {
    let kubeconfig = Kubeconfig::read()?;
    let context = kubeconfig
        .current_context
        .clone()
        .filter(|name| !name.is_empty())
        .ok_or(CreateError::NoContext)?;
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    let namespace = namespace.unwrap_or(&config.default_namespace).to_owned();
    let client = Client::try_from(config).map_err(|error| CreateError::NoClient(error.to_string()))?;
    let planned: Vec<Planned> = objects
        .iter()
        .map(|object| Planned::new(&client, &namespace, object))
        .collect::<Result<_, _>>()?;
    for (done, next) in planned.iter().enumerate() {
        if let Err(error) = next.create(&namespace).await {
            for made in planned[..done].iter().rev() {
                made.delete().await;
            }
            return Err(error);
        }
    }
    Ok((context, namespace))
}

/// An object and the API of its kind.
struct Planned {
    api: Api<DynamicObject>,
    kind: String,
    object: DynamicObject,
}

impl Planned {
    fn new(client: &Client, namespace: &str, object: &Value) -> Result<Planned, CreateError> {
        let object: DynamicObject =
            serde_json::from_value(object.clone()).map_err(|error| CreateError::Object(error.to_string()))?;
        let types = object.types.clone().unwrap_or_default();
        let kind =
            GroupVersionKind::try_from(&types).map_err(|error| CreateError::Object(error.to_string()))?;
        let resource = ApiResource::from_gvk(&kind);
        let api = match OF_THE_CLUSTER.contains(&types.kind.as_str()) {
            true => Api::all_with(client.clone(), &resource),
            false => Api::namespaced_with(client.clone(), namespace, &resource),
        };
        Ok(Planned {
            api,
            kind: types.kind,
            object,
        })
    }

    async fn create(&self, namespace: &str) -> Result<(), CreateError> {
        let made = self.api.create(&PostParams::default(), &self.object).await;
        let (kind, name) = (self.kind.clone(), self.object.name_any());
        match made.map_err(CallError::from) {
            Ok(_) => Ok(()),
            Err(error) if error.is_there_already() => Err(CreateError::There {
                kind,
                name,
                namespace: namespace.to_owned(),
                group: self.object.labels().get(GROUP).cloned().unwrap_or_default(),
            }),
            Err(source) => Err(CreateError::Call { kind, name, source }),
        }
    }

    /// Best effort: the user needs to see the error that led here, not one of this call.
    async fn delete(&self) {
        let _ = self
            .api
            .delete(&self.object.name_any(), &DeleteParams::background())
            .await;
    }
}
