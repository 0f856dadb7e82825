"""A business system moves to another cell: everything but its messages, and nothing twice.

One database plays both cells: what was exported is deleted, and then imported by another cell.
"""

import hashlib
import io
import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.utils import timezone

from crmsync.intake import intake as lead_intake
from crmsync.models import LandingPage, Lead, LeadIdempotency
from gateway.intake import accept
from gateway.intake.request import Request
from gateway.lifecycle import keys as sms_keys
from gateway.models import SgipMt, SmsAccount, SmsGateway
from msgplatform.core.cells import Cell
from msgplatform.core.data import ids
from msgplatform.core.intake.moved_keys import TableKeys
from msgplatform.core.secrets import encryption
from msgplatform.doors.api.access import keys
from msgplatform.growth.moving import importing, system_file
from msgplatform.models import ApiKey, AuditLog, Biz, CellRecord
from notify.intake import intake
from notify.models import BizMsg, BizReceive, EventType, IdempotencyKey, Receive
from tests.support.sms_rows import account, gateway

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("work_redis", "sms_redis", "ids_of_its_own"),
]
SECRET = "whsec_c2VjcmV0LXNlY3JldC1zZWNyZXQtc2VjcmV0"
_Status = BizReceive.Status


def silent(_text: str) -> None:
    pass


class Move:
    """A system in cell 3 with everything that moves, its file, and the way to cell 5."""

    def __init__(self, settings: Any, folder: Path) -> None:
        self.settings, self.path = settings, folder / "orders.jsonl"
        self.enter(3)
        CellRecord.objects.create(number=3, cells=16, since="2026-01-01T00:00:00Z")
        # Another number in each cell: there, others were made before.
        self.biz = Biz.objects.create(name="orders", title="Web shop", validates_events=True)
        self.key = keys.create(self.biz, "till", ["events:write", "sms:write"])[1]
        self.consumers = [
            Receive.objects.create(
                name=name,
                url=f"https://{name}.example.com",
                secret=SECRET,
                headers={"X-Key": "abc"},
            )
            for name in ("warehouse", "books")
        ]
        for receive, status in zip(self.consumers, (_Status.NORMAL, _Status.PAUSED), strict=True):
            BizReceive.objects.create(
                biz=self.biz, receive=receive, status=status, event_types=["order.*"], schedule=[7]
            )
        EventType.objects.create(
            biz=self.biz,
            name="order.paid",
            schema={"type": "object"},
            description="${customer} paid",
        )
        EventType.objects.create(biz=None, name="ping")
        account(self.biz, "shop").gateways.add(gateway("unicom"))
        LandingPage.objects.create(biz=self.biz, title="Summer", appkey="summer-ads")

    def enter(self, number: int) -> None:
        self.settings.CELL = Cell(number, 16)
        ids.release()

    def export(self) -> None:
        with self.path.open("wb") as stream:
            system_file.export("orders", stream, silent)

    def leave_and_enter(self, number: int) -> None:
        """The database of another cell, which has the gateway, and systems of its own."""
        for model in (
            IdempotencyKey, LeadIdempotency, Lead, BizMsg, BizReceive, Receive, EventType,
            SgipMt, SmsAccount, LandingPage, ApiKey, Biz,
        ):  # fmt: skip
            model._default_manager.all().delete()  # type: ignore[attr-defined]
        CellRecord.objects.update(number=number)
        Biz.objects.create(name="of-this-cell")
        self.enter(number)

    def run(self) -> int:
        return importing.import_file(self.path, silent)

    def rewrite(self, change: Callable[[list[Any]], None]) -> None:
        """Change the lines of the file, with a checksum that is right."""
        *lines, _end = [json.loads(line) for line in self.path.read_text().splitlines()]
        change(lines)
        texts = [json.dumps(line, separators=(",", ":")) + "\n" for line in lines]
        end = {"lines": len(texts), "sha256": hashlib.sha256("".join(texts).encode()).hexdigest()}
        self.path.write_text("".join(texts) + json.dumps(end) + "\n")


@pytest.fixture
def move(settings: Any, tmp_path: Path) -> Move:
    return Move(settings, tmp_path)


def counts() -> dict[str, int]:
    models: tuple[Any, ...] = (
        Biz, ApiKey, Receive, BizReceive, EventType, SmsAccount, LandingPage, IdempotencyKey,
        LeadIdempotency, AuditLog,
    )  # fmt: skip
    return {model.__name__: model.objects.count() for model in models}


def event(biz: Biz, key: str, payload: bytes = b"{}") -> intake.Event:
    return intake.Event(biz.pk, "order.paid", payload, key)


def test_everything_moves_and_the_work_waits_until_it_is_resumed(move: Move) -> None:
    now, headers = timezone.now(), {"X-Key": "abc", "x-key": "d"}  # an earlier release took both
    Receive.objects.update(headers=headers)
    revoked, ended, lasting = (keys.create(move.biz, name, ["events:write"]) for name in "abc")
    keys.revoke(revoked[0])
    for (key, _), days in ((ended, -1), (lasting, 365)):
        ApiKey.objects.filter(pk=key.pk).update(expires_at=now + timedelta(days=days))
    key_ends = ApiKey.objects.order_by("prefix").values_list("prefix", "revoked_at", "expires_at")
    before = list(key_ends)
    move.export()
    move.leave_and_enter(5)
    assert move.run() == 0
    assert list(key_ends.all()) == before
    assert [bool(keys.verify(plain)) for _, plain in (revoked, ended, lasting)] == [0, 0, 1]
    biz = Biz.objects.get(name="orders")
    assert biz.pk != move.biz.pk
    assert (biz.title, biz.validates_events, biz.enabled) == ("Web shop", True, True)
    caller = keys.verify(move.key)
    assert caller is not None
    assert (caller.biz_id, caller.scopes) == (biz.pk, {"events:write", "sms:write"})
    warehouse, books = BizReceive.objects.filter(biz=biz).order_by("receive__url")[::-1]
    assert (warehouse.receive.secret, warehouse.receive.headers) == (SECRET, headers)
    assert (warehouse.event_types, warehouse.schedule) == (["order.*"], [7])
    assert (warehouse.status, books.status) == (_Status.PAUSED, _Status.PAUSED)
    paid = EventType.objects.get(name="order.paid")
    assert (paid.owner, paid.description) == (biz.pk, "${customer} paid")
    assert EventType.objects.get(name="ping").owner == 0
    moved = SmsAccount.objects.get(name="shop")
    assert (moved.biz, [each.name for each in moved.gateways.all()]) == (biz, ["unicom"])
    assert LandingPage.objects.get(appkey="summer-ads").biz == biz
    assert importing.resume(move.path) == 1
    assert AuditLog.objects.filter(action="system_resumed", target="orders").exists()
    warehouse.refresh_from_db()
    books.refresh_from_db()
    assert (warehouse.status, books.status) == (_Status.NORMAL, _Status.PAUSED)
    assert importing.resume(move.path) == 1  # a second time it changes nothing


def test_a_system_that_was_switched_off_stays_so(move: Move) -> None:
    Biz.objects.update(enabled=False)
    move.export()
    move.leave_and_enter(5)
    move.run()
    assert not Biz.objects.get(name="orders").enabled


@pytest.mark.parametrize("is_archived", [False, True])
def test_a_key_that_is_repeated_gets_the_first_id(
    move: Move, is_archived: bool, sms_redis: Any
) -> None:
    firsts = intake.publish_many([event(move.biz, f"order-{n}") for n in range(700)])
    request = Request(biz=move.biz.pk, to=("13800000000",), text="Hello", idempotency_key="s-1")
    accept.intake.cache_clear()  # it knows the accounts of a test before
    (sms,) = accept.accept_many([request])
    assert sms.outcome == "created", sms
    if is_archived:
        now = timezone.now()
        (message,) = sms.ids
        SgipMt.objects.create(
            id=message, biz_id=move.biz.pk, account_id=1, gateway_id=1, user_number="13800000000",
            sp_number="1", corp_id="1", fee_type=1, fee_value="0", given_value="0", agent_flag=0,
            morelateto_mt_flag=2, priority=0, report_flag=1, text="Hello", final="delivered",
            idempotency_key="s-1", accepted_at=now, archived_at=now,
        )  # fmt: skip
        assert sms_redis.delete(sms_keys.mt(int(message))) == 1
    page = LandingPage.objects.get()
    lead = lead_intake.add_many([_lead(page, "l-1")])[0]
    move.export()
    move.leave_and_enter(5)
    assert move.run() == 702
    biz = Biz.objects.get(name="orders")
    again = intake.publish_many([event(biz, f"order-{n}") for n in range(700)])
    assert {verdict.outcome for verdict in again} == {"duplicate"}
    assert [verdict.id for verdict in again] == [verdict.id for verdict in firsts]
    (conflict,) = intake.publish_many([event(biz, "order-1", b"[]")])
    assert conflict.code == "conflict"
    accept.intake.cache_clear()
    (sms_again,) = accept.accept_many(
        [Request(biz=biz.pk, to=("13800000000",), text="Hello", idempotency_key="s-1")]
    )
    assert (sms_again.outcome, sms_again.ids) == ("duplicate", sms.ids)
    lead_again = lead_intake.add_many([_lead(LandingPage.objects.get(), "l-1")])[0]
    assert (lead_again.outcome, lead_again.id) == ("duplicate", lead.id)
    assert BizMsg.objects.count() == 0


def _lead(page: LandingPage, key: str) -> lead_intake.NewLead:
    return lead_intake.NewLead(page.biz_id, page.appkey, name="王", phone="13800000000", key=key)


def test_no_secret_is_readable_in_the_file(move: Move) -> None:
    move.export()
    text = move.path.read_text()
    plain = [SECRET, "abc", move.key, move.settings.ENCRYPTION_KEYS[0]]
    assert [secret for secret in plain if f'"{secret}"' in text or f"_{secret}" in text] == []
    assert text.count("enc1:") == 4
    header = json.loads(text.splitlines()[0])
    assert (header["system"], header["cell"]) == ("orders", "3/16")


def test_a_consumer_that_is_there_with_the_same_content_is_shared(move: Move) -> None:
    move.export()
    move.leave_and_enter(5)
    Receive.objects.create(
        name="warehouse", url="https://warehouse.example.com", secret=SECRET,
        headers={"X-Key": "abc"},
    )  # fmt: skip
    move.run()
    assert Receive.objects.count() == 2


def _other_consumer(move: Move) -> None:
    Receive.objects.create(name="books", url="https://elsewhere.example.com")


def _other_account(move: Move) -> None:
    biz = Biz.objects.get(name="of-this-cell")
    account(biz, "shop")


def _other_page(move: Move) -> None:
    biz = Biz.objects.get(name="of-this-cell")
    LandingPage.objects.create(biz=biz, title="x", appkey="summer-ads")


def _other_event_type(move: Move) -> None:
    EventType.objects.create(biz=None, name="ping", description="another meaning")


def _no_gateway(move: Move) -> None:
    SmsGateway.objects.all().delete()


def _same_system(move: Move) -> None:
    Biz.objects.create(name="orders")


def _another_spelling(move: Move) -> None:
    Biz.objects.create(name="Orders")


def _into_its_own_cell(move: Move) -> None:
    move.enter(3)


def _another_number_of_cells(move: Move) -> None:
    move.settings.CELL = Cell(5, 32)


def _no_cells(move: Move) -> None:
    move.settings.CELL = Cell()


def _another_key(move: Move) -> None:
    move.settings.ENCRYPTION_KEYS = (encryption.new_key(),)


def _cut_short(move: Move) -> None:
    lines = move.path.read_text().splitlines(keepends=True)
    move.path.write_text("".join(lines[:-1]))


def _cut_in_a_line(move: Move) -> None:
    move.path.write_bytes(move.path.read_bytes()[:-150])


def _changed(move: Move) -> None:
    move.path.write_text(move.path.read_text().replace("order.paid", "order.gone"))


def _empty(move: Move) -> None:
    move.path.write_text("")


def _newer(move: Move) -> None:
    move.rewrite(lambda lines: lines[0].update(msgplatform_system=2))


def _consumer(lines: list[Any]) -> Any:
    return next(line for line in lines if line.get("section") == "consumers")


def _other_fields(move: Move) -> None:
    move.rewrite(lambda lines: _consumer(lines)["body"].update(colour="red"))


def _other_columns(move: Move) -> None:
    move.rewrite(lambda lines: _consumer(lines)["columns"].update(colour="red"))


def _no_such_flow(move: Move) -> None:
    move.rewrite(lambda lines: _consumer(lines).update(section="poems"))


def _wrong_value(move: Move) -> None:
    move.rewrite(lambda lines: _consumer(lines)["body"].update(url="gopher://books.example.com"))


def _wrong_name(move: Move) -> None:
    move.rewrite(lambda lines: _consumer(lines).update(name="a name with spaces"))


def _secret_in_clear(move: Move) -> None:
    move.rewrite(lambda lines: _consumer(lines)["body"].update(headers={"X-Key": "abc"}))


def _same_key(move: Move) -> None:
    prefix = move.key.split("_")[1]
    biz = Biz.objects.get(name="of-this-cell")
    ApiKey.objects.create(biz=biz, name="till", prefix=prefix, hash="0" * 64)


SPOILED_FILES: dict[Callable[[Move], None], str] = {
    _cut_short: "it was cut short",
    _cut_in_a_line: "it was cut short",
    _changed: "The checksum of the file is wrong",
    _empty: "it was cut short",
    _newer: "of a newer release. Update this cell first",
    _other_fields: "colour: There is no such field",
    _other_columns: "has other columns than in this release: colour",
    _no_such_flow: "FLOWS must name the same flows",
    _wrong_value: "url: ",
    _wrong_name: "Write the name of a consumer with letters, digits",
    _secret_in_clear: "headers.X-Key: The secret is not encrypted",
}


def test_a_spoiled_file_is_refused_before_the_first_write(
    move: Move, subtests: pytest.Subtests
) -> None:
    intake.publish_many([event(move.biz, "order-1")])
    move.export()
    move.leave_and_enter(5)
    whole_file = move.path.read_bytes()
    for spoil, words in SPOILED_FILES.items():
        with subtests.test(spoil.__name__):
            move.path.write_bytes(whole_file)
            check_refusal(move, spoil, words)


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (_other_consumer, "books here already. Other values than in the file: url"),
        (_other_account, "shop here already"),
        (_other_page, "summer-ads here already"),
        (_other_event_type, "ping here already. Other values than in the file: description"),
        (_no_gateway, "gateways: There is nothing named unicom; create it first"),
        (_same_system, "a business system orders here already, which is not from this file"),
        (_another_spelling, "There is Orders already"),
        (_into_its_own_cell, "comes from cell 3/16, and this is cell 3/16: nothing to do"),
        (_another_number_of_cells, "the same number of cells"),
        (_no_cells, "set CELL in both"),
        (_another_key, "Add the first key of the old cell to ENCRYPTION_KEY"),
        (_same_key, "There is an API key mp_"),
    ],
)
def test_a_cell_that_does_not_fit_refuses_before_the_first_write(
    move: Move, spoil: Callable[[Move], None], words: str
) -> None:
    intake.publish_many([event(move.biz, "order-1")])
    move.export()
    move.leave_and_enter(5)
    check_refusal(move, spoil, words)


def check_refusal(move: Move, spoil: Callable[[Move], None], words: str) -> None:
    spoil(move)
    before = counts()
    with pytest.raises(CommandError) as refusal:
        call_command("import_system", str(move.path))
    assert words in str(refusal.value)
    assert move.settings.ENCRYPTION_KEYS[0] not in str(refusal.value)
    assert counts() == before


def test_a_second_import_says_that_nothing_was_changed(move: Move) -> None:
    move.export()
    move.leave_and_enter(5)
    move.run()
    before = counts()
    with pytest.raises(CommandError, match="imported from this file already; nothing was changed"):
        call_command("import_system", str(move.path))
    assert counts() == before


def test_an_import_that_was_killed_goes_on(move: Move, monkeypatch: pytest.MonkeyPatch) -> None:
    firsts = intake.publish_many([event(move.biz, f"order-{n}") for n in range(2500)])
    move.export()
    move.leave_and_enter(5)
    write, pages = TableKeys.write, iter(range(1))

    def write_one_page(self: TableKeys, biz: int, rows: Any) -> None:
        if next(pages, None) is None:
            raise KeyboardInterrupt
        write(self, biz, rows)

    with monkeypatch.context() as patch:
        patch.setattr(TableKeys, "write", write_one_page)
        with pytest.raises(KeyboardInterrupt):
            move.run()
    assert IdempotencyKey.objects.count() == 1000
    biz = Biz.objects.get(name="orders")
    assert not biz.enabled
    with pytest.raises(importing.Refused, match="was not imported here"):
        importing.resume(move.path)
    assert move.run() == 2500
    biz.refresh_from_db()
    assert biz.enabled
    again = intake.publish_many([event(biz, f"order-{n}") for n in range(2500)])
    assert [verdict.id for verdict in again] == [verdict.id for verdict in firsts]


def test_the_commands_and_the_lines_for_the_proxy(
    move: Move, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    call_command("export_system", "orders")
    out, error = capfdbinary.readouterr()
    assert b"orders is written, with 0 idempotency keys" in error
    move.path.write_bytes(out)
    lines_for_here = ("import_system", str(move.path), "--proxy-lines", "here")
    with pytest.raises(CommandError, match=r"comes from cell 3/16 .* not imported here, in cell 3"):
        call_command(*lines_for_here)
    move.leave_and_enter(5)
    stdout, stderr = io.StringIO(), io.StringIO()
    call_command("import_system", str(move.path), "--proxy-lines", "nowhere", stdout=stdout)
    prefix = move.key.rpartition("_")[0].split("_")[1]
    assert sorted(stdout.getvalue().splitlines()) == [f"mp_{prefix} moving;", "summer-ads moving;"]
    with pytest.raises(CommandError, match="not imported here, in cell 5/16"):
        call_command(*lines_for_here)
    call_command("import_system", str(move.path), stderr=stderr)
    assert "paused: resume them with --resume" in stderr.getvalue()
    stdout = io.StringIO()
    call_command(*lines_for_here, stdout=stdout)
    assert sorted(stdout.getvalue().splitlines()) == [f"mp_{prefix} 05;", "summer-ads 05;"]
    with pytest.raises(CommandError, match="not allowed with argument"):
        call_command(*lines_for_here, "--resume")
    call_command("import_system", str(move.path), "--resume", stderr=stderr)
    assert "Subscriptions resumed: 1" in stderr.getvalue()
    with pytest.raises(CommandError, match="no business system named ordres"):
        call_command("export_system", "ordres")
