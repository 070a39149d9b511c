//! Keeps users' namespaces in step with their accounts: each account has its own namespace with its current quota.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use paddlecloud_core::names::UserName;
use paddlecloud_core::scheduler::Quota;
use tokio::sync::watch;

use super::Inner;
use super::launch::NotCreated;
use crate::render::tenancy;
use crate::settings::Namespaces;

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
    let tenant = tenancy::tenant(&inner.settings, &name, &quota);
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
    let tenant = tenancy::tenant(&inner.settings, namespace, &quota);
    match inner.cluster.follow_quota(&tenant).await {
        // The other fences are known to exist only if this server created them before.
        Ok(()) => known.value = known.value.map(|_| quota),
        Err(error) => tracing::warn!(namespace, %error, "a quota in the cluster could not be changed"),
    }
}
