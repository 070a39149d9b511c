//! A real S3 service for tests, which stores objects as files. `cargo xtask test --with s3` starts it.
//!
//! It is s3s-fs as a library: its own program would compile most of the libraries that we have already.

use std::error::Error;

use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use s3s::auth::SimpleAuth;
use s3s::service::S3ServiceBuilder;
use s3s_fs::FileSystem;
use tokio::net::TcpListener;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [address, access_key, secret_key, folder] = &args[..] else {
        return Err("usage: s3_server ADDRESS ACCESS_KEY SECRET_KEY FOLDER".into());
    };
    let files = FileSystem::new(folder).map_err(|error| format!("{error:?}"))?;
    let mut service = S3ServiceBuilder::new(files);
    service.set_auth(SimpleAuth::from_single(access_key.as_str(), secret_key.as_str()));
    let service = service.build();
    let listener = TcpListener::bind(address).await?;
    loop {
        let (stream, _) = listener.accept().await?;
        let service = service.clone();
        tokio::spawn(async move {
            // A client that leaves in the middle of a request is no concern of the others.
            let _ = http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service)
                .await;
        });
    }
}
