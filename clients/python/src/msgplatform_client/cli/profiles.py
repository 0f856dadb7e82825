"""Profiles: platforms that somebody has logged in to, each with its address and key.

They are in one file that only its owner can read, in the folder that the operating system has for
settings of programs.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from platformdirs import user_config_path

from .exits import Exit, Failure

if sys.platform != "win32":
    import fcntl

DEFAULT = "default"


@dataclass(frozen=True)
class Profile:
    """An address and a key. The key is in no `repr`, so that no message can show it."""

    url: str
    key: str

    def __repr__(self) -> str:
        return f"Profile({self.url})"


def file() -> Path:
    """The file of all profiles."""
    return user_config_path("msgp", appauthor=False) / "profiles.json"


def load() -> dict[str, Profile]:
    """Profiles by name. Raises Failure when the file cannot be read."""
    try:
        document = json.loads(file().read_text(encoding="utf-8"))
        return {name: Profile(each["url"], each["key"]) for name, each in document.items()}
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise Failure(f"{file()} cannot be read: {error.strerror}.") from error
    except (ValueError, TypeError, KeyError, AttributeError):
        raise Failure(f"{file()} is no file of msgp: remove it, and log in again.") from None


def named(name: str) -> Profile:
    """The profile with this name. Raises Failure."""
    profile = load().get(name)
    if profile is None:
        raise Failure(
            f"There is no profile {name}: run `msgp login --profile {name}`.", Exit.FORBIDDEN
        )
    return profile


def keep(name: str, profile: Profile) -> None:
    """Store a profile, in the place of one with the same name."""
    with _changing() as profiles:
        profiles[name] = profile


def drop(name: str) -> None:
    """Forget a profile. Raises Failure when there is none."""
    with _changing() as profiles:
        if profiles.pop(name, None) is None:
            raise Failure(f"There is no profile {name}.", Exit.FORBIDDEN)


@contextmanager
def _changing() -> Iterator[dict[str, Profile]]:
    """The profiles; what the caller does with them is stored as a whole, or not at all."""
    try:
        file().parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _lock(file().parent):
            profiles = load()
            yield profiles
            text = json.dumps({name: asdict(each) for name, each in profiles.items()}, indent=1)
            # mkstemp makes files that their owner alone can read.
            number, path = tempfile.mkstemp(dir=file().parent)
            try:
                with os.fdopen(number, "w", encoding="utf-8") as new:
                    new.write(text)
                Path(path).replace(file())
            finally:
                Path(path).unlink(missing_ok=True)  # it has keys
    except OSError as error:
        raise Failure(f"{file()} cannot be written: {error.strerror}.") from error


@contextmanager
def _lock(folder: Path) -> Iterator[None]:
    """Keeps other programs from changing the profiles meanwhile, where folders can be locked: not
    on Windows, nor on some network disks."""
    if sys.platform == "win32":
        yield
        return
    number = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):
            fcntl.flock(number, fcntl.LOCK_EX)
        yield
    finally:
        os.close(number)
