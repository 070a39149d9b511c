//! Whole transfers in few system calls: scattered memory to a connection and back.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};

/// Most slices the system takes at once.
const AT_ONCE: usize = 1024;

/// Writes all slices, in order.
pub fn write_vectored(stream: &mut impl Write, mut slices: &mut [IoSlice<'_>]) -> io::Result<()> {
    IoSlice::advance_slices(&mut slices, 0);
    while !slices.is_empty() {
        let end = slices.len().min(AT_ONCE);
        match stream.write_vectored(&slices[..end]) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => IoSlice::advance_slices(&mut slices, written),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Fills all slices, in order. `interrupted` is asked after every signal whether to give up.
pub fn read_vectored(
    stream: &mut impl Read,
    mut slices: &mut [IoSliceMut<'_>],
    interrupted: &dyn Fn() -> bool,
) -> io::Result<()> {
    IoSliceMut::advance_slices(&mut slices, 0);
    while !slices.is_empty() {
        let end = slices.len().min(AT_ONCE);
        match stream.read_vectored(&mut slices[..end]) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(read) => IoSliceMut::advance_slices(&mut slices, read),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {
                if interrupted() {
                    return Err(error);
                }
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
