"""What can go wrong, and the Python exceptions that it is also one of."""

from __future__ import annotations

from rcbox._rcbox import StoreError


class RcboxError(Exception):
    """Everything that this package raises about a store. The text says what to do.

    ``status`` is the store's answer (``"WRONG_VERSION"``), or what is wrong here (``"TIMEOUT"``).
    ``version`` is the object's present version where the answer tells it, else 0.
    """

    status: str
    version: int

    def __init__(self, text: str, status: str = "", version: int = 0) -> None:
        super().__init__(text)
        self.text = text
        self.status = status
        self.version = version

    def __str__(self) -> str:  # a KeyError would show the text in quotes
        return self.text

    def __reduce__(self) -> tuple[type[RcboxError], tuple[str, str, int]]:
        return type(self), (self.text, self.status, self.version)


class ObjectDoesntExist(RcboxError, KeyError):
    """There is no object with this key."""


class TableDoesntExist(RcboxError, LookupError):
    """There is no such table (any more)."""


class ObjectExists(RcboxError):
    """``if_absent`` was asked for, and the object is there; ``version`` is its version."""


class WrongVersion(RcboxError):
    """The object has another version than was asked for; ``version`` says which."""


class InvalidObject(RcboxError, ValueError):
    """The value cannot be incremented: it has not 8 bytes."""


class NoTableSpace(RcboxError):
    """The memory of a server is full. Reads and removes go on."""


class Unimplemented(RcboxError, NotImplementedError):
    """This store does not serve that."""


class Timeout(RcboxError, TimeoutError):
    """Not over in time. It may have taken effect all the same."""


class Unreachable(RcboxError, ConnectionError):
    """No connection to the server that was named."""


class InvalidArgument(RcboxError, ValueError):
    """It cannot be asked for; the text says why."""


class TooManyOperations(RcboxError):
    """4096 operations are under way: wait for some of them."""


class Closed(RcboxError):
    """The client was closed, or was made by another process."""


_CLASSES: dict[str, tuple[type[RcboxError], str]] = {
    "OBJECT_DOESNT_EXIST": (ObjectDoesntExist, "there is no such object"),
    "TABLE_DOESNT_EXIST": (TableDoesntExist, ""),
    "OBJECT_EXISTS": (ObjectExists, "the object is there already"),
    "WRONG_VERSION": (WrongVersion, "somebody changed the object; read it again and retry with its version"),
    "INVALID_OBJECT": (InvalidObject, "only values of 8 bytes can be incremented"),
    "NO_TABLE_SPACE": (NoTableSpace, ""),
    "UNIMPLEMENTED_REQUEST": (Unimplemented, ""),
    "TIMEOUT": (Timeout, ""),
    "UNREACHABLE": (Unreachable, ""),
    "INVALID": (InvalidArgument, ""),
    "INVALID_PARAMETER": (InvalidArgument, "the store's log says which parameter and why"),
    "REQUEST_FORMAT_ERROR": (InvalidArgument, "the store cannot read this request"),
    "REQUEST_TOO_LARGE": (InvalidArgument, ""),
    "TOO_MANY_OPERATIONS": (TooManyOperations, ""),
    "CLOSED": (Closed, ""),
    "FORKED": (Closed, ""),
}


def of_store(error: StoreError, about: str) -> RcboxError:
    """The exception that users see; ``about`` says what it was about."""
    status, version, text = error.args
    kind, advice = _CLASSES.get(status, (RcboxError, ""))
    parts = [part for part in (about, text, advice) if part]
    return kind(": ".join(parts), status, version)
