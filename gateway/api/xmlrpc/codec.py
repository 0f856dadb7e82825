"""XML-RPC's bytes: read with bounds on depth, without DTD and entities; written by the library."""

from __future__ import annotations

import re
import xmlrpc.client
from datetime import UTC, datetime
from typing import Any

from defusedxml.common import DefusedXmlException  # type: ignore[import-untyped]
from defusedxml.xmlrpc import DefusedExpatParser  # type: ignore[import-untyped]

from gateway.api.xmlrpc import faults

# A level of arrays or structs takes three or four elements; no method takes more than two levels.
MAX_DEPTH = 24
# What XML 1.0 cannot carry (§2.2), and the library writes nevertheless; a handset may send it.
_FORBIDDEN = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


class _Unmarshaller(xmlrpc.client.Unmarshaller):
    def __init__(self) -> None:
        super().__init__(use_datetime=True)
        self._depth = 0

    # Called by the parser for each element, so that a body that is too deep is not read to its end.
    def start(self, tag: str, attrs: Any) -> None:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise ValueError(f"it is nested more than {MAX_DEPTH} elements deep")
        super().start(tag, attrs)

    def end(self, tag: str) -> None:
        self._depth -= 1
        super().end(tag)


def read_call(body: bytes) -> tuple[str, list[Any]]:
    """The method's name and its parameters; times are aware. Raises Fault."""
    target = _Unmarshaller()
    parser = DefusedExpatParser(target, forbid_dtd=True)
    try:
        parser.feed(body)
        parser.close()
        parameters: Any = target.close()
        name = target.getmethodname()
    except DefusedXmlException:
        raise faults.Fault(faults.NOT_XML, "DTDs and entities are not read here.") from None
    except Exception as error:  # noqa: BLE001 - the library raises what it likes
        why = str(error) or type(error).__name__
        raise faults.Fault(faults.NOT_XML, f"This is no XML-RPC call: {why[:200]}") from None
    if not name:
        raise faults.Fault(faults.NOT_XML, "This is no XML-RPC call: it names no method.")
    return name, [_aware(value) for value in parameters]


def _aware(value: Any) -> Any:
    """XML-RPC's times say no zone: ours are UTC. Depth is bounded by the parser."""
    if isinstance(value, datetime):
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value
    if isinstance(value, list):
        return [_aware(item) for item in value]
    if isinstance(value, dict):
        return {name: _aware(item) for name, item in value.items()}
    return value


def answer(value: Any) -> bytes:
    """The body of a response with one value."""
    return xmlrpc.client.dumps((_writable(value),), methodresponse=True).encode()


def fault(error: faults.Fault) -> bytes:
    """The body of a response with a fault."""
    fault_value = xmlrpc.client.Fault(error.code, error.text)
    return xmlrpc.client.dumps(fault_value, methodresponse=True).encode()


def _writable(value: Any) -> Any:
    """Without the characters that would make the answer no XML."""
    if isinstance(value, str):
        return _FORBIDDEN.sub("\ufffd", value)
    if isinstance(value, list):
        return [_writable(item) for item in value]
    if isinstance(value, dict):
        return {name: _writable(item) for name, item in value.items()}
    return value
