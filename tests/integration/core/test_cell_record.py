"""The database remembers its cell, and a program of another cell gets nothing from it."""

from datetime import timedelta
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from msgplatform.core.cells import Cell
from msgplatform.core.data import cell_record, ids, sql
from msgplatform.core.data.cell_record import WrongCell
from msgplatform.models import AuditLog, Biz, CellRecord, IdNode
from notify.intake import intake
from notify.models import BizMsg, IdempotencyKey

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("ids_of_its_own")]


def test_a_database_without_a_row_is_the_only_cell(settings: Any) -> None:
    assert cell_record.read() == Cell()
    cell_record.check()
    settings.CELL = Cell(3, 16)
    with pytest.raises(WrongCell, match="a platform without cells, but this program has CELL=3/16"):
        cell_record.check()


@pytest.mark.parametrize("own", [Cell(4, 16), Cell(3, 32), Cell()])
def test_a_program_of_another_cell_makes_no_id(own: Cell, settings: Any) -> None:
    cell_record.write(Cell(3, 16))
    settings.CELL = own
    with pytest.raises(WrongCell) as refusal:
        ids.Allocator().new(0)
    text = str(refusal.value)
    assert "cell 3/16" in text
    assert ("no CELL" if own.is_only else f"CELL={own}") in text
    assert "Set CELL=3/16, or name the database of" in text
    assert "manage.py set_cell" in text
    assert not IdNode.objects.exists()
    settings.CELL = Cell(3, 16)
    assert ids.Allocator().new(0xFF) & 0xFF == 0xF3


def test_set_cell_waits_for_the_end_of_every_program(settings: Any) -> None:
    settings.CELL = Cell(3, 16)
    lease = sql.now() + timedelta(seconds=30)
    node = IdNode.objects.create(node=1, holder="x", lease_until=lease)
    with pytest.raises(CommandError, match="1 programs still hold id nodes"):
        call_command("set_cell")
    assert not CellRecord.objects.exists()
    node.delete()
    out = StringIO()
    call_command("set_cell", stdout=out)
    assert "belongs to cell 3/16 now" in out.getvalue()
    assert cell_record.read() == Cell(3, 16)
    assert AuditLog.objects.filter(action="cell_set", target="3/16").count() == 1
    call_command("set_cell", stdout=out)
    assert "nothing was changed" in out.getvalue()
    settings.CELL = Cell(3, 32)
    call_command("set_cell", stdout=out)
    assert (cell_record.read(), CellRecord.objects.count()) == (Cell(3, 32), 1)


def test_a_key_from_before_there_were_cells_is_still_known(settings: Any) -> None:
    biz = Biz.objects.create(name="orders")
    (first,) = intake.publish_many([_event(biz, "order-0")])
    settings.CELL = Cell(5, 16)
    ids.release()
    call_command("set_cell", stdout=StringIO())
    duplicate, new = intake.publish_many([_event(biz, "order-0"), _event(biz, "order-1")])
    assert (duplicate.outcome, duplicate.id) == ("duplicate", first.id)
    assert new.outcome == "created"
    assert new.id & 15 == 5
    row = IdempotencyKey.objects.get(id=new.id)
    # All bits of the bucket, as before: only the id names the cell.
    assert row.bucket == ids.bucket(biz.pk, "order-1")
    assert BizMsg.objects.count() == 2


def _event(biz: Biz, key: str) -> intake.Event:
    return intake.Event(biz.pk, "order.paid", b"1", key)
