//! The caller's secrets and registries.

use paddlecloud_accounts::auth::Caller;
use paddlecloud_accounts::secrets::SecretKind;
use paddlecloud_api::admin::{RegistryRequest, RegistryView, SecretRequest, SecretView};
use paddlecloud_core::names::UserName;
use paddlecloud_core::ports::RegistryLogin;
use paddlecloud_core::spec::{JobSpec, is_secret_name};

use super::accounts::audit;
use super::{App, AppError, FieldRule, What};

/// Size limit of one secret: all of them are passed in a worker's environment.
const MOST_BYTES: usize = 64 << 10;
/// Limit on the secrets and registries of one user.
const MOST: usize = 200;

impl App {
    pub async fn secret_list(&self, caller: &Caller) -> Result<Vec<SecretView>, AppError> {
        let rows = self.secrets.list(&caller.user, SecretKind::Secret).await?;
        let view = |row: paddlecloud_store::SecretRow| SecretView {
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
    ) -> Result<(), AppError> {
        check_name(name)?;
        if request.value.is_empty() || request.value.len() > MOST_BYTES || request.value.contains('\0') {
            return Err(AppError::BadField {
                field: "value",
                rule: FieldRule::Bytes(MOST_BYTES),
            });
        }
        self.check_count(&caller.user, SecretKind::Secret, name).await?;
        let entry = audit(caller, "secret.set", name, "");
        let set = self
            .secrets
            .set(&caller.user, SecretKind::Secret, name, &request.value, entry);
        Ok(set.await?)
    }

    pub async fn secret_delete(&self, caller: &Caller, name: &str) -> Result<(), AppError> {
        let entry = audit(caller, "secret.delete", name, "");
        let removed = self
            .secrets
            .remove(&caller.user, SecretKind::Secret, name, entry)
            .await;
        match removed? {
            true => Ok(()),
            false => Err(no_secret(name)),
        }
    }

    /// Reads the keys again and reseals all secrets with the first one.
    pub async fn secrets_rotate(&self, caller: &Caller) -> Result<usize, AppError> {
        let entry = audit(caller, "secret.rotate", "", "");
        Ok(self.secrets.rotate(entry).await?)
    }

    /// Checks that every secret a job names exists, and its registry, also where the engine pulls no images.
    pub(super) async fn secrets_check(&self, user: &UserName, spec: &JobSpec) -> Result<(), AppError> {
        if let Some(name) = &spec.registry {
            let there = self.secrets.has(user, SecretKind::Registry, name).await;
            if !there? {
                return Err(no_registry(name));
            }
        }
        for requested in &spec.secrets {
            let there = self.secrets.has(user, SecretKind::Secret, &requested.name).await;
            if !there? {
                return Err(no_secret(&requested.name));
            }
        }
        Ok(())
    }

    pub async fn registry_list(&self, caller: &Caller) -> Result<Vec<RegistryView>, AppError> {
        let rows = self.secrets.list(&caller.user, SecretKind::Registry).await?;
        let mut views = Vec::new();
        for row in rows {
            let login = self.secrets.open_login(&row)?;
            views.push(RegistryView {
                name: row.name,
                server: login.server,
                username: login.username,
            });
        }
        Ok(views)
    }

    pub async fn registry_create(&self, caller: &Caller, request: RegistryRequest) -> Result<(), AppError> {
        check_name(&request.name)?;
        for (field, value) in [
            ("server", &request.server),
            ("username", &request.username),
            ("password", &request.password),
        ] {
            if value.is_empty() || value.len() > MOST_BYTES || value.chars().any(char::is_control) {
                let rule = FieldRule::PlainText;
                return Err(AppError::BadField { field, rule });
            }
        }
        self.check_count(&caller.user, SecretKind::Registry, &request.name)
            .await?;
        let entry = audit(caller, "registry.set", &request.name, &request.server);
        let login = RegistryLogin {
            server: request.server,
            username: request.username,
            password: request.password,
        };
        let set = self.secrets.set_login(&caller.user, &request.name, &login, entry);
        Ok(set.await?)
    }

    /// Deletes a registry; without a name, the only one. Returns its name.
    pub async fn registry_delete(&self, caller: &Caller, name: Option<&str>) -> Result<String, AppError> {
        let name = match name.filter(|name| !name.is_empty()) {
            Some(name) => name.to_owned(),
            None => self.only_registry(caller).await?,
        };
        let entry = audit(caller, "registry.delete", &name, "");
        let removed = self
            .secrets
            .remove(&caller.user, SecretKind::Registry, &name, entry)
            .await;
        match removed? {
            true => Ok(name),
            false => Err(no_registry(&name)),
        }
    }

    async fn only_registry(&self, caller: &Caller) -> Result<String, AppError> {
        let mut rows = self.secrets.list(&caller.user, SecretKind::Registry).await?;
        match rows.len() {
            1 => Ok(rows.remove(0).name),
            0 => Err(AppError::NoRegistry),
            count => Err(AppError::ManyRegistries(count)),
        }
    }

    async fn check_count(&self, user: &UserName, kind: SecretKind, name: &str) -> Result<(), AppError> {
        let rows = self.secrets.list(user, kind).await?;
        match rows.len() < MOST || rows.iter().any(|row| row.name == name) {
            true => Ok(()),
            false => Err(AppError::TooManySecrets { most: MOST }),
        }
    }
}

fn check_name(name: &str) -> Result<(), AppError> {
    match is_secret_name(name) {
        true => Ok(()),
        false => Err(AppError::BadName(name.to_owned())),
    }
}

fn no_registry(name: &str) -> AppError {
    AppError::NoSuch {
        what: What::Registry,
        name: name.to_owned(),
    }
}

fn no_secret(name: &str) -> AppError {
    AppError::NoSuch {
        what: What::Secret,
        name: name.to_owned(),
    }
}
