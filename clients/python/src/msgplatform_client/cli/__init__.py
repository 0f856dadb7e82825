"""The command line `msgp`, for people who are not on the platform's server.

profiles     addresses and keys that are kept from one call to the next
session      which platform a command talks to, and with which key
output       lines for people, or JSON for programs; errors as one sentence
exits        exit codes
commands     the program: every command with its options

It is in the package's extra `cli`, so that the plain client needs none of its libraries.
"""

from __future__ import annotations

import sys


def main() -> None:
    """The entry point `msgp`."""
    try:
        from .commands import run
    except ModuleNotFoundError as error:
        sys.exit(
            f"msgp needs {error.name}, which is not installed. The client without its command line "
            "is: install the wheel with its extra, pip install 'msgplatform_client-….whl[cli]'."
        )
    run()
