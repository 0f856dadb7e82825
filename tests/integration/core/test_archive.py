"""The router of the cold store: a model says itself where its table is."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from django.apps import apps
from django.db import connection, models, router
from django.db.migrations.state import ModelState, StateApps

from msgplatform.core.archive.router import ColdModel
from tests.servers import Servers
from tests.support.archive_support import cold_database

pytestmark = [pytest.mark.both_databases, pytest.mark.django_db(transaction=True)]


@pytest.fixture
def added() -> Iterator[type[models.Model]]:
    """A model that a flow has added to its own; the router has never heard of it."""

    class ColdNote(ColdModel):
        class Meta:
            app_label = "gateway"
            db_table = "cold_note"

    yield ColdNote
    del apps.all_models["gateway"]["coldnote"]
    apps.clear_cache()


def places(model: type[models.Model]) -> tuple[str, str, list[str]]:
    """Where it is read, written and migrated."""
    aliases = [alias for alias in ("default", "cold") if router.allow_migrate_model(alias, model)]
    return router.db_for_read(model), router.db_for_write(model), aliases


def test_a_model_that_says_so_lives_in_the_cold_store(
    added: type[models.Model], servers: Servers, tmp_path: Path
) -> None:
    assert places(added)[:2] == ("default", "default")
    assert router.allow_migrate_model("default", added)
    server = servers.mariadb() if connection.vendor == "mysql" else None
    with cold_database(tmp_path, server):
        assert places(added) == ("cold", "cold", ["cold"])
        state = ModelState.from_model(added)
        historical = state.render(StateApps([], {}))
        assert not issubclass(historical, ColdModel)
        assert places(historical) == ("cold", "cold", ["cold"])
        for model in (apps.get_model("gateway", "SgipMt"), apps.get_model("notify", "BizMsg")):
            assert places(model) == ("default", "default", ["default"])
