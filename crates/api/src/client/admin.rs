//! Routes about accounts, tokens and the audit log.

use hyper::Method;

use super::call::Call;
use super::query::Target;
use super::{Client, ClientError};
use crate::admin::{
    AuditCheck, AuditView, CertificateIssued, CertificateRequest, CertificateView, Dispose, GroupRequest,
    GroupView, NewTokenReply, NewTokenRequest, PasswordRequest, RegistryRequest, RegistryView, SecretRequest,
    SecretView, TokenView, UsageView, UserDeleted, UserRequest, UserView,
};

fn users() -> Target {
    Target::new("/admin").word("users")
}

fn certificates() -> Target {
    Target::new("/admin").word("certificates")
}

fn with_body(method: Method, target: Target, body: &impl serde::Serialize) -> Call {
    let mut call = Call::post(target, body);
    call.method = method;
    call
}

impl Client {
    pub async fn user_list(&self) -> Result<Vec<UserView>, ClientError> {
        self.message(&Call::get(users())).await
    }

    pub async fn user_get(&self, name: &str) -> Result<UserView, ClientError> {
        self.message(&Call::get(users().word(name))).await
    }

    pub async fn user_add(&self, request: &UserRequest) -> Result<UserView, ClientError> {
        self.message(&Call::post(users(), request)).await
    }

    pub async fn user_set(&self, name: &str, request: &UserRequest) -> Result<UserView, ClientError> {
        let call = with_body(Method::PATCH, users().word(name), request);
        self.message(&call).await
    }

    pub async fn user_delete(
        &self,
        name: &str,
        dispose: Dispose,
        to: Option<&str>,
    ) -> Result<UserDeleted, ClientError> {
        let word = match dispose {
            Dispose::Keep => "keep",
            Dispose::GiveTo => "give-to",
            Dispose::Purge => "purge",
        };
        let target = users().word(name).pair("dispose", word).maybe("to", to);
        let call = Call::new(Method::DELETE, target.into_string());
        // Jobs are stopped and whole homes are moved first.
        self.message(&call.lasting(super::routes::TREES)).await
    }

    pub async fn group_list(&self) -> Result<Vec<GroupView>, ClientError> {
        self.message(&Call::get(Target::new("/admin").word("groups")))
            .await
    }

    pub async fn group_set(&self, name: &str, request: &GroupRequest) -> Result<GroupView, ClientError> {
        let target = Target::new("/admin").word("groups").word(name);
        self.message(&with_body(Method::PUT, target, request)).await
    }

    pub async fn group_delete(&self, name: &str) -> Result<(), ClientError> {
        let target = Target::new("/admin").word("groups").word(name);
        let call = Call::new(Method::DELETE, target.into_string());
        self.bytes(&call).await.map(drop)
    }

    pub async fn certificate_list(&self) -> Result<Vec<CertificateView>, ClientError> {
        self.message(&Call::get(certificates())).await
    }

    pub async fn certificate_issue(
        &self,
        request: &CertificateRequest,
    ) -> Result<CertificateIssued, ClientError> {
        self.message(&Call::post(certificates(), request)).await
    }

    pub async fn certificate_revoke(&self, id: &str) -> Result<(), ClientError> {
        let call = Call::new(Method::DELETE, certificates().word(id).into_string());
        self.bytes(&call).await.map(drop)
    }

    pub async fn audit_list(
        &self,
        before: Option<i64>,
        limit: Option<u32>,
    ) -> Result<Vec<AuditView>, ClientError> {
        let target = Target::new("/admin").word("audit");
        let target = target.maybe("before", before).maybe("limit", limit);
        self.message(&Call::get(target)).await
    }

    pub async fn audit_verify(&self) -> Result<AuditCheck, ClientError> {
        let target = Target::new("/admin").word("audit").word("verify");
        self.message(&Call::get(target)).await
    }

    pub async fn usage_list(&self, since: Option<&str>) -> Result<Vec<UsageView>, ClientError> {
        let target = Target::new("/admin").word("usage").maybe("since", since);
        self.message(&Call::get(target)).await
    }

    pub async fn token_list(&self, user: Option<&str>) -> Result<Vec<TokenView>, ClientError> {
        self.message(&Call::get(Target::new("/tokens").maybe("user", user)))
            .await
    }

    pub async fn token_create(&self, request: &NewTokenRequest) -> Result<NewTokenReply, ClientError> {
        self.message(&Call::post(Target::new("/tokens"), request)).await
    }

    pub async fn token_revoke(&self, id: &str, user: Option<&str>) -> Result<(), ClientError> {
        let target = Target::new("/tokens").word(id).maybe("user", user);
        let call = Call::new(Method::DELETE, target.into_string());
        self.bytes(&call).await.map(drop)
    }

    /// Exchanges the current token for a new one and passes it to the sink.
    pub async fn token_renew(&self) -> Result<NewTokenReply, ClientError> {
        let call = Call::post(Target::new("/tokens").word("renew"), &serde_json::json!({}));
        let reply: NewTokenReply = self.message(&call).await?;
        self.take_token(&reply.token);
        Ok(reply)
    }

    /// Revokes the current token.
    pub async fn logout(&self) -> Result<(), ClientError> {
        let call = Call::post(Target::new("/logout"), &serde_json::json!({}));
        self.bytes(&call).await.map(drop)
    }

    pub async fn secret_list(&self) -> Result<Vec<SecretView>, ClientError> {
        self.message(&Call::get(Target::new("/secrets"))).await
    }

    pub async fn secret_set(&self, name: &str, request: &SecretRequest) -> Result<(), ClientError> {
        let call = with_body(Method::PUT, Target::new("/secrets").word(name), request);
        self.bytes(&call).await.map(drop)
    }

    pub async fn secret_delete(&self, name: &str) -> Result<(), ClientError> {
        let target = Target::new("/secrets").word(name).into_string();
        self.bytes(&Call::new(Method::DELETE, target)).await.map(drop)
    }

    /// Reloads the key and reseals all secrets with it; returns their number.
    pub async fn secrets_rotate(&self) -> Result<usize, ClientError> {
        let target = Target::new("/admin").word("secrets").word("rotate");
        self.message(&Call::post(target, &serde_json::json!({}))).await
    }

    pub async fn registry_list(&self) -> Result<Vec<RegistryView>, ClientError> {
        self.message(&Call::get(Target::new("/registry"))).await
    }

    pub async fn registry_create(&self, request: &RegistryRequest) -> Result<(), ClientError> {
        let call = Call::post(Target::new("/registry"), request);
        self.bytes(&call).await.map(drop)
    }

    /// Without a name, the only one; returns its name.
    pub async fn registry_delete(&self, name: Option<&str>) -> Result<String, ClientError> {
        let target = Target::new("/registry").maybe("name", name).into_string();
        self.message(&Call::new(Method::DELETE, target)).await
    }

    pub async fn password_set(&self, request: &PasswordRequest) -> Result<(), ClientError> {
        self.bytes(&Call::post(Target::new("/password"), request))
            .await
            .map(drop)
    }
}
