"""What a database does in its own way stands in the engines, and nowhere else in the product."""

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.db import NotSupportedError

from msgplatform.core.data import engines
from msgplatform.core.data.engines.contract import Engine, Fault

ROOT = Path(__file__).resolve().parents[3]
PACKAGES = ("msgplatform", "notify", "gateway", "crmsync")
ENGINES = ROOT / "msgplatform" / "core" / "data" / "engines"
# The app that a business system installs knows nothing of the platform; errors have no connection.
ALLOWED = {
    "notify/agent/schema.py",
    "msgplatform/core/data/transactions.py",
}
OF_VENDORS = {"vendor", "mysql_is_mariadb", "mysql_version", "mysql_server_data", "is_mysql"}
DRIVERS = {"MySQLdb", "sqlite3", "django.db.backends.mysql", "django.db.backends.sqlite3"}


def looks_at_a_vendor(tree: ast.AST) -> Iterator[int]:
    own = "msgplatform.core.data.engines"
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in OF_VENDORS:
            yield node.lineno
        elif isinstance(node, ast.ImportFrom | ast.Import):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += [f"{names[0]}.{a.name}" if names else a.name for a in node.names]
            is_of_one = any(
                name.startswith((f"{own}.{word}", word))
                for name in names
                for word in ("mysql", "mariadb", "sqlite")
            )
            if is_of_one or any(name.startswith(driver) for name in names for driver in DRIVERS):
                yield node.lineno


def test_no_other_module_looks_at_the_vendor() -> None:
    places = [
        f"{path.relative_to(ROOT)}:{line}"
        for package in PACKAGES
        for path in sorted((ROOT / package).rglob("*.py"))
        if ENGINES not in path.parents and str(path.relative_to(ROOT)) not in ALLOWED
        for line in looks_at_a_vendor(ast.parse(path.read_text()))
    ]
    assert places == []


@pytest.mark.parametrize(
    "text",
    [
        "x = connection.vendor",
        "connection.mysql_is_mariadb",
        "from msgplatform.core.data.engines.mysql import error_codes",
        "from msgplatform.core.data.engines import sqlite",
        "import MySQLdb",
        "from sqlite3 import connect",
    ],
)
def test_the_contract_sees_each_way_to_look(text: str) -> None:
    assert list(looks_at_a_vendor(ast.parse(text))) == [1]


def test_every_promise_has_a_test() -> None:
    suite = "".join(path.read_text() for path in (ROOT / "tests" / "engines").glob("*.py"))
    promises = [name for name, _ in inspect.getmembers(Engine, inspect.isfunction)
                if not name.startswith("_")]  # fmt: skip
    # `sql` writes with these, and the suite through `sql`.
    through = {"keep": "insert_or_keep", "upsert": "insert_or_update", "new_value": "add_counters",
               "equals": "of_one"}  # fmt: skip
    words = set(re.findall(r"\.(\w+)", suite))
    untested = [name for name in promises if through.get(name, name) not in words]
    assert untested == []


def test_another_database_is_refused_by_name() -> None:
    class Connection:
        vendor = "postgresql"

    with pytest.raises(NotSupportedError, match="MariaDB, MySQL and SQLite"):
        engines.of_connection(Connection())


@pytest.mark.parametrize(
    ("error", "fault"),
    [
        (Exception(1045, "Access denied"), Fault.REFUSED),
        (Exception(1049, "Unknown database"), Fault.NO_DATABASE),
        (Exception(2003, "Can't connect"), Fault.UNREACHABLE),
        (Exception(2013, "Lost connection"), Fault.LOST),
        (Exception(4031, "disconnected by the server because of inactivity"), Fault.LOST),
        (Exception(3572, "Statement aborted: NOWAIT"), Fault.LATER),
        (Exception(1047, "WSREP has not yet prepared node"), Fault.LATER),
        (Exception(1665, "impossible to write to binary log"), Fault.LOG_FORMAT),
        (Exception(1062, "Duplicate entry"), Fault.VALUE),
        (Exception(9999, "not known"), Fault.OTHER),
        (Exception("no such table: x"), Fault.NO_TABLE),
        (Exception("not known"), Fault.OTHER),
        (Exception(), Fault.OTHER),
    ],
)
def test_errors_mean_the_same_by_number_and_by_text(error: Exception, fault: Fault) -> None:
    assert engines.fault(error) is fault
