//! HTTP range requests, with which browsers resume downloads of published links.

use std::time::Duration;

use paddlecloud_transfer::FileService;

use crate::stage::{Stage, mine, raw_with};

/// A reply's head, in small letters, and its body.
fn parts(reply: &str) -> (String, &str) {
    let (head, body) = reply.split_once("\r\n\r\n").unwrap();
    (head.to_lowercase(), body)
}

fn etag(head: &str) -> String {
    let line = head.lines().find(|line| line.starts_with("etag: ")).unwrap();
    line["etag: ".len()..].to_owned()
}

/// Both ways to a file's bytes: its path and a link.
async fn ways(stage: &Stage) -> [String; 2] {
    let (files, hour) = (stage.me.files(), Duration::from_secs(3600));
    let share = files.publish(&mine("f"), hour).await.unwrap();
    let link = share.link.unwrap();
    let link = link.strip_prefix(&format!("http://{}", stage.address)).unwrap();
    [
        "/api/v1/pfs/content?path=/pfs/dc/home/me/f".to_owned(),
        link.to_owned(),
    ]
}

#[tokio::test]
async fn a_download_that_resumes_with_another_version_restarts() {
    let stage = Stage::new().await;
    let file = stage.home("me").join("f");
    std::fs::create_dir_all(stage.home("me")).unwrap();
    std::fs::write(&file, "first version").unwrap();
    for target in ways(&stage).await {
        std::fs::write(&file, "first version").unwrap();
        let get = async |headers: String| raw_with(&stage, "me", "GET", &target, &headers, b"").await;
        let (status, reply) = get(String::new()).await;
        assert_eq!(status, 200, "{reply}");
        let version = etag(&parts(&reply).0);

        let resume = |tag: &str| format!("range: bytes=6-\r\nif-range: {tag}\r\n");
        let (status, reply) = get(resume(&version)).await;
        assert_eq!((status, parts(&reply).1), (206, "version"), "{reply}");

        std::fs::write(&file, "the other version").unwrap();
        let weak = format!("W/{version}");
        for old in [&version, &weak, "Sat, 14 Nov 2026 10:00:00 GMT", "\"\""] {
            let (status, reply) = get(resume(old)).await;
            assert_eq!((status, parts(&reply).1), (200, "the other version"), "{reply}");
            assert!(!parts(&reply).0.contains("content-range"), "{reply}");
        }
        let (status, reply) = get("range: bytes=4-8\r\n".to_owned()).await;
        assert_eq!((status, parts(&reply).1), (206, "other"), "{reply}");
    }
    stage.finish().await;
}

#[tokio::test]
async fn a_range_behind_the_end_is_refused_with_the_size() {
    let stage = Stage::new().await;
    std::fs::create_dir_all(stage.home("me")).unwrap();
    std::fs::write(stage.home("me").join("f"), "12345").unwrap();
    for target in ways(&stage).await {
        for range in ["bytes=5-", "bytes=7-9", "bytes=99999999999999999999-"] {
            let headers = format!("range: {range}\r\n");
            let (status, reply) = raw_with(&stage, "me", "GET", &target, &headers, b"").await;
            let (head, body) = parts(&reply);
            assert_eq!(status, 416, "{range}: {reply}");
            assert!(head.contains("content-range: bytes */5"), "{range}: {head}");
            let body: serde_json::Value = serde_json::from_str(body).unwrap();
            assert_eq!(
                (&body["code"], &body["error"]),
                (&416.into(), &"bad-request".into())
            );
            assert!(!reply.contains("/pfs/"), "a link tells no path: {reply}");
        }
        // What is no range is none, as HTTP has it.
        for range in ["bytes=4-2", "bytes=x-", "bytes=-2", "pages=1-2"] {
            let headers = format!("range: {range}\r\n");
            let (status, reply) = raw_with(&stage, "me", "GET", &target, &headers, b"").await;
            assert_eq!((status, parts(&reply).1), (200, "12345"), "{range}: {reply}");
        }
    }
    // Our own client reads nothing there.
    let mut stretch = stage.me.files().read_range(&mine("f"), 7..9).await.unwrap();
    assert!(stretch.next().await.unwrap().is_none());
    stage.finish().await;
}
