//! The caller's secrets and registries.

use paddlecloud_api::admin::{RegistryRequest, RegistryView, SecretRequest, SecretView};
use paddlecloud_api::error::{ErrorBody, ErrorName};
use paddlecloud_core::names::UserName;
use paddlecloud_core::ports::RegistryLogin;
use paddlecloud_core::spec::{JobSpec, is_secret_name};

use super::accounts::audit;
use super::{App, store_failed};
use crate::auth::Caller;
use crate::config::EngineKind;
use crate::secrets::{Kind, SecretsError};

/// Size limit of one secret: all of them are passed in a worker's environment.
const MOST_BYTES: usize = 64 << 10;
/// Limit on the secrets and registries of one user.
const MOST: usize = 200;

impl App {
    pub async fn secret_list(&self, caller: &Caller) -> Result<Vec<SecretView>, ErrorBody> {
        let rows = self
            .secrets
            .list(&caller.user, Kind::Secret)
            .await
            .map_err(refused)?;
        let view = |row: crate::store::SecretRow| SecretView {
            name: row.name,
            created: jiff::Timestamp::from_second(row.created)
                .unwrap_or_default()
                .to_string(),
        };
        Ok(rows.into_iter().map(view).collect())
    }

    pub async fn secret_set(
        &self,
        caller: &Caller,
        name: &str,
        request: SecretRequest,
    ) -> Result<(), ErrorBody> {
        check_name(name)?;
        if request.value.is_empty() || request.value.len() > MOST_BYTES || request.value.contains('\0') {
            let problem = format!("`value` must have 1 to {MOST_BYTES} bytes, none of them 0");
            return Err(ErrorBody::new(ErrorName::BadRequest, problem));
        }
        self.check_count(&caller.user, Kind::Secret, name).await?;
        let entry = audit(caller, "secret.set", name, "");
        let set = self
            .secrets
            .set(&caller.user, Kind::Secret, name, &request.value, entry);
        set.await.map_err(refused)
    }

    pub async fn secret_delete(&self, caller: &Caller, name: &str) -> Result<(), ErrorBody> {
        let entry = audit(caller, "secret.delete", name, "");
        let removed = self.secrets.remove(&caller.user, Kind::Secret, name, entry).await;
        match removed.map_err(refused)? {
            true => Ok(()),
            false => Err(no_secret(name)),
        }
    }

    /// Reads the keys again and reseals all secrets with the first one.
    pub async fn secrets_rotate(&self, caller: &Caller) -> Result<usize, ErrorBody> {
        let entry = audit(caller, "secret.rotate", "", "");
        self.secrets.rotate(entry).await.map_err(refused)
    }

    /// Checks that every secret a job names exists, and its registry if the engine pulls images.
    pub(super) async fn secrets_check(&self, user: &UserName, spec: &JobSpec) -> Result<(), ErrorBody> {
        if let (EngineKind::Kubernetes(_), Some(name)) = (&self.config.engine, &spec.registry) {
            let there = self.secrets.has(user, Kind::Registry, name).await;
            if !there.map_err(refused)? {
                return Err(no_registry(name));
            }
        }
        for wanted in &spec.secrets {
            let there = self.secrets.has(user, Kind::Secret, &wanted.name).await;
            if !there.map_err(refused)? {
                return Err(no_secret(&wanted.name));
            }
        }
        Ok(())
    }

    pub async fn registry_list(&self, caller: &Caller) -> Result<Vec<RegistryView>, ErrorBody> {
        let rows = self
            .secrets
            .list(&caller.user, Kind::Registry)
            .await
            .map_err(refused)?;
        let mut views = Vec::new();
        for row in rows {
            let login = self.secrets.open_login(&row).map_err(refused)?;
            views.push(RegistryView {
                name: row.name,
                server: login.server,
                username: login.username,
            });
        }
        Ok(views)
    }

    pub async fn registry_create(&self, caller: &Caller, request: RegistryRequest) -> Result<(), ErrorBody> {
        check_name(&request.name)?;
        for (field, value) in [
            ("server", &request.server),
            ("username", &request.username),
            ("password", &request.password),
        ] {
            if value.is_empty() || value.len() > MOST_BYTES || value.chars().any(char::is_control) {
                let problem = format!("`{field}` must not be empty or have control characters");
                return Err(ErrorBody::new(ErrorName::BadRequest, problem));
            }
        }
        self.check_count(&caller.user, Kind::Registry, &request.name)
            .await?;
        let entry = audit(caller, "registry.set", &request.name, &request.server);
        let login = RegistryLogin {
            server: request.server,
            username: request.username,
            password: request.password,
        };
        let set = self.secrets.set_login(&caller.user, &request.name, &login, entry);
        set.await.map_err(refused)
    }

    /// Deletes a registry; without a name, the only one. Returns its name.
    pub async fn registry_delete(&self, caller: &Caller, name: Option<&str>) -> Result<String, ErrorBody> {
        let name = match name.filter(|name| !name.is_empty()) {
            Some(name) => name.to_owned(),
            None => self.only_registry(caller).await?,
        };
        let entry = audit(caller, "registry.delete", &name, "");
        let removed = self
            .secrets
            .remove(&caller.user, Kind::Registry, &name, entry)
            .await;
        match removed.map_err(refused)? {
            true => Ok(name),
            false => Err(no_registry(&name)),
        }
    }

    async fn only_registry(&self, caller: &Caller) -> Result<String, ErrorBody> {
        let mut rows = self
            .secrets
            .list(&caller.user, Kind::Registry)
            .await
            .map_err(refused)?;
        match rows.len() {
            1 => Ok(rows.remove(0).name),
            0 => Err(ErrorBody::new(ErrorName::NotFound, "there is no registry")
                .with_hint("`paddlectl registry` stores one")),
            count => Err(ErrorBody::new(
                ErrorName::BadRequest,
                format!("there are {count} registries: name one"),
            )
            .with_hint("`paddlectl get registry` lists all of them")),
        }
    }

    async fn check_count(&self, user: &UserName, kind: Kind, name: &str) -> Result<(), ErrorBody> {
        let rows = self.secrets.list(user, kind).await.map_err(refused)?;
        match rows.len() < MOST || rows.iter().any(|row| row.name == name) {
            true => Ok(()),
            false => Err(ErrorBody::new(
                ErrorName::QuotaExceeded,
                format!("a user has at most {MOST} secrets and {MOST} registries"),
            )),
        }
    }
}

fn check_name(name: &str) -> Result<(), ErrorBody> {
    match is_secret_name(name) {
        true => Ok(()),
        false => Err(ErrorBody::new(
            ErrorName::BadRequest,
            format!(
                "`{}` is not a name: use letters, digits, `-`, `_` and `.`, at most 63",
                name.escape_default()
            ),
        )),
    }
}

fn no_registry(name: &str) -> ErrorBody {
    let problem = format!("there is no registry `{}`", name.escape_default());
    ErrorBody::new(ErrorName::NotFound, problem).with_hint("`paddlectl get registry` lists all of them")
}

fn no_secret(name: &str) -> ErrorBody {
    let problem = format!("there is no secret `{}`", name.escape_default());
    ErrorBody::new(ErrorName::NotFound, problem).with_hint(format!(
        "`paddlectl secret set {}` stores one",
        name.escape_default()
    ))
}

pub(super) fn refused(error: SecretsError) -> ErrorBody {
    match error {
        SecretsError::Store(error) => store_failed(error),
        other => {
            tracing::error!(error = %other, "secrets cannot be used");
            ErrorBody::new(ErrorName::Unavailable, other.to_string())
                .with_hint("an administrator checks `secrets` in the server's configuration")
        }
    }
}
