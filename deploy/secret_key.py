"""Make the files that hold SECRET_KEY and ENCRYPTION_KEY, unless configured or there already."""

import base64
import os
import secrets
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def encryption_key() -> str:
    """As Fernet makes it."""
    return base64.urlsafe_b64encode(os.urandom(32)).decode()


def make(variable: str, new: Callable[[], str]) -> None:
    if os.environ.get(variable) or os.environ.get(f"{variable}_FILE"):
        return
    path = Path(os.environ.get("STATE_DIR") or ROOT / "var") / variable.lower()
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if path.exists():
        return
    descriptor, unfinished = tempfile.mkstemp(dir=path.parent)  # mode 0600
    with os.fdopen(descriptor, "w") as file:
        file.write(new() + "\n")
        file.flush()
        os.fsync(file.fileno())  # what is encrypted with it must not outlive it
    try:
        os.link(unfinished, path)  # never a half-written key, and never a second one
        print(f"A new {variable} is in {path}.", file=sys.stderr)
    except FileExistsError:
        pass
    finally:
        Path(unfinished).unlink()


if __name__ == "__main__":
    make("SECRET_KEY", lambda: secrets.token_urlsafe(50))
    make("ENCRYPTION_KEY", encryption_key)
