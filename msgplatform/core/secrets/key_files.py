"""STATE_DIR, its files that hold SECRET_KEY and ENCRYPTION_KEY where no variable does, and names of
keys. Settings read the files, so this module is for the time before Django starts."""

import base64
import hashlib
import os
import secrets
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from msgplatform import env
from msgplatform.core.servers.private_server import ServerFailed, private_directory

# Files and folders in STATE_DIR, by the beginnings of their names; the last two are in a new home
# folder and on a disk of its own.
_STATE_NAMES = (
    "audit_signing_key", "demo", "encryption_key", "erasures.jsonl", "last_backup", "logs",
    "msgplatform.db", "redis-", "run", "secret_key", "smg-simulator", "static", ".", "lost+found",
)  # fmt: skip


def fingerprint(key: str) -> str:
    """A name of a key. The name does not reveal the key, which has 256 random bits."""
    return hashlib.sha256(f"msgplatform: {key}".encode()).hexdigest()[:16]


def claim_state_directory(path: Path) -> Path:
    """Make STATE_DIR a private directory. Raises ServerFailed, and changes nothing, if other users
    may enter the folder and it holds more than the platform's files: /var would be closed."""
    # `var` of a clone belongs to nobody else, whatever its tools keep there.
    if path.is_dir() and path.stat().st_mode & 0o077 and path != env.BASE_DIR / "var":
        for entry in path.iterdir():
            if not entry.name.startswith(_STATE_NAMES):
                raise ServerFailed(
                    f"{path} holds {entry.name}, and other users may enter it. The platform needs "
                    "a folder for itself: name one in STATE_DIR, or close this one to others: "
                    f"chmod 700 {path}"
                )
    return private_directory(path)


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
