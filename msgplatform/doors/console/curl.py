"""A call as a command line."""

from __future__ import annotations

import shlex

from msgplatform.core.flows.page import Call


def command(call: Call, platform: str) -> str:
    """For a POSIX shell, an option on each line; `platform` is the address of this platform."""
    url = platform + call.url if call.url.startswith("/") else call.url
    headers = [f"-H {shlex.quote(f'{name}: {value}')}" for name, value in call.headers.items()]
    # Not --data, which reads a file when the body begins with @.
    body = [f"--data-raw {shlex.quote(call.body)}"] if call.body else []
    return " \\\n  ".join([f"curl -X {call.method} {shlex.quote(url)}", *headers, *body])
