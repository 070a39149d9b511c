"""Errors of calls to a server, distinguished by what a program can do about them.

Every exception has `message`, `hints` (what a person can do), `code` (the HTTP status) and `error` (the stable
name, such as `"not-found"`); the last two are `None` if no server answered.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class PaddleCloudError(Exception):
    """The base class: a request was not carried out."""

    def __init__(
        self,
        message: str,
        *,
        hints: Sequence[str] = (),
        code: int | None = None,
        error: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.hints = tuple(hints)
        self.code = code
        self.error = error

    def __str__(self) -> str:
        return "\n".join([self.message, *(f"hint: {hint}" for hint in self.hints)])

    def __reduce__(self) -> tuple[Any, ...]:
        return _remade, (type(self), self.message, self.hints, self.code, self.error)


class ConfigError(PaddleCloudError):
    """The configuration, or a certificate it names, cannot be used."""


class PackageError(PaddleCloudError, ValueError):
    """A local file or folder cannot be used as a package or be uploaded."""


class UnreachableError(PaddleCloudError, ConnectionError):
    """The server was never reached."""


class NoServerError(UnreachableError):
    """No server is configured, and the embedded one cannot be started."""


class BrokenReplyError(PaddleCloudError, ConnectionError):
    """The server was reached, but its reply was incomplete or unreadable."""


class NotPossibleHere(PaddleCloudError):
    """This server cannot do what the job asks for."""


class JobFailedError(PaddleCloudError):
    """A job did not succeed. `job` is the job as it ended."""

    def __init__(self, message: str, *, job: object = None, **details: Any) -> None:
        super().__init__(message, **details)
        self.job = job


class TransferFailedError(PaddleCloudError, OSError):
    """Some files were not transferred; the others were. `failures` has the path and the reason of each."""

    def __init__(self, message: str, *, failures: Sequence[tuple[str, str]] = (), **details: Any) -> None:
        super().__init__(message, **details)
        self.failures = tuple(failures)


class RefusedError(PaddleCloudError):
    """The server refused the request."""


class BadRequestError(RefusedError, ValueError):
    """The request is malformed, or a field is wrong."""


class TooBigError(BadRequestError):
    """The job needs more than this server has."""


class DamagedError(RefusedError):
    """What arrived does not match its digest."""


class UnauthorizedError(RefusedError):
    """No token, a wrong one, or a wrong password."""


class ForbiddenError(RefusedError):
    """The caller is not allowed to do this."""


class QuotaExceededError(ForbiddenError):
    """The request exceeds the user's quota."""


class NotFoundError(RefusedError, LookupError):
    """No such job, worker, package or path, or not the caller's."""


class ConflictError(RefusedError):
    """The request conflicts with the current state."""


class NameTakenError(ConflictError):
    """The job name is still in use."""


class NotThereYetError(RefusedError, NotImplementedError):
    """Not available in this version of the server."""


class ServerFailedError(RefusedError):
    """The server is starting, stopping, overloaded or full, or had an internal error."""


_BY_NAME: dict[str | None, type[RefusedError]] = {
    "bad-request": BadRequestError,
    "too-big": TooBigError,
    "damaged": DamagedError,
    "unauthorized": UnauthorizedError,
    "forbidden": ForbiddenError,
    "quota-exceeded": QuotaExceededError,
    "not-found": NotFoundError,
    "conflict": ConflictError,
    "changing": ConflictError,
    "name-taken": NameTakenError,
    "package-missing": ConflictError,
    "not-there-yet": NotThereYetError,
    "unavailable": ServerFailedError,
    "storage-full": ServerFailedError,
    "internal": ServerFailedError,
}

_BY_KIND: dict[str, type[PaddleCloudError]] = {
    "config": ConfigError,
    "local": PackageError,
    "no-server": NoServerError,
    "unreachable": UnreachableError,
    "broken": BrokenReplyError,
}


def _made(
    kind: str, code: int | None, name: str | None, message: str, hints: Sequence[str]
) -> PaddleCloudError:
    """The exception for a failure that the native module found."""
    if kind == "refused":
        return _BY_NAME.get(name, RefusedError)(message, hints=hints, code=code, error=name)
    return _BY_KIND.get(kind, PaddleCloudError)(message, hints=hints)


def _remade(
    cls: type[PaddleCloudError], message: str, hints: Sequence[str], code: int | None, error: str | None
) -> PaddleCloudError:
    """An exception that comes back from another process."""
    return cls(message, hints=hints, code=code, error=error)
