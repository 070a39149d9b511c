//! A request body that another thread writes: bounded, so that a slow network slows down the writer instead of filling
//! the memory.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use hyper::body::{Body, Frame};
use tokio::sync::mpsc;

const PIECES_WAITING: usize = 8;

enum Piece {
    Data(Bytes),
    End,
}

/// The writing half, for a blocking thread. Dropping it without [`UploadWriter::finish`] aborts the request, so that
/// the server never mistakes a part of a stream for all of it.
pub struct UploadWriter {
    pieces: mpsc::Sender<Piece>,
}

/// The reading half: the body of a request.
pub struct UploadBody {
    pieces: mpsc::Receiver<Piece>,
    ended: bool,
}

/// Creates a writer and the body that carries what it writes.
pub fn upload_channel() -> (UploadWriter, UploadBody) {
    let (sender, receiver) = mpsc::channel(PIECES_WAITING);
    let writer = UploadWriter { pieces: sender };
    let body = UploadBody {
        pieces: receiver,
        ended: false,
    };
    (writer, body)
}

impl UploadWriter {
    /// Marks the stream as complete.
    pub fn finish(self) -> io::Result<()> {
        self.send(Piece::End)
    }

    fn send(&self, piece: Piece) -> io::Result<()> {
        self.pieces
            .blocking_send(piece)
            .map_err(|_| io::Error::new(io::ErrorKind::BrokenPipe, "the server stopped reading"))
    }
}

/// Every write is a piece of the body, so writers buffer.
impl io::Write for UploadWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.send(Piece::Data(Bytes::copy_from_slice(bytes)))?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Body for UploadBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        if self.ended {
            return Poll::Ready(None);
        }
        match ready!(self.pieces.poll_recv(context)) {
            Some(Piece::Data(bytes)) => Poll::Ready(Some(Ok(Frame::data(bytes)))),
            Some(Piece::End) => {
                self.ended = true;
                Poll::Ready(None)
            }
            None => Poll::Ready(Some(Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                "the package could not be read to its end",
            )))),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.ended
    }
}
