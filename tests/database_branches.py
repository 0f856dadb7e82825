"""A pytest plugin: code that does something else on another database is tested on each.

The mark `both_databases` is for a file whose tests reach such code. In tests/integration it runs
on MariaDB and on SQLite (`scripts/run_tests.py`); a file elsewhere has both itself. Each process
leaves behind, in a file beside TEST_RECORD, in which places its marked tests asked for the engine
of a database: lines of vendor, path and number of the line. `scripts/run_tests.py` fails for a
place that was not reached on both. Paths of modules that only the programs reach which a file's
tests start are arguments of the mark.
"""

import inspect
import os
from collections.abc import Generator
from pathlib import Path
from types import FrameType

import pytest
from django.utils import connection

from tests.records import record_file

ROOT = Path(__file__).resolve().parents[1]
PROXY = connection.__file__
ENGINES = str(ROOT / "msgplatform" / "core" / "data" / "engines" / "__init__.py")
MARK = "both_databases"


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", f"{MARK}: reaches code that branches by database")
    if file := record_file():
        config.pluginmanager.register(Branches(file))


def _caller(frame: FrameType | None) -> FrameType:
    assert frame
    assert frame.f_back
    return frame.f_back


class Branches:
    def __init__(self, record: Path) -> None:
        # Not at the import of this plugin: tests.servers sets what Django's settings read.
        from django.db.backends.mysql.base import DatabaseWrapper as MySql
        from django.db.backends.sqlite3.base import DatabaseWrapper as Sqlite

        self._file = record.with_suffix(f".{os.getpid()}.branches")
        self._is_marked = False
        self._program_modules: set[str] = set()
        self._places: set[tuple[str, str, int]] = set()
        self._vendors = (MySql.vendor, Sqlite.vendor)
        for wrapper in (MySql, Sqlite):
            wrapper.vendor = self._reporting(wrapper.vendor)  # type: ignore[assignment]  # asks nobody else

    def _reporting(self, vendor: str) -> property:
        def read(_connection: object) -> str:
            if self._is_marked:
                caller = _caller(inspect.currentframe())
                # The proxy is that of `django.db.connection`.
                while caller.f_code.co_filename in (PROXY, ENGINES):
                    caller = _caller(caller)
                self._places.add((vendor, caller.f_code.co_filename, caller.f_lineno))
            return vendor

        return property(read)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        marks = list(item.iter_markers(MARK))
        self._is_marked = bool(marks)
        self._program_modules.update(path for mark in marks for path in mark.args)
        result = yield
        self._is_marked = False
        return result

    def pytest_sessionfinish(self) -> None:
        lines = [
            f"{vendor} {Path(file).relative_to(ROOT)} {line}\n"
            for vendor, file, line in sorted(self._places)
            if Path(file).is_relative_to(ROOT)
        ]
        lines += [
            f"{vendor} {path} *\n"
            for vendor in self._vendors
            for path in sorted(self._program_modules)
        ]
        self._file.write_text("".join(lines))
