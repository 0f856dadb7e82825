"""Prepare msgspec's structs before a program has threads.

The first decoding of a class collects the types of its fields, and msgspec (0.22) shows the class
to other threads before the types are complete: a thread that decodes the same class meanwhile reads
a null pointer, and the process crashes. This happens with classes that have a class in a field.
"""

from collections.abc import Iterator
from contextlib import suppress

import msgspec


def prepare() -> None:
    """Prepare every imported class that can be decoded. Call this at the start of a program, in its
    only thread."""
    for struct in _subclasses(msgspec.Struct):
        # A class that is never decoded may have types that JSON cannot tell apart, or that only a
        # type checker knows.
        with suppress(TypeError, NameError):
            msgspec.json.Decoder(struct)


def _subclasses(parent: type[msgspec.Struct]) -> Iterator[type[msgspec.Struct]]:
    for struct in parent.__subclasses__():
        yield struct
        yield from _subclasses(struct)
