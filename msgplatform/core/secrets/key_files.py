"""The files in STATE_DIR that hold SECRET_KEY and ENCRYPTION_KEY where no variable does, and names
of keys. Settings read the files, so this module is for the time before Django starts."""

import base64
import hashlib
import os
import secrets
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from msgplatform import env
from msgplatform.core.servers.private_server import claim_state_directory


def fingerprint(key: str) -> str:
    """A name of a key. The name does not reveal the key, which has 256 random bits."""
    return hashlib.sha256(f"msgplatform: {key}".encode()).hexdigest()[:16]


def make_missing() -> None:
    """Make the files that are missing, and say so on standard error. Raises OSError, and
    ServerFailed if STATE_DIR is a folder of others."""
    _make("SECRET_KEY", lambda: secrets.token_urlsafe(50))
    # The form of Fernet's keys.
    _make("ENCRYPTION_KEY", lambda: base64.urlsafe_b64encode(os.urandom(32)).decode())


def _make(variable: str, new_key: Callable[[], str]) -> None:
    if os.environ.get(variable) or os.environ.get(f"{variable}_FILE"):
        return
    path = env.state_dir() / variable.lower()
    if path.exists():
        return
    claim_state_directory(path.parent)
    descriptor, new_path = tempfile.mkstemp(dir=path.parent)  # mode 0600
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(new_key() + "\n")
            file.flush()
            os.fsync(file.fileno())  # what is encrypted with it must not outlive it
        os.link(new_path, path)  # never a half-written key, and never a second one
        sys.stderr.write(f"A new {variable} is in {path}.\n")
    except FileExistsError:
        pass
    finally:
        Path(new_path).unlink()
