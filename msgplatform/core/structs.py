"""Structs of msgspec are made ready before a program has threads.

The first decoding of a class collects the types of its fields, and msgspec (0.22) shows the class
to other threads before that is complete: one that decodes the same class meanwhile reads a null
pointer, and the process is gone. With a class in a field the time in between is long enough to be
met.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import msgspec


def prepare() -> int:
    """Make every class ready that is imported by now, and can be decoded; returns their number.
    Call it in the one thread that a program has at its start."""
    count = 0
    for each in _subclasses(msgspec.Struct):
        # A class that is never decoded may have fields of types that JSON cannot tell apart, or
        # that only a type checker knows.
        with suppress(TypeError, NameError):
            msgspec.json.Decoder(each)
            count += 1
    return count


def _subclasses(parent: type[msgspec.Struct]) -> Iterator[type[msgspec.Struct]]:
    for each in parent.__subclasses__():
        yield each
        yield from _subclasses(each)
