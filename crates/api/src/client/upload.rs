//! A request body that another thread writes: bounded, so that a slow network slows down the writer instead of filling
//! the memory.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use hyper::body::{Body, Frame};
use tokio::sync::mpsc;

const PIECE: usize = 256 << 10;
const PIECES_WAITING: usize = 8;

enum Piece {
    Data(Bytes),
    End,
}

/// The writing half, for a blocking thread. Dropping it without [`UploadWriter::finish`] aborts the request, so that
/// the server never mistakes a part of a stream for all of it.
pub struct UploadWriter {
    pieces: mpsc::Sender<Piece>,
    buffer: BytesMut,
}

/// The reading half: the body of a request.
pub struct UploadBody {
    pieces: mpsc::Receiver<Piece>,
    ended: bool,
}

/// Creates a writer and the body that carries what it writes.
pub fn upload_channel() -> (UploadWriter, UploadBody) {
    let (sender, receiver) = mpsc::channel(PIECES_WAITING);
    let writer = UploadWriter {
        pieces: sender,
        buffer: BytesMut::with_capacity(PIECE),
    };
    let body = UploadBody {
        pieces: receiver,
        ended: false,
    };
    (writer, body)
}

impl UploadWriter {
    /// Sends buffered bytes and marks the stream as complete.
    pub fn finish(mut self) -> io::Result<()> {
        io::Write::flush(&mut self)?;
        self.send(Piece::End)
    }

    fn send(&mut self, piece: Piece) -> io::Result<()> {
        self.pieces
            .blocking_send(piece)
            .map_err(|_| io::Error::new(io::ErrorKind::BrokenPipe, "the server stopped reading"))
    }
}

impl io::Write for UploadWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let room = PIECE - self.buffer.len();
        let taken = bytes.len().min(room);
        self.buffer.extend_from_slice(&bytes[..taken]);
        if self.buffer.len() == PIECE {
            self.flush()?;
        }
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        let full = std::mem::replace(&mut self.buffer, BytesMut::with_capacity(PIECE));
        self.send(Piece::Data(full.freeze()))
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
