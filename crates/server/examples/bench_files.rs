//! Measures the file service over loopback: `bench_files [megabytes] [folder]`.
//!
//! The server is a process of its own (this program again), so that its memory and its CPU are told apart. Put the
//! folder on tmpfs to leave the disk out of it. Every result is compared byte by byte.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use paddlecloud_api::client::files::{Download, ListOptions, Summary, TransferOptions, Upload};
use paddlecloud_api::client::{Client, Credentials};
use paddlecloud_pfs::package::{Names, Reading, ScanOptions, scan};
use paddlecloud_pfs::{Entry, PfsPath};
use paddlecloud_server::config::Config;
use paddlecloud_server::ready::Ready;

const SMALL_FILES: usize = 10_000;
const SMALL_SIZE: usize = 10_240;
const AT_ONCE: usize = 64;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().is_some_and(|word| word == "serve") {
        return serve(Path::new(&arguments[1]));
    }
    let megabytes: usize = arguments.first().map_or(Ok(2000), |word| word.parse())?;
    let folder = arguments.get(1).map_or_else(std::env::temp_dir, PathBuf::from);
    let folder = folder.join(format!("bench-files-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let result = tokio::runtime::Runtime::new()?.block_on(bench(&folder, megabytes));
    std::fs::remove_dir_all(&folder)?;
    result
}

fn serve(folder: &Path) -> Result<()> {
    let config = Config::read(&folder.join("server.yaml"))?;
    paddlecloud_server::start::run(config, Ready::new(None))?;
    Ok(())
}

/// The server's process; it ends with the benchmark.
struct Server {
    process: Child,
    socket: PathBuf,
}

impl Server {
    fn start(folder: &Path) -> Result<Server> {
        let socket = folder.join("socket");
        std::fs::write(folder.join("word"), "secret")?;
        let text = format!(
            "data: data\ndatacenter: dc\nlisten: [127.0.0.1:0, 'unix:{}']\nusers:\n- {{name: me, password_file: word}}\n",
            socket.display()
        );
        std::fs::write(folder.join("server.yaml"), text)?;
        let mut process = Command::new(std::env::current_exe()?)
            .arg("serve")
            .arg(folder)
            .env("RUST_LOG", "info")
            .stderr(Stdio::piped())
            .spawn()?;
        let stderr = process.stderr.take().context("a piped stderr")?;
        drop(BufReader::new(stderr).lines());
        Ok(Server { process, socket })
    }

    fn status(&self, key: &str) -> u64 {
        let text = std::fs::read_to_string(format!("/proc/{}/status", self.process.id())).unwrap_or_default();
        let line = text
            .lines()
            .find(|line| line.starts_with(key))
            .unwrap_or_default();
        let number = line.split_whitespace().nth(1).and_then(|word| word.parse().ok());
        number.unwrap_or(0)
    }

    /// CPU seconds of a process so far.
    fn cpu(pid: &str) -> f64 {
        let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let rest = text.rsplit(')').next().unwrap_or_default();
        let ticks: f64 = rest
            .split_whitespace()
            .skip(11)
            .take(2)
            .filter_map(|word| word.parse::<f64>().ok())
            .sum();
        ticks / 100.0
    }

    fn both(&self) -> f64 {
        Server::cpu(&self.process.id().to_string()) + Server::cpu("self")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

async fn bench(folder: &Path, megabytes: usize) -> Result<()> {
    let server = Server::start(folder)?;
    let client =
        Client::new(format!("unix:{}", server.socket.display()).parse()?).with_credentials(Credentials {
            login: Some(("me".to_owned(), "secret".to_owned())),
            token: None,
        });
    let deadline = Instant::now() + Duration::from_secs(30);
    while client.ping().await.is_err() {
        ensure!(Instant::now() < deadline, "the server did not start");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    println!("server at rest: {} MB", server.status("VmRSS:") / 1024);
    one_large_file(&server, &client, folder, megabytes).await?;
    many_small_files(&server, &client, folder).await?;
    many_at_once(&server, &client, folder).await?;
    println!("server at most: {} MB", server.status("VmHWM:") / 1024);
    Ok(())
}

async fn one_large_file(server: &Server, client: &Client, folder: &Path, megabytes: usize) -> Result<()> {
    let files = client.files();
    let path = folder.join("large");
    let mut content = noise(1, megabytes * 1_000_000);
    std::fs::write(&path, &content)?;
    let upload = || {
        vec![Upload::File {
            local: path.clone(),
            remote: remote("large"),
        }]
    };
    let options = TransferOptions::default();
    let gigabytes = content.len() as f64 / 1e9;
    let (summary, seconds, cpu) = measured(server, files.upload(upload(), &options, &())).await?;
    println!(
        "{gigabytes} GB up: {:.0} MB/s, {:.2} cpu-s/GB",
        summary.moved as f64 / 1e6 / seconds,
        cpu / gigabytes
    );
    let back = folder.join("back");
    let download = vec![Download::File {
        remote: remote("large"),
        local: back.clone(),
    }];
    let (_, seconds, cpu) = measured(server, files.download(download, &options, &())).await?;
    println!(
        "{gigabytes} GB down: {:.0} MB/s, {:.2} cpu-s/GB",
        gigabytes * 1e3 / seconds,
        cpu / gigabytes
    );
    ensure!(std::fs::read(&back)? == content, "the file came back different");
    std::fs::remove_file(&back)?;
    let middle = content.len() / 2;
    content[middle..middle + 1_000_000].copy_from_slice(&noise(2, 1_000_000));
    std::fs::write(&path, &content)?;
    let (summary, seconds, _) = measured(server, files.upload(upload(), &options, &())).await?;
    let share = |summary: &Summary| 100.0 * summary.moved as f64 / content.len() as f64;
    println!("1 MB changed: {:.3} % sent, {seconds:.1} s", share(&summary));
    content.splice(middle..middle, noise(3, 1_000_000));
    std::fs::write(&path, &content)?;
    let (summary, seconds, _) = measured(server, files.upload(upload(), &options, &())).await?;
    println!(
        "1 MB inserted: {:.3} % sent, {seconds:.1} s",
        100.0 * summary.moved as f64 / content.len() as f64
    );
    let stored = folder.join("data/storage/home/me/large");
    ensure!(
        std::fs::read(&stored)? == content,
        "the changed file is different"
    );
    std::fs::remove_file(stored)?;
    std::fs::remove_file(path)?;
    Ok(())
}

async fn many_small_files(server: &Server, client: &Client, folder: &Path) -> Result<()> {
    let files = client.files();
    let local = folder.join("small");
    for index in 0..SMALL_FILES {
        let name = local.join(format!("{:02}", index / 100)).join(index.to_string());
        std::fs::create_dir_all(name.parent().context("a folder")?)?;
        std::fs::write(name, noise(index as u64, SMALL_SIZE))?;
    }
    let upload = || -> Result<Vec<Upload>> {
        Ok(vec![Upload::Tree {
            local: local.clone(),
            remote: remote("small"),
            entries: entries(&local)?,
        }])
    };
    let options = TransferOptions::default();
    let (_, seconds, cpu) = measured(server, files.upload(upload()?, &options, &())).await?;
    println!(
        "{SMALL_FILES} files up: {:.0} files/s, {cpu:.2} cpu-s",
        SMALL_FILES as f64 / seconds
    );
    let (summary, seconds, _) = measured(server, files.upload(upload()?, &options, &())).await?;
    ensure!(
        summary.unchanged == SMALL_FILES as u64,
        "something was sent again"
    );
    println!(
        "the same again: {:.0} ms, {} bytes of content sent",
        seconds * 1e3,
        summary.moved
    );
    let listing = files
        .list(
            &remote("small"),
            ListOptions {
                recursive: true,
                digests: false,
            },
        )
        .await?;
    let listed = listing.collect().await?;
    let back = folder.join("small-back");
    let download = vec![Download::Tree {
        remote: remote("small"),
        local: back.clone(),
        entries: listed.iter().filter_map(|entry| entry.entry()).collect(),
    }];
    let (_, seconds, cpu) = measured(server, files.download(download, &options, &())).await?;
    println!(
        "{SMALL_FILES} files down: {:.0} files/s, {cpu:.2} cpu-s",
        SMALL_FILES as f64 / seconds
    );
    let same = Command::new("diff").arg("-r").arg(&local).arg(&back).status()?;
    ensure!(same.success(), "the tree came back different");
    Ok(())
}

/// Many clients, each with one connection, up and down at once: what counts is the server's memory.
async fn many_at_once(server: &Server, client: &Client, folder: &Path) -> Result<()> {
    let one = TransferOptions {
        transfers: std::num::NonZeroUsize::MIN,
        ..TransferOptions::default()
    };
    let path = folder.join("shared");
    std::fs::write(&path, noise(5, 12_000_000))?;
    let transfers = (0..AT_ONCE).map(|index| {
        let (path, one) = (&path, &one);
        async move {
            let files = client.files();
            let upload = Upload::File {
                local: path.clone(),
                remote: remote(&format!("at-once-{index}")),
            };
            files.upload(vec![upload], one, &()).await
        }
    });
    let started = Instant::now();
    let summaries = futures_util::future::join_all(transfers).await;
    ensure!(
        summaries.iter().all(|summary| summary.failures.is_empty()),
        "{summaries:?}"
    );
    println!(
        "{AT_ONCE} uploads at once: {:.0} MB/s, server {} MB",
        12.0 * AT_ONCE as f64 / started.elapsed().as_secs_f64(),
        server.status("VmRSS:") / 1024
    );
    let started = Instant::now();
    let downloads = (0..AT_ONCE).map(|index| {
        let one = &one;
        async move {
            let download = Download::File {
                remote: remote(&format!("at-once-{index}")),
                local: folder.join(format!("back-{index}")),
            };
            client.files().download(vec![download], one, &()).await
        }
    });
    let summaries = futures_util::future::join_all(downloads).await;
    ensure!(
        summaries.iter().all(|summary| summary.failures.is_empty()),
        "{summaries:?}"
    );
    println!(
        "{AT_ONCE} downloads at once: {:.0} MB/s, server {} MB",
        12.0 * AT_ONCE as f64 / started.elapsed().as_secs_f64(),
        server.status("VmRSS:") / 1024
    );
    Ok(())
}

async fn measured(server: &Server, work: impl Future<Output = Summary>) -> Result<(Summary, f64, f64)> {
    let (started, before) = (Instant::now(), server.both());
    let summary = work.await;
    ensure!(summary.failures.is_empty(), "{:?}", summary.failures);
    Ok((summary, started.elapsed().as_secs_f64(), server.both() - before))
}

fn remote(path: &str) -> PfsPath {
    format!("/pfs/dc/home/me/{path}").parse().expect("a plain path")
}

fn entries(folder: &Path) -> Result<Vec<Entry>> {
    let options = ScanOptions {
        names: Names::Bytes,
        reading: Reading::Nothing,
        take_all: true,
        ..ScanOptions::default()
    };
    Ok(scan(folder, &options)?.entries)
}

fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}
