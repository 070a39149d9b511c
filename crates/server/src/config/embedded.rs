//! The embedded preset: one user, one machine, everything below one folder, one private socket.

use std::ffi::OsStr;
use std::path::Path;

use paddlecloud_accounts::auth::TokenLimits;
use paddlecloud_accounts::key_source::KeySource;
use paddlecloud_accounts::rates::RateLimits;
use paddlecloud_accounts::users::User;
use paddlecloud_core::names::UserName;
use paddlecloud_core::scheduler::Policy;
use paddlecloud_files::Backend;
use paddlecloud_store::{DatabaseUrl, Limits};

use super::{Config, EngineKind, Listen, LogConfig, TrustedProxies, machine};

/// The configuration of the server that `paddlectl` starts automatically.
pub fn embedded(data: &Path) -> Config {
    let user = own_name();
    Config {
        listen: vec![Listen::Unix(data.join("server.sock"))],
        tls: None,
        tls_names: Vec::new(),
        plain_http: false,
        trusted_proxies: TrustedProxies::default(),
        data: data.to_owned(),
        backend: Backend::Folder,
        storage: data.join("storage"),
        datacenter: "local".parse().expect("a plain word is a datacenter name"),
        database: DatabaseUrl::sqlite_file(&data.join("server.db")),
        users: vec![User {
            name: user.clone(),
            credential: None,
            admin: true,
            limits: Limits::default(),
            system_user: None,
        }],
        default_limits: Limits::default(),
        tokens: TokenLimits::default(),
        rates: RateLimits::NONE,
        oidc: None,
        secrets_key: KeySource::Own(data.join("secrets.key")),
        system_uids: None,
        socket_user: Some(user),
        inventory: machine::inventory(Path::new(machine::ROOT), None, &machine::GpuLabels::new()),
        policy: Policy {
            oversubscribe_alone: true,
            fair_share: false,
            reclaim: None,
            recovery: None,
        },
        default_image: None,
        allowed_images: None,
        metrics_login: false,
        python: None,
        logs: LogConfig {
            copy: !is_off(std::env::var_os(LOG_COPY).as_deref()),
            ..LogConfig::default()
        },
        engine: EngineKind::Local,
        embedded: true,
        program: None,
    }
}

/// Turns off the copy of logs in outputs, like `logs: {copy: false}` on a shared server.
const LOG_COPY: &str = "PADDLECLOUD_LOG_COPY";

fn is_off(value: Option<&OsStr>) -> bool {
    let value = value.and_then(OsStr::to_str).unwrap_or_default();
    ["0", "false", "no", "off"].contains(&value.to_ascii_lowercase().as_str())
}

/// The name of the system user that runs this process.
fn own_name() -> UserName {
    let uid = rustix::process::geteuid().as_raw();
    let passwd = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let candidates = [
        name_of(&passwd, uid),
        std::env::var("LOGNAME").ok(),
        std::env::var("USER").ok(),
        Some(format!("uid-{uid}")),
    ];
    let name = candidates
        .into_iter()
        .flatten()
        .find_map(|name| name.parse().ok());
    name.expect("`uid-<number>` is a user name")
}

fn name_of(passwd: &str, uid: u32) -> Option<String> {
    passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(uid)).then(|| name.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_0_off_and_false_turn_a_switch_off() {
        let off = |text: &str| is_off(Some(OsStr::new(text)));
        assert!(off("0") && off("Off") && off("false"));
        assert!(!off("") && !off("1") && !is_off(None));
    }

    #[test]
    fn the_systems_table_names_the_user() {
        let passwd = "root:x:0:0::/root:/bin/sh\nme:x:1000:1000::/home/me:/bin/sh\n";
        assert_eq!(name_of(passwd, 1000).as_deref(), Some("me"));
        assert_eq!(name_of(passwd, 7), None);
    }
}
