//! Request bodies that keep to a rate and count what leaves.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use tokio::time::Sleep;

use crate::client::UploadBody;

/// A rate shared by all connections of a transfer. What a pause leaves unused is not made up for.
#[derive(Debug)]
pub struct Throttle {
    bytes_per_second: u64,
    /// When everything that was let through so far will have gone at that rate.
    busy_until: Mutex<Instant>,
}

impl Throttle {
    pub fn new(bytes_per_second: u64) -> Throttle {
        Throttle {
            bytes_per_second: bytes_per_second.max(1),
            busy_until: Mutex::new(Instant::now()),
        }
    }

    /// Lets bytes through and says how long to wait first.
    pub fn delay(&self, bytes: u64) -> Duration {
        let mut busy_until = self.busy_until.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let start = (*busy_until).max(now);
        *busy_until = start + Duration::from_secs_f64(bytes as f64 / self.bytes_per_second as f64);
        start - now
    }
}

/// Bytes that are handed over at a time: small enough that whoever watches sees them go.
const PIECE: usize = 256 << 10;
/// With a rate, pieces are smaller: the rate is kept over every fraction of a second.
const PACED_PIECE: usize = 32 << 10;

enum Source {
    Whole(Bytes),
    Stream(UploadBody),
}

/// A body in memory or a stream, paced.
pub(super) struct PacedBody {
    source: Source,
    throttle: Option<Arc<Throttle>>,
    waiting: Option<(Pin<Box<Sleep>>, Bytes)>,
    sent: Arc<AtomicU64>,
    content: u64,
}

impl PacedBody {
    pub(super) fn whole(bytes: Bytes, throttle: Option<Arc<Throttle>>) -> PacedBody {
        PacedBody {
            content: bytes.len() as u64,
            source: Source::Whole(bytes),
            throttle,
            waiting: None,
            sent: Arc::default(),
        }
    }

    /// A stream that carries so many bytes of content, and what surrounds it.
    pub(super) fn stream(body: UploadBody, content: u64, throttle: Option<Arc<Throttle>>) -> PacedBody {
        PacedBody {
            content,
            sent: body.progress(),
            source: Source::Stream(body),
            throttle,
            waiting: None,
        }
    }

    /// Counts with others what leaves.
    pub(super) fn counted_by(mut self, sent: &Arc<AtomicU64>) -> PacedBody {
        self.sent = sent.clone();
        self
    }

    /// Bytes of files in it.
    pub(super) fn content(&self) -> u64 {
        self.content
    }

    /// Counts bytes as they leave.
    pub(super) fn progress(&self) -> Arc<AtomicU64> {
        self.sent.clone()
    }

    fn next_piece(&mut self, context: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        match &mut self.source {
            Source::Whole(bytes) if bytes.is_empty() => Poll::Ready(None),
            Source::Whole(bytes) => {
                let most = match self.throttle {
                    Some(_) => PACED_PIECE,
                    None => PIECE,
                };
                let len = bytes.len().min(most);
                let piece = bytes.split_to(len);
                self.sent.fetch_add(len as u64, Ordering::Relaxed);
                Poll::Ready(Some(Ok(piece)))
            }
            Source::Stream(body) => {
                let frame = ready!(Pin::new(body).poll_frame(context));
                Poll::Ready(
                    frame.map(|frame| frame.map(|frame| frame.into_data().unwrap_or_else(|_| Bytes::new()))),
                )
            }
        }
    }
}

impl Body for PacedBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        loop {
            if let Some((sleep, _)) = &mut self.waiting {
                ready!(sleep.as_mut().poll(context));
                let (_, piece) = self.waiting.take().expect("just looked at");
                return Poll::Ready(Some(Ok(Frame::data(piece))));
            }
            let piece = match ready!(self.next_piece(context)) {
                Some(Ok(piece)) => piece,
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None => return Poll::Ready(None),
            };
            let delay = self
                .throttle
                .as_ref()
                .map(|throttle| throttle.delay(piece.len() as u64));
            match delay {
                None | Some(Duration::ZERO) => return Poll::Ready(Some(Ok(Frame::data(piece)))),
                Some(delay) => self.waiting = Some((Box::pin(tokio::time::sleep(delay)), piece)),
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.source {
            Source::Whole(bytes) => bytes.is_empty() && self.waiting.is_none(),
            Source::Stream(body) => body.is_end_stream() && self.waiting.is_none(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.source {
            Source::Whole(bytes) => {
                let waiting = self.waiting.as_ref().map_or(0, |(_, piece)| piece.len());
                SizeHint::with_exact((bytes.len() + waiting) as u64)
            }
            Source::Stream(_) => SizeHint::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt;

    #[test]
    fn all_connections_share_one_rate() {
        let throttle = Throttle::new(1000);
        assert_eq!(throttle.delay(500), Duration::ZERO);
        let second = throttle.delay(500);
        assert!(
            second > Duration::from_millis(400) && second <= Duration::from_millis(500),
            "{second:?}"
        );
    }

    #[test]
    fn what_a_pause_leaves_unused_is_not_made_up_for() {
        let throttle = Throttle::new(1000);
        *throttle.busy_until.lock().unwrap() -= Duration::from_secs(60);
        assert_eq!(throttle.delay(3_600_000), Duration::ZERO);
        assert!(throttle.delay(1) > Duration::from_secs(1800));
    }

    #[tokio::test]
    async fn a_body_without_a_rate_goes_in_pieces_too() {
        let mut body = PacedBody::whole(Bytes::from(vec![7; 4 << 20]), None);
        let sent = body.progress();
        let first = body.frame().await.unwrap().unwrap().into_data().unwrap();
        assert_eq!(sent.load(Ordering::Relaxed), first.len() as u64);
        assert!(first.len() <= PIECE, "{}", first.len());
        let rest = body.collect().await.unwrap().to_bytes();
        assert_eq!(first.len() + rest.len(), 4 << 20);
    }

    #[tokio::test]
    async fn a_paced_body_is_whole_and_counted() {
        let bytes = Bytes::from(vec![7; 100 << 10]);
        let body = PacedBody::whole(bytes.clone(), Some(Arc::new(Throttle::new(100 << 20))));
        assert_eq!(body.size_hint().exact(), Some(100 << 10));
        let sent = body.progress();
        assert_eq!(body.collect().await.unwrap().to_bytes(), bytes);
        assert_eq!(sent.load(Ordering::Relaxed), 100 << 10);
    }
}
