"""Gateways whose password no key decrypts: down, and the console says why; the others go on."""

from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from gateway import presence, sgip
from gateway.models import SmsGateway
from gateway.receiver.receiver import SmsReceiver
from gateway.sender.sender import SmsSender
from gateway.simulator.smg import Behaviour
from msgplatform.core.secrets import encryption
from tests.support.sms_net_support import (
    Raw,
    Smg,
    accept,
    ended,
    gateway,
    mt,
    running,
    turning,
    until,
)

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("sms_redis", "work_redis"),
]
KNOWN, LOST = (encryption.new_key() for _ in range(2))
GATEWAYS = "/admin/gateway/smsgateway/"


def lose(settings: Any, row: SmsGateway, *fields: str) -> None:
    """These were written with a key that is gone."""
    settings.ENCRYPTION_KEYS = (LOST,)
    row.save(update_fields=fields)
    settings.ENCRYPTION_KEYS = (KNOWN,)
    row.save(update_fields={"login_password", "smg_login_password"} - set(fields))


def problems() -> dict[tuple[int, str], str]:
    return {(link.gateway, link.kind): link.problem for link in presence.live()}


def test_its_messages_take_another_way(tmp_path: Path, settings: Any, admin_client: Client) -> None:
    behaviour = Behaviour(on_submit_link=True)
    with Smg(tmp_path / "a.log", behaviour) as one, Smg(tmp_path / "b.log", behaviour) as two:
        bad, good = gateway(one.port, "bad"), gateway(two.port, "good")
        for row, lost in ((bad, ["login_password"]), (good, [])):
            lose(settings, row, *lost) if lost else good.save()
        sender = SmsSender()
        with running(sender):
            ids = accept(mt(1, [bad.pk, good.pk]), mt(2, [good.pk]), mt(3, [bad.pk]))
            until(lambda: len(ended(ids)) == 2, sender)
            assert not one.lines()
            assert "our password cannot be decrypted" in problems()[bad.pk, "submit"]
            assert problems()[good.pk, "submit"] == ""
            text = admin_client.get(GATEWAYS).content.decode()
            assert "our password cannot be decrypted" in text
            # Given again in the console: the link comes up without a restart.
            address = f"{GATEWAYS}{bad.pk}/change/"
            page = admin_client.get(address)
            assert "cannot be decrypted: enter it again" in page.content.decode()
            form = page.context["adminform"].form
            values = {name: form[name].value() for name in form.fields}
            given = {n: "on" if v is True else v for n, v in values.items() if v not in (None, "")}
            refused = admin_client.post(address, given)
            assert set(refused.context["adminform"].form.errors) == {"login_password"}
            done = admin_client.post(address, {**given, "login_password": "secret"})
            assert done.status_code == 302
            until(lambda: len(ended(ids)) == 3, sender)
            assert len(one.lines()) == 1


def bind(receiver: SmsReceiver, name: str) -> int:
    with Raw(receiver.port) as raw:
        raw.send(sgip.Bind(raw.sequence(), sgip.LoginType.SMG_TO_SP, name, "secret"))
        return int(raw.receive().result)


def test_who_binds_to_us_with_it_is_refused(settings: Any) -> None:
    settings.ENCRYPTION_KEYS = (KNOWN,)
    bad, good = gateway(1, "bad", smg_login_name="bad"), gateway(2, "good", smg_login_name="good")
    lose(settings, bad, "smg_login_password")
    receiver = SmsReceiver("127.0.0.1", 0)
    with turning(receiver):
        until(lambda: receiver.port and receiver.directory.known.gateways)
        assert bind(receiver, "good") == sgip.Result.OK
        assert bind(receiver, "bad") == sgip.Result.LOGIN  # its address waits from here on
        until(lambda: (bad.pk, "report") in problems())
        assert "the SMG's password cannot be decrypted" in problems()[bad.pk, "report"]
    assert good.smg_login_password == "secret"
