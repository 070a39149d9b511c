//! Keeps users' namespaces in step with their accounts: each account has its own namespace with its current quota, in
//! which this server has its rights.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use kube::api::PostParams;
use kube::{Api, Client};

use paddlecloud_core::names::UserName;
use paddlecloud_core::scheduler::Quota;
use tokio::sync::watch;

use super::cluster::{CallError, Cluster, Whose};
use super::launch::NotCreated;
use super::made::Turn;
use super::{Inner, StartError, watching};
use crate::names;
use crate::render::tenancy::{self, Grant, Tenant};
use crate::settings::{Namespaces, Settings};

/// What an account means for the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tenancy {
    /// Unique on this server: no other account has or ever had it.
    pub namespace: String,
    /// The user's current quota.
    pub quota: Quota,
}

/// The namespaces of accounts whose usual name another PaddleCloud server has in this cluster. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct NamespaceNames(Arc<Mutex<HashMap<String, String>>>);

impl NamespaceNames {
    /// The name of the namespace that an account calls `usual`. Until the account's first job only the cluster knows it.
    pub fn of(&self, usual: String) -> String {
        let names = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        names.get(&usual).cloned().unwrap_or(usual)
    }

    fn set(&self, usual: &str, name: &str) {
        let mut names = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match usual == name {
            true => drop(names.remove(usual)),
            false => drop(names.insert(usual.to_owned(), name.to_owned())),
        }
    }
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

/// Recognizes the namespaces that running jobs already have beside those of other servers.
pub fn recognize_names(inner: &Inner) {
    let recorded: BTreeSet<String> = {
        let table = inner.table();
        table
            .iter()
            .map(|(_, entry)| entry.pod.namespace.clone())
            .collect()
    };
    for account in inner.accounts.all() {
        let beside = names::namespace_beside(&account.namespace, &inner.settings.server);
        if recorded.contains(&beside) {
            inner.names.set(&account.namespace, &beside);
        }
    }
}

/// The namespace of a user's jobs: the usual one, unless another PaddleCloud server has it. The cluster is asked once per
/// server run.
pub async fn find(inner: &Inner, user: &UserName) -> Result<String, NotCreated> {
    if inner.settings.namespaces != Namespaces::PerUser {
        return Ok(inner.namespace_of(user));
    }
    let usual = inner.accounts.tenancy(user).namespace;
    let asked = Instant::now();
    let turn = inner.name_turn(&usual);
    let mut known = turn.lock().await;
    if let Some(found) = &known.value {
        return Ok(found.name.clone());
    }
    let choosing = choose(&inner.cluster, &inner.settings.server, &usual);
    let found = known.make(asked, choosing).await?;
    inner.names.set(&usual, &found.name);
    Ok(found.name)
}

/// The namespace of a user's jobs, as the cluster described it when it was asked.
#[derive(Debug, Clone)]
pub struct Found {
    name: String,
    whose: Whose,
}

/// Once a server has a namespace beside that of another one, it keeps it, even if the usual name becomes free.
async fn choose(cluster: &Cluster, server: &str, usual: &str) -> Result<Found, NotCreated> {
    let beside = names::namespace_beside(usual, server);
    let whose = cluster.whose(usual, server).await?;
    let takes_beside = match whose {
        Whose::Ours | Whose::Unknown => false,
        Whose::OtherServers => true,
        Whose::Nobodys => cluster.whose(&beside, server).await? == Whose::Ours,
    };
    Ok(match takes_beside {
        true => Found {
            name: beside,
            whose: Whose::Unknown,
        },
        false => Found {
            name: usual.to_owned(),
            whose,
        },
    })
}

/// Prepares the user's namespace, once per server run and again when the user's quota has changed.
pub async fn ensure(inner: &Inner, user: &UserName) -> Result<(), NotCreated> {
    if inner.settings.namespaces != Namespaces::PerUser {
        return Ok(());
    }
    let usual = inner.accounts.tenancy(user).namespace;
    let name = inner.names.of(usual.clone());
    let asked = Instant::now();
    let turn = Arc::clone(inner.tenants().entry(name.clone()).or_default());
    let mut known = turn.lock().await;
    let quota = inner.accounts.tenancy(user).quota;
    if known.value == Some(quota) {
        return Ok(());
    }
    let tenant = inner.tenant(&name, &quota);
    let found = inner.name_turn(&usual).lock().await.value.clone();
    let making = async {
        let whose = found.map_or(Whose::Unknown, |found| found.whose);
        let made = inner.cluster.ensure_tenant(&tenant, whose).await;
        if let Err(CallError::OtherServers(_)) = &made {
            // It was free when the cluster was asked. The next try asks again.
            inner.name_turn(&usual).lock().await.value = None;
        }
        made?;
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
    let pair = |account: Tenancy| (inner.names.of(account.namespace), account.quota);
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
    /// Lock for finding the namespace that an account calls by this name.
    fn name_turn(&self, usual: &str) -> Turn<Found> {
        let mut turns = self.name_turns.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(turns.entry(usual.to_owned()).or_default())
    }

    fn tenant(&self, namespace: &str, quota: &Quota) -> Tenant {
        tenancy::tenant(&self.settings, self.grant.as_ref(), namespace, quota)
    }
}

#[cfg(test)]
mod tests;
