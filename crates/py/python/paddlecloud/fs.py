"""The file service for `fsspec`, and so for pandas, pyarrow, dask and others: `pfs://<datacenter>/home/<user>/…`.

    import fsspec

    with fsspec.open("pfs://dc1/home/me/train.csv") as file:
        ...
    pfs = fsspec.filesystem("pfs")
    pfs.put("model.bin", "/pfs/dc1/home/me/model.bin")

fsspec finds this module automatically; the wheel does not install fsspec. Paths may be written
`pfs://dc1/home/me` or, as everywhere else, `/pfs/dc1/home/me`. Options are those of `paddlecloud.Client`.
"""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any

from fsspec.callbacks import NoOpCallback
from fsspec.spec import AbstractBufferedFile, AbstractFileSystem

from paddlecloud import errors, views
from paddlecloud.client import Client

__all__ = ["PfsFile", "PfsFileSystem"]

_TYPES = {"file": "file", "folder": "directory", "link": "link"}


class PfsFileSystem(AbstractFileSystem):
    """The files of one server, as fsspec sees them."""

    protocol = "pfs"
    root_marker = "/"

    def __init__(
        self,
        endpoint: str | None = None,
        *,
        username: str | None = None,
        password: str | None = None,
        token: str | None = None,
        usercert: str | os.PathLike[str] | None = None,
        userkey: str | os.PathLike[str] | None = None,
        cacert: str | os.PathLike[str] | None = None,
        config: str | os.PathLike[str] | None = None,
        datacenter: str | None = None,
        **options: Any,
    ) -> None:
        """Without `endpoint` the configuration decides, as for `paddlecloud.Client`; `options` are fsspec's own."""
        super().__init__(**options)
        self.client = Client(
            endpoint,
            username=username,
            password=password,
            token=token,
            usercert=usercert,
            userkey=userkey,
            cacert=cacert,
            config=config,
            datacenter=datacenter,
        )

    @property
    def fsid(self) -> str:
        """Identifies the server."""
        return f"pfs-{self.client.endpoint}"

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        """`/pfs/…` for every way to write a path."""
        if isinstance(path, list):
            return [cls._strip_protocol(one) for one in path]
        text = os.fspath(path)
        inside = "/" + text.removeprefix("pfs://").strip("/")
        is_whole = inside == "/pfs" or inside.startswith("/pfs/")
        return inside if is_whole else f"/pfs{inside}".rstrip("/")

    def unstrip_protocol(self, name: str) -> str:
        return "pfs:/" + self._strip_protocol(name).removeprefix("/pfs")

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        """Returns the metadata of a path: `name`, `size`, `type`, `mtime`, and `version`, which changes with the content."""
        path = self._strip_protocol(path)
        with _as_os_errors(path):
            return _described(path, self.client.files.stat(path))

    def ls(self, path: str, detail: bool = True, **_: Any) -> list[Any]:
        """Lists a folder, or the file itself."""
        path = self._strip_protocol(path)
        with _as_os_errors(path):
            found = self.client.files.stat(path)
            if found.kind == "folder":
                listed = [_described(f"{path}/{item.path}", item) for item in self.client.files.listdir(path)]
            else:
                listed = [_described(path, found)]
        return listed if detail else [item["name"] for item in listed]

    def mkdir(self, path: str, create_parents: bool = True, **_: Any) -> None:
        """Creates a folder; an existing one is an error."""
        path = self._strip_protocol(path)
        if self.exists(path):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        with _as_os_errors(path):
            self.client.files.mkdir(path, parents=create_parents)

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        path = self._strip_protocol(path)
        if not exist_ok:
            self.mkdir(path, create_parents=True)
            return
        with _as_os_errors(path):
            self.client.files.mkdir(path, parents=True)

    def rmdir(self, path: str) -> None:
        """Removes an empty folder."""
        path = self._strip_protocol(path)
        with _as_os_errors(path):
            try:
                self.client.files.rmdir(path)
            except errors.ConflictError as error:
                raise OSError(errno.ENOTEMPTY, error.message, path) from error

    def rm(self, path: Any, recursive: bool = False, maxdepth: int | None = None) -> None:
        """Removes files and, with `recursive`, folders with their contents."""
        paths = [path] if isinstance(path, (str, os.PathLike)) else list(path)
        if maxdepth is not None:
            paths = self.expand_path(paths, recursive=recursive, maxdepth=maxdepth)[::-1]
        wanted = [name for one in paths for name in self._matching(one)]
        with _as_os_errors(wanted[0] if wanted else None):
            self.client.files.remove(wanted, recursive=recursive)

    def _rm(self, path: str) -> None:
        self.rm(path)

    def _matching(self, path: Any) -> list[str]:
        name: str = self._strip_protocol(path)
        return self.expand_path(name) if any(sign in name for sign in "*?[") else [name]

    def cp_file(self, path1: str, path2: str, **_: Any) -> None:
        """Copies a file or folder on the server, without downloading it."""
        source, target = self._strip_protocol(path1), self._strip_protocol(path2)
        with _as_os_errors(source):
            if self.client.files.stat(source).kind == "folder":
                self.client.files.mkdir(target, parents=True)
            else:
                self.client.files.mkdir(self._parent(target), parents=True)
                self.client.files.copy(source, target)

    def mv(self, path1: str, path2: str, recursive: bool = False, maxdepth: int | None = None, **_: Any) -> None:
        """Moves a file or folder, in one step; into an existing folder under its own name."""
        source, target = self._strip_protocol(path1), self._strip_protocol(path2)
        if self.isdir(target):
            target = f"{target}/{source.rpartition('/')[2]}"
        with _as_os_errors(source):
            self.client.files.rename(source, target)

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **_: Any) -> bytes:
        """Returns a file's bytes, or a range of them; negative positions count from the end."""
        path = self._strip_protocol(path)
        first, last = start or 0, end
        if first < 0 or (last is not None and last < 0):
            size = self.info(path)["size"]
            first = max(0, size + first) if first < 0 else first
            last = max(0, size + last) if last is not None and last < 0 else last
        with _as_os_errors(path):
            return self.client.files.read(path, first, last)

    def get_file(self, rpath: str, lpath: Any, callback: Any = NoOpCallback(), outfile: Any = None, **_: Any) -> None:
        """Downloads a file, verified and resumed as by `paddlectl cp`."""
        if outfile is not None or not isinstance(lpath, (str, os.PathLike)):
            (outfile or lpath).write(self.cat_file(rpath))
            return
        path = self._strip_protocol(rpath)
        with _as_os_errors(path):
            if self.client.files.stat(path).kind == "folder":
                os.makedirs(lpath, exist_ok=True)
                return
            done = self.client.files.download(path, lpath)
        _report_progress(callback, done.bytes)

    def put_file(
        self, lpath: Any, rpath: str, callback: Any = NoOpCallback(), mode: str = "overwrite", **_: Any
    ) -> None:
        """Uploads a file; only what differs is sent, and the name appears when the file is complete."""
        path = self._strip_protocol(rpath)
        with _as_os_errors(path):
            if os.path.isdir(lpath):
                self.client.files.mkdir(path, parents=True)
                return
            done = self.client.files.upload(lpath, path, overwrite=mode != "create")
        if mode == "create" and not done.transferred:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        _report_progress(callback, done.bytes)

    def modified(self, path: str) -> datetime:
        """When a file was last changed."""
        changed = self.info(path)["mtime"]
        assert isinstance(changed, datetime)
        return changed

    def ukey(self, path: str) -> str:
        """A value that changes whenever the file does."""
        found = self.info(path)
        return str(found["version"] or (found["size"], found["mtime"]))

    def sign(self, path: str, expiration: int = 100, **_: Any) -> str:
        """Returns a link with which anyone can read the file for this many seconds."""
        path = self._strip_protocol(path)
        with _as_os_errors(path):
            return str(self.client.files.publish(path, lifetime=expiration).link)

    def _open(
        self,
        path: str,
        mode: str = "rb",
        block_size: int | None = None,
        autocommit: bool = True,
        cache_options: dict[str, Any] | None = None,
        **options: Any,
    ) -> PfsFile:
        if mode not in ("rb", "wb", "xb"):
            raise ValueError(f"`/pfs` files cannot be opened with mode `{mode}`: they can be read, or written from the start")
        if mode == "xb" and self.exists(path):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        if mode == "rb" and self.info(path)["type"] == "directory":
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        size = {} if block_size is None else {"block_size": block_size}
        return PfsFile(self, path, mode, autocommit=autocommit, cache_options=cache_options, **size, **options)


class PfsFile(AbstractBufferedFile):
    """A file that is read in ranges, or written to a temporary file and published when it is closed.

    A `with` block over the result of the file system's `open` publishes nothing if it ends with an exception.
    """

    def _fetch_range(self, start: int, end: int) -> bytes:
        files = self.fs.client.files
        with _as_os_errors(self.path):
            data = files.read(self.path, start, end)
            now = files.stat(self.path).version
        if now != self.details["version"]:
            raise OSError(errno.ESTALE, "the file was changed while it was read; open it again", self.path)
        return data

    def _initiate_upload(self) -> None:
        self._written = tempfile.NamedTemporaryFile(prefix="paddlecloud-")

    def _upload_chunk(self, final: bool = False) -> bool:
        self._written.write(self.buffer.getbuffer())
        if final and self.autocommit:
            self.commit()
        return True

    def commit(self) -> None:
        """Publishes what was written; until then the old file stays."""
        self._written.flush()
        overwrite = "x" not in self.mode
        with self._written, _as_os_errors(self.path):
            done = self.fs.client.files.upload(self._written.name, self.path, overwrite=overwrite, checksum=True)
        if not overwrite and not done.transferred:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), self.path)

    def discard(self) -> None:
        """Discards what was written."""
        if (written := getattr(self, "_written", None)) is not None:
            written.close()

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if kind is not None and self.writable() and not self.closed:
            self.discard()
            self.closed = True
        self.close()


def _described(path: str, found: views.FileInfo) -> dict[str, Any]:
    return {
        "name": path,
        "size": found.size if found.kind == "file" else 0,
        "type": _TYPES.get(found.kind, "other"),
        "mtime": found.mtime,
        "islink": found.kind == "link",
        "destination": found.target,
        "version": found.version,
    }


def _report_progress(callback: Any, size: int) -> None:
    callback.set_size(size)
    callback.absolute_update(size)


@contextmanager
def _as_os_errors(path: str | None) -> Iterator[None]:
    """What the server says about a path, as the exceptions of files that users of fsspec expect."""
    try:
        yield
    except errors.NotFoundError as error:
        raise FileNotFoundError(errno.ENOENT, error.message, path) from error
    except (errors.ForbiddenError, errors.UnauthorizedError) as error:
        raise PermissionError(errno.EACCES, str(error), path) from error
    except errors.RefusedError as error:
        raise OSError(errno.EINVAL, str(error), path) from error
