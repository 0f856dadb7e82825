"""Style sheets, scripts and images: once they are collected, they are compressed and have names
that change with their content."""

import hashlib
from os import PathLike
from pathlib import Path
from typing import Any

from django.conf import settings
from django.contrib.staticfiles.finders import get_finders
from django.core.management import call_command
from whitenoise.compress import Compressor
from whitenoise.middleware import WhiteNoiseMiddleware
from whitenoise.storage import CompressedManifestStaticFilesStorage

# large files that no page uses
_UNUSED = ("redoc", "rest_framework")


class HashedStaticFiles(CompressedManifestStaticFilesStorage):  # type: ignore[misc]  # untyped
    """A file that was not collected keeps its plain name: no page fails without it."""

    def create_compressor(self, **options: Any) -> Compressor:
        options["extensions"] = (*Compressor.SKIP_COMPRESS_EXTENSIONS, "map")
        return super().create_compressor(**options)

    def stored_name(self, name: str) -> str:
        try:
            return str(super().stored_name(name))
        except ValueError:
            return name


class StaticFilesMiddleware(WhiteNoiseMiddleware):  # type: ignore[misc]  # untyped
    """Serves the collected files, if there are any, and the files in the packages."""

    def add_files(self, root: str | PathLike[str], prefix: str | None = None) -> None:
        if Path(root).is_dir():
            super().add_files(root, prefix)


def collect() -> None:
    """Collect static files into STATIC_ROOT, unless it was collected from the same files."""
    mark = Path(settings.STATIC_ROOT) / ".collected"
    current = fingerprint()
    if mark.is_file() and mark.read_text(encoding="utf-8") == current:
        return
    call_command(
        "collectstatic", interactive=False, clear=True, ignore_patterns=list(_UNUSED), verbosity=0
    )
    mark.write_text(current, encoding="utf-8")


def fingerprint() -> str:
    """A hash of the names, sizes and times of all packages' static files."""
    digest = hashlib.sha256()
    for finder in get_finders():
        for name, storage in finder.list([]):
            status = Path(storage.path(name)).stat()
            digest.update(f"{name} {status.st_size} {status.st_mtime_ns}\n".encode())
    return digest.hexdigest()
