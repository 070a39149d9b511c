//! Connections that break, servers that stop, disks that fill up: in the end a file is complete or does not exist.

use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use paddlecloud_api::client::{Client, ClientError, Limits};
use paddlecloud_api::error::{ErrorBody, ErrorName};
use paddlecloud_files::queue::Class;
use paddlecloud_transfer::{
    Download, FileService, ListOptions, Summary, TransferError, TransferOptions, Upload,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

use crate::stage::{Stage, assert_same, assert_tidy, begin, client, entries, me, mine, noise};

/// Passes bytes on and cuts every connection after a while, differently each time.
async fn cutting_proxy(target: String, most: u64) -> (String, Arc<AtomicU64>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let cuts = Arc::new(AtomicU64::new(0));
    let counted = cuts.clone();
    tokio::spawn(async move {
        let mut seed = 12345_u64;
        while let Ok((from, _)) = listener.accept().await {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let budget = 20_000 + (seed >> 33) % most;
            let (target, cuts) = (target.clone(), counted.clone());
            tokio::spawn(async move {
                let Ok(to) = TcpStream::connect(&target).await else {
                    return;
                };
                let left = Arc::new(AtomicU64::new(budget));
                let (from_read, from_write) = from.into_split();
                let (to_read, to_write) = to.into_split();
                let up = pass(from_read, to_write, left.clone());
                let down = pass(to_read, from_write, left.clone());
                // Whichever ends first takes the other with it: the connection is cut in both directions.
                tokio::select! { () = up => {}, () = down => {} }
                if left.load(Ordering::Relaxed) == 0 {
                    cuts.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    (address, cuts)
}

async fn pass(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, left: Arc<AtomicU64>) {
    let mut buffer = vec![0; 16 << 10];
    loop {
        let read = match from.read(&mut buffer).await {
            Ok(0) | Err(_) => return,
            Ok(read) => read as u64,
        };
        let allowed = left.load(Ordering::Relaxed).min(read);
        left.fetch_sub(allowed, Ordering::Relaxed);
        if to.write_all(&buffer[..allowed as usize]).await.is_err() || allowed < read {
            left.store(0, Ordering::Relaxed);
            return;
        }
    }
}

/// Everything arrived; wasted bytes are counted separately.
#[track_caller]
fn assert_moved_once(summary: &Summary) {
    assert!(summary.failures.is_empty(), "{:?}", summary.failures);
    assert!(summary.again > 0, "connections were cut");
    assert!(
        summary.moved <= summary.bytes,
        "{} bytes are said to have moved, of {}",
        summary.moved,
        summary.bytes
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn transfers_over_a_slow_breaking_link_continue_while_bytes_move() {
    let stage = Stage::new().await;
    let (local, back) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (file, fetched) = (local.path().join("large"), back.path().join("large"));
    let content = noise(97, 4 << 20);
    std::fs::write(&file, &content).unwrap();
    let (proxy, cuts) = cutting_proxy(stage.address.clone(), 1_500_000).await;
    // Every piece of work takes longer than this, and breaks. Pauses count: a server that still receives a part over the
    // broken connection asks for one of a second, which doubles up to 3 s. A busy machine may need four of them.
    let me = client(&proxy, "me").with_limits(Limits {
        give_up: Duration::from_secs(10),
        pause: Duration::from_millis(1),
        ..Limits::default()
    });
    let options = TransferOptions {
        bwlimit: Some(400_000),
        ..TransferOptions::default()
    };
    let upload = Upload::File {
        local: file,
        remote: mine("large"),
    };
    assert_moved_once(&me.files().upload(vec![upload], &options, &()).await);
    let after_upload = cuts.load(Ordering::Relaxed);
    assert!(after_upload > 3, "the proxy cut {after_upload} connections only");
    let download = Download::File {
        remote: mine("large"),
        local: fetched.clone(),
        meta: me.files().patient().stat(&mine("large")).await.unwrap(),
    };
    let summary = me.files().download(vec![download], &options, &()).await;
    assert!(summary.failures.is_empty(), "{:?}", summary.failures);
    assert_eq!((summary.moved, summary.again), (4 << 20, 0), "every byte counts");
    assert!(cuts.load(Ordering::Relaxed) >= after_upload + 2);
    assert!(std::fs::read(fetched).unwrap() == content);
    stage.finish().await;
}

/// Forwards replies immediately and requests at a limited rate, and accepts no more than it forwards.
async fn slow_proxy(target: String, bytes_per_second: u64) -> String {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(16 << 10).unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = socket.listen(16).unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        while let Ok((from, _)) = listener.accept().await {
            let to = TcpStream::connect(&target).await.unwrap();
            let (from_read, from_write) = from.into_split();
            let (to_read, to_write) = to.into_split();
            tokio::spawn(pass(to_read, from_write, Arc::new(AtomicU64::new(u64::MAX))));
            tokio::spawn(pass_slowly(from_read, to_write, bytes_per_second));
        }
    });
    address
}

async fn pass_slowly(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, bytes_per_second: u64) {
    const TICK: Duration = Duration::from_millis(20);
    let mut ticks = tokio::time::interval(TICK);
    let mut buffer = vec![0; (bytes_per_second / 50) as usize];
    loop {
        ticks.tick().await;
        match from.read(&mut buffer).await {
            Ok(read) if read > 0 && to.write_all(&buffer[..read]).await.is_ok() => {}
            _ => return,
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upload_over_a_slow_link_continues_while_bytes_move() {
    let stage = Stage::new().await;
    let local = tempfile::tempdir().unwrap();
    let file = local.path().join("large");
    let content = noise(96, 4 << 20);
    std::fs::write(&file, &content).unwrap();
    let proxy = slow_proxy(stage.address.clone(), 280_000).await;
    // One chunk takes three times as long, most of it in buffers of this system. A busy server replies within this time.
    let me = client(&proxy, "me").with_limits(Limits {
        reply: Duration::from_secs(5),
        give_up: Duration::from_secs(5),
        ..Limits::default()
    });
    let upload = Upload::File {
        local: file,
        remote: mine("large"),
    };
    let summary = me
        .files()
        .upload(vec![upload], &TransferOptions::default(), &())
        .await;
    assert!(summary.failures.is_empty(), "{:?}", summary.failures);
    assert_eq!(summary.again, 0, "nothing was taken for broken");
    assert!(std::fs::read(stage.home("me").join("large")).unwrap() == content);
    stage.finish().await;
}

#[tokio::test]
async fn transfers_replace_no_socket_or_pipe_on_either_side() {
    let stage = Stage::new().await;
    let files = stage.me.files();
    let local = tempfile::tempdir().unwrap();
    let (up, down) = (local.path().join("up"), local.path().join("down"));
    for folder in [&up, &down] {
        std::fs::create_dir(folder).unwrap();
    }
    std::fs::write(up.join("special"), "x").unwrap();
    std::fs::write(up.join("other"), "y").unwrap();
    let listed = entries(&up);
    let upload = |name: &str| Upload::Tree {
        local: up.clone(),
        remote: mine(name),
        entries: listed.clone(),
    };
    let options = TransferOptions::default();
    let sent = files.upload(vec![upload("t")], &options, &()).await;
    assert!(sent.failures.is_empty(), "{:?}", sent.failures);

    let _here = UnixListener::bind(down.join("special")).unwrap();
    let tree = Download::Tree {
        remote: mine("t"),
        local: down.clone(),
        entries: listed.clone(),
    };
    let one = Download::File {
        remote: mine("t/special"),
        local: down.join("special"),
        meta: files.stat(&mine("t/special")).await.unwrap(),
    };
    for (download, transferred) in [(tree, 1), (one, 0)] {
        let fetched = files.download(vec![download], &options, &()).await;
        assert_not_replaced(&fetched, transferred);
    }
    assert!(is_socket(&down.join("special")));

    let there = stage.home("me").join("j");
    std::fs::create_dir(&there).unwrap();
    let _there = UnixListener::bind(there.join("special")).unwrap();
    assert_not_replaced(&files.upload(vec![upload("j")], &options, &()).await, 1);
    let refused = files
        .copy(
            &mine("t/special"),
            &mine("j/special"),
            paddlecloud_pfs::Existing::Replace,
        )
        .await
        .unwrap_err();
    assert_eq!(refused.refusal(), Some(ErrorName::BadRequest), "{refused}");
    assert!(is_socket(&there.join("special")));
    stage.finish().await;
}

fn is_socket(path: &std::path::Path) -> bool {
    use std::os::unix::fs::FileTypeExt;
    std::fs::symlink_metadata(path).unwrap().file_type().is_socket()
}

#[track_caller]
fn assert_not_replaced(summary: &Summary, transferred: u64) {
    let [failure] = summary.failures.as_slice() else {
        panic!("{:?}", summary.failures);
    };
    assert!(
        matches!(failure.error, TransferError::NotReplaced { .. }),
        "{failure:?}"
    );
    assert_eq!(summary.transferred, transferred);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tree_is_transferred_despite_cut_connections() {
    let stage = Stage::new().await;
    let (local, back) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    std::fs::create_dir(local.path().join("d")).unwrap();
    for index in 0..60 {
        std::fs::write(local.path().join(format!("d/{index}")), noise(index, 20_000)).unwrap();
    }
    std::fs::write(local.path().join("large"), noise(99, 9_000_000)).unwrap();
    std::fs::write(local.path().join("medium"), noise(98, 900_000)).unwrap();
    let (proxy, cuts) = cutting_proxy(stage.address.clone(), 1_500_000).await;
    let me: Client = client(&proxy, "me");
    let files = me.files();
    let upload = Upload::Tree {
        local: local.path().to_owned(),
        remote: mine("t"),
        entries: entries(local.path()),
    };
    let summary = files.upload(vec![upload], &TransferOptions::default(), &()).await;
    assert_moved_once(&summary);
    assert_same(local.path(), &stage.home("me").join("t"));
    assert_tidy(&stage.home("me"));
    let after_upload = cuts.load(Ordering::Relaxed);
    assert!(after_upload > 3, "the proxy cut {after_upload} connections only");

    let options = ListOptions {
        recursive: true,
        digests: false,
    };
    let listed = stage
        .me
        .files()
        .list(&mine("t"), options)
        .await
        .unwrap()
        .collect()
        .await
        .unwrap();
    let download = Download::Tree {
        remote: mine("t"),
        local: back.path().to_owned(),
        entries: listed.iter().filter_map(|entry| entry.entry()).collect(),
    };
    let summary = files
        .download(vec![download], &TransferOptions::default(), &())
        .await;
    assert_moved_once(&summary);
    assert_same(local.path(), back.path());
    assert_tidy(back.path());
    assert!(cuts.load(Ordering::Relaxed) > after_upload + 3);
    stage.finish().await;
}

#[tokio::test]
async fn an_upload_resumes_after_a_server_restart() {
    let stage = Stage::new().await;
    let local = tempfile::tempdir().unwrap();
    let path = local.path().join("large");
    let content = noise(6, 14 << 20);
    std::fs::write(&path, &content).unwrap();
    // A client that goes away after two chunks.
    let meta = paddlecloud_pfs::Root::open(local.path())
        .unwrap()
        .stat(&"large".parse().unwrap())
        .unwrap();
    let mut key = blake3::Hasher::new();
    key.update(mine("large").to_string().as_bytes());
    key.update(paddlecloud_api::files::version_of(&meta.stamp).as_bytes());
    let request = paddlecloud_api::files::UploadRequest {
        mtime: Some(meta.mtime),
        key: key.finalize().to_hex()[..32].to_owned(),
        ..begin("large", meta.size)
    };
    let caller = me();
    let started = stage.app.upload_begin(&caller, request).await.unwrap();
    let id = started.id.to_string();
    let layout = paddlecloud_pfs::content::Layout::of(meta.size);
    for index in 0..2 {
        let (offset, len) = layout.range(index).unwrap();
        let bytes = &content[offset as usize..(offset + len) as usize];
        let mut hasher = layout.hasher(index);
        hasher.update(bytes);
        let mut taking = stage
            .app
            .upload_chunk(&caller, &id, index, hasher.finish())
            .await
            .unwrap();
        taking
            .feed(vec![bytes::Bytes::copy_from_slice(bytes)])
            .await
            .unwrap();
        taking.finish().await.unwrap();
    }
    let folder = stage.finish().await;
    let stage = Stage::on(
        folder,
        "users:\n- {name: me, password_file: word, system_user: a}\n",
    )
    .await;
    let upload = Upload::File {
        local: path,
        remote: mine("large"),
    };
    let summary = stage
        .me
        .files()
        .upload(vec![upload], &TransferOptions::default(), &())
        .await;
    assert!(summary.failures.is_empty(), "{:?}", summary.failures);
    assert_eq!(summary.moved, 6 << 20, "only the rest is sent");
    assert_eq!(std::fs::read(stage.home("me").join("large")).unwrap(), content);
    assert_tidy(&stage.home("me"));
    stage.finish().await;
}

#[tokio::test]
async fn a_flipped_bit_is_found_before_it_counts() {
    let stage = Stage::new().await;
    let caller = me();
    let id = stage
        .app
        .upload_begin(&caller, begin("f", 3))
        .await
        .unwrap()
        .id
        .to_string();
    let mut hasher = paddlecloud_pfs::content::Layout::of(3).hasher(0);
    hasher.update(b"abc");
    let mut taking = stage
        .app
        .upload_chunk(&caller, &id, 0, hasher.finish())
        .await
        .unwrap();
    taking
        .feed(vec![bytes::Bytes::from_static(b"abC")])
        .await
        .unwrap();
    let refused = ErrorBody::from(taking.finish().await.unwrap_err());
    assert_eq!(refused.error, ErrorName::Damaged);
    assert_eq!(
        stage.app.upload_show(&caller, &id).await.unwrap().missing,
        [(0, 3)]
    );
    stage.app.upload_discard(&caller, &id).await.unwrap();
    assert_tidy(&stage.home("me"));
    stage.finish().await;
}

/// Reads until what has come says something; what has come.
async fn wait_until_read(stream: &mut TcpStream, says: impl Fn(&str) -> bool) -> String {
    let mut come = Vec::new();
    let reading = async {
        while !says(&String::from_utf8_lossy(&come)) {
            assert!(stream.read_buf(&mut come).await.unwrap() > 0, "{come:?}");
        }
    };
    let limit = Duration::from_secs(60);
    tokio::time::timeout(limit, reading).await.expect("nothing comes");
    String::from_utf8(come).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn long_requests_send_keep_alive_bytes() {
    let stage = Stage::new().await;
    let user = "me".parse().unwrap();
    let turns = [
        stage.app.queue.turn(Class::Long, &user).await,
        stage.app.queue.turn(Class::Long, &user).await,
        stage.app.queue.turn(Class::Long, &user).await,
        stage.app.queue.turn(Class::Long, &user).await,
    ];
    let mut stream = TcpStream::connect(&stage.address).await.unwrap();
    // `me:secret`
    let head = "GET /api/v1/pfs/usage?path=/pfs/dc/home/me HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\
        authorization: Basic bWU6c2VjcmV0\r\npaddlecloud-alive: 1\r\n\r\n";
    stream.write_all(head.as_bytes()).await.unwrap();
    let started = wait_until_read(&mut stream, |text| {
        text.split_once("\r\n\r\n")
            .is_some_and(|(_, body)| body.contains(' '))
    })
    .await;
    assert!(started.starts_with("HTTP/1.1 200 "), "{started}");
    assert!(started.contains("\r\npaddlecloud-alive: 1\r\n"), "{started}");
    assert!(!started.contains("\"bytes\""), "it was not long: {started}");
    drop(turns);
    let ended = wait_until_read(&mut stream, |text| text.ends_with("0\r\n\r\n")).await;
    assert!(ended.contains(r#"{"code":200,"msg":{"bytes":"#), "{ended}");
    stage.finish().await;
}

/// A small file system of its own, unmounted at the end.
pub struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    /// Needs permission to mount.
    pub fn new(size: &str) -> SmallDisk {
        SmallDisk::on(tempfile::tempdir().unwrap(), size)
    }

    /// The same over a folder.
    pub fn on(folder: tempfile::TempDir, size: &str) -> SmallDisk {
        let mounted = std::process::Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs"])
            .arg(folder.path())
            .status();
        assert!(mounted.is_ok_and(|status| status.success()));
        SmallDisk(folder)
    }

    pub fn path(&self) -> &std::path::Path {
        self.0.path()
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount")
            .arg("-l")
            .arg(self.0.path())
            .status();
    }
}

#[tokio::test]
#[ignore = "needs permission to mount"]
async fn a_full_disk_is_reported_and_leaves_nothing() {
    let disk = SmallDisk::new("8m");
    let users = format!(
        "storage: {}\nusers:\n- {{name: me, password_file: word, system_user: a}}\n",
        disk.0.path().display()
    );
    let stage = Stage::with(&users).await;
    let files = stage.me.files();
    let local = tempfile::tempdir().unwrap();
    let send = async |name: &str, size: usize| {
        let path = local.path().join(name);
        std::fs::write(&path, noise(2, size)).unwrap();
        let upload = Upload::File {
            local: path,
            remote: mine(name),
        };
        files.upload(vec![upload], &TransferOptions::default(), &()).await
    };
    assert!(send("fits", 4 << 20).await.failures.is_empty());
    let refused = send("large", 6 << 20).await;
    let TransferError::Server(ClientError::Refused(body)) = &refused.failures[0].error else {
        panic!("{:?}", refused.failures);
    };
    assert_eq!(body.error, ErrorName::StorageFull, "{body:?}");
    // Small files fill it up to the brim; the first that does not fit says so.
    let mut full = None;
    for index in 0..12 {
        let summary = send(&format!("small-{index}"), 900_000).await;
        if let Some(failure) = summary.failures.into_iter().next() {
            full = Some(failure);
            break;
        }
    }
    let failure = full.expect("eight megabytes are not endless");
    let TransferError::Server(ClientError::Refused(body)) = &failure.error else {
        panic!("{failure:?}");
    };
    assert_eq!(body.error, ErrorName::StorageFull, "{body:?}");
    let home = disk.0.path().join("home/me");
    assert_tidy(&home);
    assert_eq!(
        std::fs::read(home.join("fits")).unwrap(),
        noise(2, 4 << 20),
        "what was there stays"
    );
    stage.finish().await;
}
