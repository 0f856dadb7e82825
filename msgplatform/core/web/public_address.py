"""The address at which people reach the console, for programs beside `up`."""

from pathlib import Path

from django.conf import settings


def keep_served(url: str) -> None:
    """Tell other programs on this machine the address that `up` serves."""
    _file().write_text(url, encoding="utf-8")


def served_url() -> str:
    """PUBLIC_URL; without it the address of the platform that `up` started last, with the same
    STATE_DIR."""
    if not settings.PUBLIC_URL_SET and _file().exists():
        return _file().read_text(encoding="utf-8")
    return str(settings.PUBLIC_URL)


def _file() -> Path:
    return Path(settings.STATE_DIR) / "run" / "url"
