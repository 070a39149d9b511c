//! Links with which anyone can read a file.

use std::time::Duration;

use paddlecloud_api::error::ErrorName;
use paddlecloud_transfer::FileService;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::stage::{Stage, mine};

async fn get(address: &str, path: &str) -> String {
    let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let head = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).await.unwrap();
    reply
}

#[tokio::test]
async fn a_link_works_without_a_login_until_revoked() {
    let stage = Stage::new().await;
    std::fs::create_dir_all(stage.home("me")).unwrap();
    std::fs::write(stage.home("me").join("model.bin"), "weights").unwrap();
    let files = stage.me.files();
    let share = files
        .publish(&mine("model.bin"), Duration::from_secs(600))
        .await
        .unwrap();
    let link = share.link.unwrap();
    let path = link
        .strip_prefix(&format!("http://{}", stage.address))
        .unwrap()
        .to_owned();
    let reply = get(&stage.address, &path).await;
    assert!(
        reply.starts_with("HTTP/1.1 200") && reply.ends_with("weights"),
        "{reply}"
    );
    assert!(reply.contains("filename=\"model.bin\""), "{reply}");
    let mut forged = path.clone().into_bytes();
    let last = forged.last_mut().unwrap();
    *last = if *last == b'0' { b'1' } else { b'0' };
    let forged = get(&stage.address, std::str::from_utf8(&forged).unwrap()).await;
    assert!(forged.starts_with("HTTP/1.1 404"), "{forged}");

    let listed = files.published().await.unwrap();
    assert_eq!((listed.len(), listed[0].link.as_deref()), (1, None));
    let theirs = stage.you.files();
    assert!(theirs.published().await.unwrap().is_empty());
    assert_eq!(
        theirs.unpublish(&share.id).await.unwrap_err().refusal(),
        Some(ErrorName::NotFound)
    );
    files.unpublish(&share.id).await.unwrap();
    let gone = get(&stage.address, &path).await;
    assert!(
        gone.starts_with("HTTP/1.1 404") && gone.contains("has been revoked"),
        "{gone}"
    );
    stage.finish().await;
}

#[tokio::test]
async fn only_own_files_can_be_published_and_links_survive_a_restart() {
    let stage = Stage::new().await;
    std::fs::write(stage.public().join("set"), "data").unwrap();
    std::fs::create_dir_all(stage.home("me").join("d")).unwrap();
    std::fs::write(stage.home("me").join("a"), "a").unwrap();
    let files = stage.me.files();
    let hour = Duration::from_secs(3600);
    let public = files
        .publish(&"/pfs/public/set".parse().unwrap(), hour)
        .await
        .unwrap_err();
    assert_eq!(public.refusal(), Some(ErrorName::Forbidden));
    assert_eq!(
        files.publish(&mine("d"), hour).await.unwrap_err().refusal(),
        Some(ErrorName::BadRequest)
    );
    let endless = files
        .publish(&mine("a"), Duration::from_secs(1 << 40))
        .await
        .unwrap_err();
    assert_eq!(endless.refusal(), Some(ErrorName::BadRequest));
    let link = files.publish(&mine("a"), hour).await.unwrap().link.unwrap();
    let path = link
        .strip_prefix(&format!("http://{}", stage.address))
        .unwrap()
        .to_owned();
    let folder = stage.finish().await;
    let stage = Stage::on(
        folder,
        "users:\n- {name: me, password_file: word, system_user: a}\n",
    )
    .await;
    let reply = get(&stage.address, &path).await;
    assert!(reply.starts_with("HTTP/1.1 200"), "{reply}");
    stage.finish().await;
}
