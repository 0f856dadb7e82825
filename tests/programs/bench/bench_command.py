"""`manage.py bench`, as a user calls it."""

import json
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command


def bench(
    name: str, *arguments: str, environment: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """The result of one run of a bench. Raises CommandError when there is none."""
    output = StringIO()
    with sigterm_as_before(), pytest.MonkeyPatch.context() as patch:
        for variable, value in (environment or {}).items():
            patch.setenv(variable, value)
        call_command("bench", name, "--json", "--runs", "1", *arguments, stdout=output)
    result: dict[str, Any] = json.loads(output.getvalue())
    return result


@contextmanager
def sigterm_as_before() -> Iterator[None]:
    """The command takes SIGTERM for Ctrl-C in its process, which is that of the tests here."""
    handler = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, handler)


def measured_or_left_out(result: Mapping[str, Any]) -> set[str]:
    """The references of a result. Only what cannot be installed, as without a network, may be left
    out, and the result says so."""
    left_out: dict[str, str] = result.get("left_out", {})
    assert all("installed" in reason for reason in left_out.values()), left_out
    return {*result["against"], *left_out}
