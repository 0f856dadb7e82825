"""A platform that is a cell says so wherever people and programs look."""

import json
from logging import getLogger
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone
from prometheus_client.parser import text_string_to_metric_families

from crmsync.models import LandingPage
from crmsync.models.leads import new_appkey
from msgplatform.core import logging
from msgplatform.core.cells import Cell
from msgplatform.core.daemons import heartbeats
from msgplatform.core.daemons.heartbeats import Heartbeat
from msgplatform.core.data import cell_record, ids
from msgplatform.doors.api.access import keys
from msgplatform.models import Biz
from msgplatform.monitor import metrics
from msgplatform.operation import doctor
from notify.intake import intake
from tests.support.forms import form_class

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("work_redis")]


@pytest.fixture
def cell(settings: Any) -> Cell:
    settings.CELL = Cell(3, 16)
    settings.CELL_URLS = {5: "https://cell-5.example.com"}
    return Cell(3, 16)


def test_every_page_names_the_cell(cell: Cell, admin_client: Client, settings: Any) -> None:
    assert "Cell 3/16" in admin_client.get("/console/").content.decode()
    settings.OUTBOUND = False
    page = admin_client.get("/admin/msgplatform/biz/").content.decode()
    assert "Cell 3/16 · Outbound is off" in page
    settings.CELL, settings.OUTBOUND = Cell(), True
    assert "Cell " not in admin_client.get("/console/").content.decode()


def test_the_search_names_the_cell_of_an_id(cell: Cell, admin_client: Client) -> None:
    (of_other,) = ids.Block(ids.first_id_at(timezone.now()) >> ids.TICK_SHIFT, 1, 1).ids([0])
    other = of_other & ~15 | 5
    page = admin_client.get("/console/search", {"q": str(other)}).content.decode()
    assert f'href="https://cell-5.example.com/console/search?q={other}"' in page
    assert "an id of cell 5/16" in page
    nowhere = of_other & ~15 | 6
    page = admin_client.get("/console/search", {"q": str(nowhere)}).content.decode()
    assert "an id of cell 6/16; CELL_URLS has no address" in page
    for query in (str(of_other), "13800000000", "9" * 19, "order-1"):
        page = admin_client.get("/console/search", {"q": query}).content.decode()
        assert "an id of cell" not in page, query


def test_a_message_from_before_is_shown_and_not_sent_elsewhere(
    cell: Cell, admin_client: Client, settings: Any, ids_of_its_own: None
) -> None:
    settings.CELL = Cell()
    biz = Biz.objects.create(name="orders")
    events = [intake.Event(biz.pk, "order.paid", b"1", f"k{n}") for n in range(20)]
    before = [verdict.id for verdict in intake.publish_many(events) if verdict.id & 15 != 3]
    settings.CELL = cell
    page = admin_client.get("/console/search", {"q": str(before[0]), "all": "1"}).content.decode()
    assert "order.paid" in page
    assert "an id of cell" not in page


def test_every_metric_has_the_cell(cell: Cell, settings: Any) -> None:
    def labels() -> set[str | None]:
        families = text_string_to_metric_families(metrics.exposition().decode())
        return {sample.labels.get("cell") for family in families for sample in family.samples}

    assert labels() == {"3/16"}
    settings.CELL = Cell()
    assert labels() == {None}


def test_a_heartbeat_has_the_cell(cell: Cell) -> None:
    Heartbeat("maker").send()
    assert [beat.cell for beat in heartbeats.alive()] == ["3/16"]


def test_doctor_sees_another_cell_in_the_database_and_in_redis(cell: Cell, settings: Any) -> None:
    cell_record.write(cell)
    Heartbeat("maker").send()
    assert _findings() == [("ok", "cell 3/16")]
    settings.CELL = Cell(4, 16)
    (_own, database, redis) = _findings()
    assert database[0] == redis[0] == "bad"
    assert "belongs to cell 3/16, but this program has CELL=4/16" in database[1]
    assert redis[1] == "programs of another cell use this work Redis: 3/16"


def _findings() -> list[tuple[str, str]]:
    return [(each.level, each.what) for each in doctor.examine() if "cell " in each.what]


def test_each_line_of_a_log_has_the_cell(capsys: pytest.CaptureFixture[str]) -> None:
    root = getLogger()
    handlers, level = root.handlers[:], root.level
    try:
        logging.configure(as_json=True, cell="3/16")
        logging.get("test").warning("looked", n=1)
    finally:
        logging._facts.clear()
        root.handlers[:] = handlers
        root.setLevel(level)
    line = json.loads(capsys.readouterr().err.splitlines()[-1])
    assert (line["event"], line["cell"]) == ("looked", "3/16")


def test_new_keys_begin_with_the_cell_and_older_ones_are_as_good(cell: Cell, settings: Any) -> None:
    biz = Biz.objects.create(name="orders")
    settings.CELL = Cell()
    before_row, before = keys.create(biz, "before", ["events:write"])
    settings.CELL = cell
    row, plain = keys.create(biz, "after", ["events:write"])
    assert plain.startswith("mp_03")
    assert (len(before_row.prefix), len(row.prefix)) == (12, 14)
    for key in (before, plain):
        caller = keys.verify(key)
        assert caller is not None
        assert caller.biz_name == "orders"


def test_appkeys_begin_with_the_cell(cell: Cell) -> None:
    assert new_appkey().startswith("03-")
    biz = Biz.objects.create(name="orders")
    values = {
        "biz": biz.pk, "title": "Summer", "enabled": "on", "form_fields": "phone *", "language": "",
    }  # fmt: skip
    form = form_class(LandingPage)({**values, "appkey": "summer-ads"})
    assert "Begin it with 03-" in str(form.errors["appkey"])
    form = form_class(LandingPage)({**values, "appkey": "03-summer-ads"})
    assert form.is_valid(), form.errors
    before = LandingPage.objects.create(biz=biz, title="Spring", appkey="spring-ads")
    form = form_class(LandingPage, before)(values, instance=before)
    assert form.is_valid(), form.errors
