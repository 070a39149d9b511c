//! Migrates data of every earlier schema version to the current one.

use paddlecloud_core::names::UserName;
use sqlx::{AnyConnection, Connection as _};

use super::*;
use crate::schema::NEWEST;

/// The content of a database of each version, as the program of that version wrote it.
const VERSIONS: [&str; 6] = [
    include_str!("versions/1.sql"),
    include_str!("versions/2.sql"),
    include_str!("versions/3.sql"),
    include_str!("versions/4.sql"),
    include_str!("versions/5.sql"),
    include_str!("versions/6.sql"),
];

/// Creates a database of an old version.
pub async fn old_database(url: &DatabaseUrl, version: usize) {
    let place = crate::connect::DatabaseTarget::new(url).unwrap();
    let mut connection: AnyConnection = place.connect_to_read().await.unwrap();
    sqlx::raw_sql(VERSIONS[version - 1])
        .execute(&mut connection)
        .await
        .unwrap();
    connection.close().await.unwrap();
}

async fn upgrades(url: &DatabaseUrl, version: usize) {
    old_database(url, version).await;
    let store = Store::open(url).await.unwrap();
    let ann: UserName = "ann".parse().unwrap();
    let kept = store.latest(&ann, Some(&"kept".parse().unwrap())).await.unwrap();
    assert!(kept.unwrap().phase.is_final(), "version {version}");
    let waiting = store.load_active().await.unwrap();
    assert_eq!(waiting.len(), 1, "version {version}");
    assert_eq!(waiting[0].spec.name.as_str(), "waiting");
    let token = store.token_find("00ff").await.unwrap();
    assert_eq!(token.is_some(), version >= 2, "version {version}");
    if version >= 4 {
        let accounts = store.accounts_load().await.unwrap();
        assert_eq!(accounts.len(), 2);
        assert!(accounts[0].admin && accounts[1].deleted);
        assert_eq!(store.groups_load().await.unwrap()[0].limits.gpu, Some(2));
        assert_eq!(store.audit_list(None, 10).await.unwrap().len(), 1);
    }
    let used = store.used_before(Timestamp::UNIX_EPOCH).await.unwrap();
    assert_eq!(used.len(), usize::from(version >= 6), "version {version}");
    store.save(&[save(&job(9, "ann", "new"))]).await.unwrap();
    store.close().await;
}

#[tokio::test]
async fn data_of_every_version_is_upgraded_in_sqlite() {
    assert_eq!(
        VERSIONS.len(),
        NEWEST as usize,
        "a new version needs its data in `versions`"
    );
    for version in 1..=VERSIONS.len() {
        let folder = tempfile::tempdir().unwrap();
        let url = DatabaseUrl::sqlite_file(&folder.path().join("server.db"));
        upgrades(&url, version).await;
    }
}

#[tokio::test]
#[ignore = "needs PostgreSQL"]
async fn data_of_every_version_is_upgraded_in_postgres() {
    let server = postgres::Server::start();
    for version in 1..=VERSIONS.len() {
        upgrades(&server.database(&format!("version{version}")), version).await;
    }
}
