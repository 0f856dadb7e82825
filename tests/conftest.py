from __future__ import annotations

import pytest


@pytest.fixture(scope="session")
def django_db_modify_db_settings() -> None:
    """Each process of `pytest -n` has servers of its own, so databases keep their names: a child
    process finds what the test sees by DATABASE_URL."""
