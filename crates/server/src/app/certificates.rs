//! User certificates, signed by the server's own authority. Each account lists its certificates; one that is not listed is
//! revoked.

use std::sync::Arc;

use jiff::Timestamp;
use paddlecloud_accounts::auth::{Caller, ClientCertificate};
use paddlecloud_api::admin::{CertificateIssued, CertificateRequest, CertificateView};
use paddlecloud_store::{Record, UserCertificate};

use super::accounts::{audit, user_name};
use super::{App, AppError, FieldRule, What};

/// Default lifetime of a certificate in seconds: one year.
const USUAL: i64 = 365 * 24 * 60 * 60;
/// Longest lifetime: ten years.
const MOST: i64 = 10 * USUAL;
/// How far the start of validity is backdated, because clocks differ.
const EARLIER: i64 = 60 * 60;
/// Limit on the certificates of one user.
const MOST_OF_ONE: usize = 100;

impl App {
    /// Signs a certificate for a user, who can log in with it until it expires or is revoked.
    pub async fn certificate_issue(
        self: &Arc<Self>,
        caller: &Caller,
        request: CertificateRequest,
    ) -> Result<CertificateIssued, AppError> {
        let Some(authority) = &self.authority else {
            return Err(AppError::NoTls);
        };
        let user = user_name(&request.user)?;
        let account = self.auth.users().enabled(&user);
        let account = account.ok_or(AppError::NoEnabledUser(user))?;
        if account.certificates.len() >= MOST_OF_ONE {
            return Err(AppError::TooManyCertificates { most: MOST_OF_ONE });
        }
        let user = account.name.clone();
        let lifetime = request.lifetime_seconds.unwrap_or(USUAL);
        if !(1..=MOST).contains(&lifetime) {
            return Err(AppError::BadField {
                field: "lifetime_seconds",
                rule: FieldRule::Between(1, MOST),
            });
        }
        let now = Timestamp::now().as_second();
        let expires = now + lifetime;
        let signed = authority.sign(&request.request, user.as_str(), (now - EARLIER, expires));
        let signed = signed?;
        let own = UserCertificate {
            id: signed.serial,
            digest: ClientCertificate::digest_of(&signed.der),
            created: now,
            expires,
        };
        let shown = view(user.as_str(), &own);
        let entry = audit(
            caller,
            "cert.issue",
            user.as_str(),
            &format!("certificate {}", own.id),
        );
        let add = |record: &mut Record| {
            record.certificates.retain(|other| other.expires > now);
            record.certificates.push(own);
            Ok(())
        };
        self.accounts.change(&user, add, entry).await?;
        Ok(CertificateIssued {
            certificate: signed.pem,
            view: shown,
        })
    }

    /// The valid certificates of all users.
    pub async fn certificate_list(&self) -> Vec<CertificateView> {
        let now = Timestamp::now().as_second();
        let (records, _) = self.accounts.list().await;
        let views = records.iter().flat_map(|record| {
            let valid = record.certificates.iter().filter(|own| own.expires > now);
            valid.map(|own| view(record.name.as_str(), own))
        });
        views.collect()
    }

    /// Revokes a certificate. Requests and streams that use it end.
    pub async fn certificate_revoke(self: &Arc<Self>, caller: &Caller, id: &str) -> Result<(), AppError> {
        let (records, _) = self.accounts.list().await;
        let has_certificate = |record: &&Record| record.certificates.iter().any(|own| own.id == id);
        let Some(record) = records.iter().find(has_certificate) else {
            return Err(AppError::NoSuch {
                what: What::Certificate,
                name: id.to_owned(),
            });
        };
        let entry = audit(
            caller,
            "cert.revoke",
            record.name.as_str(),
            &format!("certificate {id}"),
        );
        let remove = |record: &mut Record| {
            record.certificates.retain(|own| own.id != id);
            Ok(())
        };
        self.accounts.change(&record.name, remove, entry).await?;
        Ok(())
    }
}

fn view(user: &str, own: &UserCertificate) -> CertificateView {
    let time = |seconds| Timestamp::from_second(seconds).unwrap_or_default().to_string();
    CertificateView {
        id: own.id.clone(),
        user: user.to_owned(),
        created: time(own.created),
        expires: time(own.expires),
    }
}
