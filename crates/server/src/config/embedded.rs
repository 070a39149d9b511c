//! The embedded preset: one user, one machine, everything below one folder, one private socket.

use std::path::Path;

use paddlecloud_core::names::UserName;
use paddlecloud_core::scheduler::{Policy, Quota};

use super::{Backend, Config, DatabaseUrl, EngineKind, Listen, LogLimits, User, machine};

/// The configuration of the server that `paddlectl` starts by itself.
pub fn embedded(data: &Path) -> Config {
    let user = own_name();
    Config {
        listen: vec![Listen::Unix(data.join("server.sock"))],
        tls: None,
        data: data.to_owned(),
        backend: Backend::Folder,
        storage: data.join("storage"),
        datacenter: "local".parse().expect("a plain word is a datacenter name"),
        database: DatabaseUrl::sqlite_file(&data.join("server.db")),
        users: vec![User {
            name: user.clone(),
            credential: None,
            admin: true,
            quota: Quota::default(),
            storage: None,
            files: None,
            system_user: None,
        }],
        socket_user: Some(user),
        inventory: machine::inventory(),
        policy: Policy {
            oversubscribe_alone: true,
        },
        default_image: None,
        logs: LogLimits::default(),
        engine: EngineKind::Local,
        embedded: true,
        program: None,
    }
}

/// The system's name for the user this process runs as.
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
    fn the_systems_table_names_the_user() {
        let passwd = "root:x:0:0::/root:/bin/sh\nme:x:1000:1000::/home/me:/bin/sh\n";
        assert_eq!(name_of(passwd, 1000).as_deref(), Some("me"));
        assert_eq!(name_of(passwd, 7), None);
    }
}
