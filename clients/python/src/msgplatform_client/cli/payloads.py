"""Payloads and events as somebody has typed them, or has them in a file.

They go to the platform as they were written: a number keeps its digits.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

from ..events import MAX_BATCH_BYTES, MAX_BATCH_ITEMS, new_key
from .exits import Exit, Failure

_FIELDS = {"event_type", "payload", "idempotency_key", "channel"}
_DECODER = json.JSONDecoder()


def read_text(file: str) -> str:
    """A file's content, that of standard input for '-'. Raises Failure."""
    try:
        data = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
        return data.decode("utf-8-sig")
    except OSError as error:
        raise Failure(f"{file} cannot be read: {error.strerror}.", Exit.USAGE) from error
    except UnicodeDecodeError:
        raise Failure(f"{file} is not UTF-8.", Exit.USAGE) from None


def parse(text: str, name: str) -> Any:
    """The JSON of a text; `name` says in a message which text it is. Raises Failure."""
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        raise Failure(f"{name} is not JSON: {error.msg} ({place}).", Exit.USAGE) from None
    except (ValueError, RecursionError) as error:
        raise Failure(f"{name} is not JSON: {error}.", Exit.USAGE) from None


def request(event_type: str, payload: str, key: str, channel: str) -> str:
    """The body of an event to be published; `payload` is its JSON."""
    fields = {"event_type": event_type, "idempotency_key": key or new_key()}
    if channel:
        fields["channel"] = channel
    return f'{json.dumps(fields)[:-1]}, "payload": {payload}}}'


def requests_of_lines(text: str, event_type: str, channel: str) -> list[str]:
    """The body of each line: of an event, or of a payload when the event type is the same for all.
    Raises Failure that names the line."""
    bodies = []
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            name = f"Line {number}"
            event = parse(line, name)
            if event_type:
                bodies.append(request(event_type, line, "", channel))
            else:
                bodies.append(_request_of_event(event, line, name, channel))
    return bodies


def batches(bodies: list[str]) -> Iterator[str]:
    """The bodies in their order, in requests that the platform takes."""
    batch: list[str] = []
    batch_bytes = 0
    for body in bodies:
        body_bytes = len(body.encode()) + 1
        if len(batch) == MAX_BATCH_ITEMS or (batch and batch_bytes + body_bytes > MAX_BATCH_BYTES):
            yield _joined(batch)
            batch, batch_bytes = [], 0
        batch.append(body)
        batch_bytes += body_bytes
    if batch:
        yield _joined(batch)


def texts_of_values(line: str) -> dict[str, str]:
    """The names in an object, which was read as JSON before, each with its value as written."""
    texts: dict[str, str] = {}
    place = _end_of_gap(line, line.index("{") + 1)
    while line[place] != "}":
        name, place = _DECODER.raw_decode(line, place)
        start = _end_of_gap(line, place)
        _value, place = _DECODER.raw_decode(line, start)
        texts[name] = line[start:place]
        place = _end_of_gap(line, place)
    return texts


def _request_of_event(event: Any, line: str, name: str, channel: str) -> str:
    if not isinstance(event, dict) or not {"event_type", "payload"} <= event.keys() <= _FIELDS:
        raise Failure(
            f"{name} is no event: write an object with event_type, payload and, if you like, "
            "idempotency_key and channel.",
            Exit.USAGE,
        )
    key, own_channel = event.get("idempotency_key") or "", event.get("channel") or channel
    return request(event["event_type"], texts_of_values(line)["payload"], key, own_channel)


def _end_of_gap(line: str, place: int) -> int:
    """Where the next name, value or closing brace begins."""
    while line[place] in " \t\r\n:,":
        place += 1
    return place


def _joined(batch: list[str]) -> str:
    return f'{{"messages": [{",".join(batch)}]}}'


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number of JSON")
