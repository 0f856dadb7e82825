"""Encrypted fields: what is stored, what Python sees, and what no key reads."""

import json
from collections import Counter
from io import StringIO
from typing import Any

import pytest
from django.core import serializers
from django.core.exceptions import FieldError
from django.core.management import CommandError, call_command
from django.db import connection

from gateway.models import SmsGateway
from msgplatform.core.errors import Permanent, Undecryptable
from msgplatform.core.secrets import encryption, reencrypt
from msgplatform.core.secrets.encryption import State
from msgplatform.operation import doctor
from notify.models import Receive
from tests.support.sms_rows import gateway

pytestmark = [pytest.mark.both_databases, pytest.mark.django_db(transaction=True)]

OLD, NEW, LOST = (encryption.new_key() for _ in range(3))
HEADERS = {"Authorization": "Bearer tell-nobody", "X-Ort": "Köln"}
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


def consumer(name: str = "till", **fields: Any) -> Receive:
    given = {"url": "https://till.example/", "secret": SECRET, "headers": HEADERS, **fields}
    return Receive.objects.create(name=name, **given)


def stored(name: str = "till", column: str = "secret") -> str:
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT {column} FROM receive WHERE name = %s", [name])
        return str(cursor.fetchone()[0])


def store(text: str, column: str = "secret") -> None:
    """As an older release, or another program, would write it."""
    with connection.cursor() as cursor:
        cursor.execute(f"UPDATE receive SET {column} = %s", [text])


def all_states() -> dict[State, int]:
    return dict(sum(map(reencrypt.count, reencrypt.columns()), Counter()))


def rotate(*options: str) -> str:
    said = StringIO()
    call_command("rotate_encryption_key", *options, stdout=said)
    return said.getvalue()


class TestField:
    def test_python_sees_the_clear_text_and_the_database_does_not(self) -> None:
        consumer()
        row = Receive.objects.get()
        assert (row.secret, row.headers, row.previous_secret) == (SECRET, HEADERS, "")
        assert Receive.objects.values("secret", "headers").get() == {
            "secret": SECRET, "headers": HEADERS,
        }  # fmt: skip
        assert Receive.objects.only("name").get().headers == HEADERS
        for column in ("secret", "headers"):
            assert stored(column=column).startswith("enc1:")
        assert stored(column="previous_secret") == ""

    def test_every_way_to_write(self) -> None:
        row = consumer()
        first = stored()
        row.secret = "whsec_bmV3"
        row.save(update_fields=["secret"])
        assert Receive.objects.get().secret == "whsec_bmV3"
        assert stored() != first
        Receive.objects.update(headers={"A": "b"})
        assert Receive.objects.get().headers == {"A": "b"}
        row.headers = {"C": "d"}
        Receive.objects.bulk_update([row], ["headers"])
        assert Receive.objects.get().headers == {"C": "d"}
        Receive.objects.bulk_create([Receive(name="two", url="https://x/", secret=SECRET)])
        assert stored("two").startswith("enc1:")

    def test_nothing_can_be_looked_up(self) -> None:
        consumer()
        for lookup in ("secret", "secret__startswith", "secret__in", "headers__Authorization"):
            with pytest.raises(FieldError):
                Receive.objects.filter(**{lookup: "whsec_"}).exists()
        assert Receive.objects.filter(secret__isnull=False).count() == 1

    def test_a_dump_holds_nothing_and_can_be_loaded(self) -> None:
        consumer()
        dump = serializers.serialize("json", Receive.objects.all())
        assert "whsec_" not in dump
        assert "tell-nobody" not in dump
        Receive.objects.all().delete()
        for loaded in serializers.deserialize("json", dump):
            loaded.save()
        row = Receive.objects.get()
        assert (row.secret, row.headers) == (SECRET, HEADERS)

    def test_what_was_written_in_clear_is_read(self) -> None:
        consumer()
        store("whsec_b2xk")
        store('{"A": "b"}', "headers")
        row = Receive.objects.get()
        assert (row.secret, row.headers) == ("whsec_b2xk", {"A": "b"})


class TestUnreadable:
    @pytest.fixture(autouse=True)
    def lost(self, settings: Any) -> None:
        settings.ENCRYPTION_KEYS = (LOST,)
        consumer("lost")
        settings.ENCRYPTION_KEYS = (NEW,)
        consumer("kept")

    def test_its_row_is_read_and_the_others(self) -> None:
        kept, lost = Receive.objects.order_by("name")
        assert kept.secret == SECRET
        assert lost.url == "https://till.example/"
        with pytest.raises(Undecryptable, match="signing secret cannot be decrypted") as raised:
            _ = lost.secret
        assert isinstance(raised.value, Permanent)
        with pytest.raises(Undecryptable):
            _ = Receive.objects.only("name").get(name="lost").headers
        assert repr(Receive.objects.values("secret").get(name="lost")["secret"]) == "<unreadable>"

    def test_saving_its_row_keeps_it(self, settings: Any) -> None:
        before = stored("lost")
        row = Receive.objects.get(name="lost")
        row.title = "New"
        row.save()
        assert stored("lost") == before
        dump = serializers.serialize("json", Receive.objects.filter(name="lost"))
        assert before in dump
        settings.ENCRYPTION_KEYS = (NEW, LOST)
        row = Receive.objects.get(name="lost")
        assert (row.title, row.secret) == ("New", SECRET)

    def test_the_command_leaves_it_and_says_so(self) -> None:
        before = stored("lost")
        with pytest.raises(CommandError, match="Keep all keys"):
            rotate()
        assert stored("lost") == before

    def test_the_doctor_counts_it(self) -> None:
        found = {finding.what: finding for finding in doctor.examine()}
        finding = found["notify.Receive.secret: values under a key that is unknown: 1"]
        assert finding.level == "bad"
        assert "ENCRYPTION_KEY" in finding.repair


class TestRotation:
    def test_every_value_of_every_model(self, settings: Any) -> None:
        settings.ENCRYPTION_KEYS = (OLD,)
        for number in range(5):
            consumer(f"c{number}")
        gateway()
        settings.ENCRYPTION_KEYS = (NEW, OLD)
        total = all_states()[State.OLD]
        assert total == 5 * 2 + 2
        levels = {f.what: f.level for f in doctor.examine()}
        assert levels["gateway.SmsGateway.login_password: values under an old key: 1"] == "warn"
        said = rotate("--page=2")
        assert "notify.Receive.secret: 2 of 5\n" in said
        assert "remove the others" in said
        settings.ENCRYPTION_KEYS = (NEW,)
        assert all_states() == {State.CURRENT: total + 5}
        assert {row.secret for row in Receive.objects.all()} == {SECRET}
        row = SmsGateway.objects.get()
        assert (row.login_password, row.smg_login_password) == ("our-secret", "its-secret")

    def test_clear_text_is_encrypted(self) -> None:
        consumer()
        store("whsec_Y2xlYXI=")
        store(json.dumps(HEADERS), "headers")
        levels = {f.what: f.level for f in doctor.examine()}
        assert levels["notify.Receive.secret: values in clear text: 1"] == "bad"
        rotate()
        assert State.CLEAR not in all_states()
        row = Receive.objects.get()
        assert (row.secret, row.headers) == ("whsec_Y2xlYXI=", HEADERS)

    @pytest.mark.parametrize("before", ["whsec_b25l", "whsec_b25l ", "WHSEC_b25l"])
    def test_what_somebody_writes_meanwhile_stays(self, before: str) -> None:
        """Also when it differs only in what the database's own comparison does not see."""
        consumer()
        store(before)
        (column,) = [c for c in reencrypt.columns() if str(c) == "notify.Receive.secret"]
        page = list(column.rows.values_list("pk", column.stored))
        store("whsec_b25l  ")
        reencrypt._write(column, [(pk, old, encryption.encrypt(old)) for pk, old in page])
        assert stored() == "whsec_b25l  "

    def test_an_unchanged_value_is_not_written(self) -> None:
        consumer()
        before = stored()
        rotate()
        assert stored() == before
