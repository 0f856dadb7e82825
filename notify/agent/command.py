"""Builds an Agent from what its command was told."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from msgplatform.core.errors import InvalidInput
from msgplatform.core.http import destinations
from notify.agent.client import IntakeClient
from notify.agent.metrics import Figures
from notify.agent.relay import TIMEOUT_SECONDS, Relay
from notify.agent.store import Store, add_database


def key_source(path: Path | None, given: str) -> Callable[[], str]:
    """Where the API key comes from. A file is read again and again: a key can be replaced.

    Raises InvalidInput when there is none.
    """
    if path is None:
        if not given:
            raise InvalidInput("no API key: name a file, or set AGENT_API_KEY", "key-file")
        return lambda: given
    read = path.read_text
    try:
        if not read(encoding="utf-8").strip():
            raise InvalidInput(f"{path} is empty", "key-file")
    except (OSError, UnicodeDecodeError):
        raise InvalidInput(
            f"{path} is not a text file that this user can read", "key-file"
        ) from None
    return lambda: read(encoding="utf-8").strip()


def build(
    *, database: str, intake: str, key: Callable[[], str], batch: int, name: str, metrics: str
) -> Relay:
    """An Agent that has not connected to anything yet. Raises InvalidInput."""
    try:
        destinations.parse(intake)
    except InvalidInput as error:
        raise InvalidInput(str(error), "intake") from None
    if not database:
        raise InvalidInput("name the business system's database", "database")
    store = Store(add_database(database))
    figures = Figures()
    if metrics:
        figures.serve(*_listen(metrics))
    return Relay(store, IntakeClient(intake, key, TIMEOUT_SECONDS), batch, name, figures)


def _listen(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise InvalidInput("use HOST:PORT, such as 127.0.0.1:9464", "metrics")
    return host.strip("[]"), int(port)
