"""RecordIO files: `reader` and `writer`, under the name of the original package.

    with recordio.writer("train-00000") as out:
        out.write(b"one record")

    for record in recordio.reader("train-*"):
        ...
"""

from paddlecloud._foreign import warn_about_foreign_recordio
from paddlecloud._native import DamageError, Error, LostRange, reader, writer

__all__ = ["DamageError", "Error", "LostRange", "reader", "writer"]

warn_about_foreign_recordio()
