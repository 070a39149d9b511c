//! Logs of a job: as a stream of frames, or as text.

use std::io;

use bytes::Bytes;
use futures_util::{Stream, StreamExt, stream};
use paddlecloud_api::error::ErrorBody;
use paddlecloud_api::logs::LogQuery;
use paddlecloud_core::names::JobRef;

use super::App;
use crate::auth::Caller;

impl App {
    /// The frames of a job's log. Ends when the server stops: whoever follows asks again by offset.
    pub async fn log_stream(
        &self,
        caller: &Caller,
        target: &JobRef,
        query: LogQuery,
    ) -> Result<impl Stream<Item = io::Result<Bytes>> + Send + 'static + use<>, ErrorBody> {
        let job = self.job_find(caller, target).await?;
        let opened = self.logs.open(job, &query).await?;
        let portions = stream::unfold(opened, async |mut log| {
            let portion = log.next().await?;
            Some((portion.map(Bytes::from).map_err(io::Error::other), log))
        });
        Ok(portions.take_until(self.stop.clone().cancelled_owned()))
    }

    /// What a job has written until now, as text.
    pub async fn log_show(
        &self,
        caller: &Caller,
        target: &JobRef,
        query: LogQuery,
    ) -> Result<String, ErrorBody> {
        let job = self.job_find(caller, target).await?;
        self.logs.text(job, &query).await
    }
}
