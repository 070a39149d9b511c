//! Keeps users' namespaces in step with their accounts: each account has its own namespace with its current quota, in
//! which this server has its rights.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use kube::api::PostParams;
use kube::{Api, Client};

use paddlecloud_core::names::UserName;
use paddlecloud_core::scheduler::Quota;
use tokio::sync::watch;

use super::launch::NotCreated;
use super::{Inner, StartError, watching};
use crate::render::tenancy::{self, Grant, Tenant};
use crate::settings::{Namespaces, Settings};

/// What an account means for the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tenancy {
    /// Unique: no other account has or ever had it.
    pub namespace: String,
    /// The user's current quota.
    pub quota: Quota,
}

/// The accounts, as far as the cluster needs them.
pub trait Accounts: Send + Sync {
    fn tenancy(&self, user: &UserName) -> Tenancy;

    /// The tenancies of all current accounts.
    fn all(&self) -> Vec<Tenancy>;

    /// A counter that grows with every change.
    fn changes(&self) -> watch::Receiver<u64>;
}

/// The rights that this server gives itself in users' namespaces, if the settings name a role for them. Only the API
/// server knows which account a kubeconfig leads to.
pub async fn grant(settings: &Settings, client: &Client) -> Result<Option<Grant>, StartError> {
    let Some(role) = &settings.namespace_role else {
        return Ok(None);
    };
    let api: Api<SelfSubjectReview> = Api::all(client.clone());
    let (params, question) = (PostParams::default(), SelfSubjectReview::default());
    let reply = watching::answer("the server's own account", api.create(&params, &question)).await?;
    let user = reply.status.and_then(|status| status.user_info?.username);
    let user =
        user.ok_or_else(|| StartError::Unreachable("it does not name this server's account".into()))?;
    tracing::info!(account = user, role, "rights in users' namespaces");
    Ok(Some(Grant::new(role, &user)))
}

/// Gives this server its rights in the namespaces of running jobs: an earlier version may not have needed them. Other
/// namespaces follow with their next job, or their next quota.
pub async fn bind_recorded(inner: &Inner) {
    if inner.grant.is_none() {
        return;
    }
    let namespaces: BTreeSet<String> = {
        let table = inner.table();
        table
            .iter()
            .map(|(_, entry)| entry.pod.namespace.clone())
            .collect()
    };
    let binding = namespaces.iter().map(|namespace| async move {
        let tenant = inner.tenant(namespace, &Quota::default());
        if let Err(error) = inner.cluster.bind_existing(&tenant).await {
            tracing::warn!(namespace, %error, "no rights in a namespace with jobs");
        }
    });
    futures_util::future::join_all(binding).await;
}

/// Prepares the user's namespace, once per server run and again when the user's quota has changed.
pub async fn ensure(inner: &Inner, user: &UserName) -> Result<(), NotCreated> {
    if inner.settings.namespaces != Namespaces::PerUser {
        return Ok(());
    }
    let name = inner.accounts.tenancy(user).namespace;
    let asked = Instant::now();
    let turn = Arc::clone(inner.tenants().entry(name.clone()).or_default());
    let mut known = turn.lock().await;
    let quota = inner.accounts.tenancy(user).quota;
    if known.value == Some(quota) {
        return Ok(());
    }
    let tenant = inner.tenant(&name, &quota);
    let making = async {
        inner.cluster.ensure_tenant(&tenant).await?;
        Ok(quota)
    };
    known.make(asked, making).await.map(drop)
}

/// Updates the quotas of existing namespaces when their accounts change. A failed update is repeated with the user's
/// next job.
pub async fn follow_quotas(inner: Arc<Inner>) {
    if inner.settings.namespaces != Namespaces::PerUser {
        return;
    }
    let mut changes = inner.accounts.changes();
    let mut known = quotas(&inner);
    while changes.changed().await.is_ok() {
        let now = quotas(&inner);
        for (namespace, quota) in &now {
            if known.get(namespace).is_some_and(|before| before != quota) {
                follow(&inner, namespace, *quota).await;
            }
        }
        known = now;
    }
}

fn quotas(inner: &Inner) -> BTreeMap<String, Quota> {
    let pair = |account: Tenancy| (account.namespace, account.quota);
    inner.accounts.all().into_iter().map(pair).collect()
}

async fn follow(inner: &Inner, namespace: &str, quota: Quota) {
    let turn = Arc::clone(inner.tenants().entry(namespace.to_owned()).or_default());
    let mut known = turn.lock().await;
    let tenant = inner.tenant(namespace, &quota);
    match inner.cluster.follow_quota(&tenant).await {
        // The other fences are known to exist only if this server created them before.
        Ok(()) => known.value = known.value.map(|_| quota),
        Err(error) => tracing::warn!(namespace, %error, "a quota in the cluster could not be changed"),
    }
}

impl Inner {
    fn tenant(&self, namespace: &str, quota: &Quota) -> Tenant {
        tenancy::tenant(&self.settings, self.grant.as_ref(), namespace, quota)
    }
}
