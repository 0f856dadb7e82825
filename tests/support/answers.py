"""What Django's test client answers with."""

from collections.abc import Iterator
from typing import Any, Protocol


class Answer(Protocol):
    """A response that can be read as JSON, too."""

    status_code: int
    content: bytes
    headers: Any
    cookies: Any
    streaming: bool

    def json(self) -> Any: ...

    def has_header(self, header: str) -> bool: ...

    def __getitem__(self, header: str) -> str: ...

    def __iter__(self) -> Iterator[bytes]: ...
