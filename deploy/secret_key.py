"""Make the file that holds SECRET_KEY, unless one is configured or there already."""

import os
import secrets
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def main() -> None:
    if os.environ.get("SECRET_KEY") or os.environ.get("SECRET_KEY_FILE"):
        return
    path = Path(os.environ.get("STATE_DIR") or ROOT / "var") / "secret_key"
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if path.exists():
        return
    descriptor, unfinished = tempfile.mkstemp(dir=path.parent)  # mode 0600
    with os.fdopen(descriptor, "w") as file:
        file.write(secrets.token_urlsafe(50) + "\n")
    try:
        os.link(unfinished, path)  # never a half-written key, and never a second one
        print(f"A new secret key is in {path}.", file=sys.stderr)
    except FileExistsError:
        pass
    finally:
        os.unlink(unfinished)


if __name__ == "__main__":
    main()
