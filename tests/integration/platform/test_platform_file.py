"""Platform files: the demo's platform written and applied to an empty one, and what is refused."""

import io
import json
import re
from contextlib import closing
from pathlib import Path
from typing import Any, TextIO

import pytest
from django.core.exceptions import ValidationError
from django.core.management import CommandError, call_command
from django.db import connection, connections
from django.test import Client
from django.test.utils import CaptureQueriesContext
from jsonschema import Draft202012Validator

from crmsync.models import Crm, LandingPage, Policy, Source
from demo.crmsync import plan as leads
from demo.crmsync.crms import CallCentre, SalesTable
from demo.notify import scenario as events
from demo.sms import plan as sms
from gateway.models import SmsAccount, SmsGateway
from msgplatform.company.alerting.models import AlertChannel, AlertRule
from msgplatform.core.errors import InvalidInput
from msgplatform.doors.api.management.platform_file import json_schema
from msgplatform.models import AuditLog, Biz, KeptObject
from msgplatform.operation.management.commands.apply import Command
from msgplatform.setup.platform_file import kinds, reading, text
from msgplatform.setup.platform_file.outcome import FileFaults
from notify.models import BizReceive, EventType, Receive

pytestmark = pytest.mark.django_db(transaction=True)

# What the platform alone writes, and the signing secret, which each platform makes itself.
_OWN_COLUMNS = {"id", "created_at", "changed_at", "secret", "previous_secret"}
_MODELS = (Biz, Receive, EventType, BizReceive, SmsGateway, SmsAccount, LandingPage, Crm, Source,
           Policy)  # fmt: skip
SMALL = """\
msgplatform: 1
systems:
  orders:
    title: Order service
consumers:
  warehouse:
    url: https://warehouse.example/hooks
subscriptions:
  orders/warehouse:
    event_types: [order.*]
"""


def run(command: str, *arguments: Any, **options: Any) -> str:
    out = io.StringIO()
    call_command(command, *map(str, arguments), stdout=out, stderr=io.StringIO(), **options)
    return out.getvalue()


def apply(path: Path, *arguments: Any) -> str:
    return run("apply", path, *arguments)


def refused(path: Path, *arguments: Any) -> str:
    """The faults of a file; nothing is changed by it."""
    before, logged = rows(), AuditLog.objects.count()
    with pytest.raises(CommandError) as caught:
        apply(path, *arguments)
    assert (rows(), AuditLog.objects.count()) == (before, logged)
    return str(caught.value)


def written(folder: Path, content: str, name: str = "platform.yaml") -> Path:
    path = folder / name
    path.write_text(content)
    return path


def rows() -> dict[str, list[Any]]:
    """The tables as they are, with names in the place of numbers: neither writes nor reads a
    file."""
    names: dict[Any, str] = {(model, row.pk): str(getattr(row, "name", row.pk)) for model in _MODELS
             for row in model.objects.all()}  # fmt: skip
    content: dict[str, list[Any]] = {}
    for model in _MODELS:
        of_model = content[model._meta.db_table] = []
        for row in model.objects.all():
            values: dict[str, Any] = {}
            for column in model._meta.concrete_fields:
                value = column.value_from_object(row)
                if column.is_relation:
                    value = names.get((column.related_model, value))
                elif column.name == "owner":
                    value = names.get((Biz, value))
                if column.name not in _OWN_COLUMNS:
                    values[column.name] = value
            for relation in model._meta.many_to_many:
                values[relation.name] = sorted(
                    each.name for each in getattr(row, relation.name).all()
                )
            of_model.append(values)
        of_model.sort(key=lambda values: json.dumps(values, sort_keys=True, default=str))
    return content


def empty() -> None:
    for model in reversed(_MODELS):
        model.objects.all().delete()
    Source.hive()


@pytest.fixture
def demo(tmp_path: Path, settings: Any) -> None:
    """The platform of the demo, and what its demo does not set up: a catalogue and a source."""
    settings.OUTBOUND_ALLOW = ["127.0.0.0/8"]
    events.create({each.name: f"http://127.0.0.1:1/{each.name}" for each in events.CONSUMERS})
    urls = {name: f"http://127.0.0.1:1/{name}" for name in sms.SYSTEMS}
    sms.create(urls, {each.name: 9000 for each in sms.OPERATORS})
    leads.create_pages()
    with CallCentre() as call_centre:
        leads.create_crms(SalesTable(tmp_path / "sales.sqlite3"), call_centre)
    orders = Biz.objects.get(name="orders")
    EventType.objects.create(name="order.paid", example={"n": 1.5, "no": "no"}, schema={})
    EventType.objects.create(name="order.paid", biz=orders, description="Ours: “ja” – 是\nyes")
    Receive.objects.filter(name="warehouse").update(headers={"X-Api-Key": "k", "X-2": "#: 2"})
    BizReceive.objects.filter(biz=orders, receive__name="billing").update(status=1)
    BizReceive.objects.filter(biz=orders, receive__name="mailings").update(status=2)
    Biz.objects.create(name="no", title="2026-11-20", enabled=False)
    Source.objects.create(
        name="shop table", database="mysql://a:b@db.example/shop", table="customer",
        time_column="updated_at", version_column="version", value_columns=["name", "email"],
    )  # fmt: skip


def test_the_demo_is_written_and_applied_to_an_empty_platform(
    demo: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, stored = rows(), _secrets_by_reference()
    content = run("export", "--references")
    path = written(tmp_path, content)
    for secret in stored.values():
        assert f" {secret}\n" not in content
    empty()
    assert rows() != before
    assert "The environment has no variable" in refused(path)
    for name, value in stored.items():
        monkeypatch.setenv(name, value)
    assert "0 changed, 0 removed, 0 unchanged" in apply(path)
    assert rows() == before
    logged = AuditLog.objects.count()
    assert "0 added, 0 changed, 0 removed" in apply(path)
    assert AuditLog.objects.count() == logged
    with pytest.raises(InvalidInput, match="no business system none"):
        run("export", "--system", "none")
    # Without references, as it is kept in a repository: stored secrets stay.
    plain = written(tmp_path, run("export"), "plain.yaml")
    assert "0 added, 0 changed, 0 removed" in apply(plain, "--prune")
    assert rows() == before
    Draft202012Validator(json_schema()).validate(text.read(content.encode()).value)


def _secrets_by_reference() -> dict[str, str]:
    """Variable → the secret that is stored, as exported references name them."""
    found: dict[str, str] = {}
    for gateway in SmsGateway.objects.all():
        name = f"GATEWAY_{gateway.name}".upper().replace("-", "_")
        found[f"{name}_LOGIN_PASSWORD"] = gateway.login_password
        found[f"{name}_SMG_LOGIN_PASSWORD"] = gateway.smg_login_password
    for crm in Crm.objects.all():
        for key, value in crm.credentials.items():
            found[f"CRM_{crm.name}_CREDENTIALS_{key}".upper().replace("-", "_")] = value
    found["SOURCE_SHOP_TABLE_DATABASE"] = Source.objects.get(name="shop table").database
    for key, value in Receive.objects.get(name="warehouse").headers.items():
        found[f"CONSUMER_WAREHOUSE_HEADERS_{key}".upper().replace("-", "_")] = value
    return found


def test_a_difference_is_shown_before_it_is_made(tmp_path: Path) -> None:
    path = written(tmp_path, SMALL)
    before = rows()
    shown = apply(path, "--dry-run")
    assert "+ systems orders" in shown
    assert "+ subscriptions orders/warehouse" in shown
    assert "3 added, 0 changed, 0 removed" in shown
    assert (rows(), AuditLog.objects.count()) == (before, 0)
    assert apply(path) == shown
    changed = written(tmp_path, SMALL.replace("Order service", "Orders"))
    assert "    ~ title: Order service → Orders" in apply(changed, "--dry-run")
    apply(changed)
    assert Biz.objects.get().title == "Orders"
    assert AuditLog.objects.filter(action="system_changed", actor="manage.py apply").count() == 1


def test_a_difference_shows_no_secret_of_a_url(tmp_path: Path) -> None:
    content = SMALL.replace("/hooks", "/hooks?token=abc")
    shown = apply(written(tmp_path, content))
    shown += apply(written(tmp_path, content.replace("abc", "xyz")))
    assert shown.count("https://warehouse.example/hooks?•••") == 3
    assert not re.search("abc|xyz", shown)
    assert Receive.objects.get().url.endswith("?token=xyz")
    assert "/hooks?token=xyz" in run("export")


def test_several_files_are_one_platform(tmp_path: Path) -> None:
    """Of a folder, in which references go from file to file."""
    head, subscriptions = SMALL.split("subscriptions:")
    (tmp_path / "a").mkdir()
    written(tmp_path / "a", "subscriptions:" + subscriptions, "first.yml")
    written(tmp_path, head, "second.yaml")
    assert "3 added" in apply(tmp_path)
    written(tmp_path, "systems:\n  orders:\n", "third.yaml")
    assert "third.yaml:2: systems.orders: It is there already, in " in refused(tmp_path)


def test_only_the_first_of_many_faults_say_what_was_meant() -> None:
    names = ["event_type", *(f"filter_type{number}" for number in range(1000))]
    with pytest.raises(FileFaults, match=r"Did you mean event_types\?") as refusal:
        reading.read_sent(text.Text({"subscriptions": {"a/b": dict.fromkeys(names, 1)}}))
    assert "and 951 more" in str(refusal.value)
    assert sum("Use one of" in fault.message for fault in refusal.value.faults) < 300


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ("systems:", "system:", "platform.yaml:2: system: There is no such section. Did you mean"),
        ("title:", "titel:", "platform.yaml:4: systems.orders.titel: There is no such field. Did"),
        ("  orders:", "  or ders:", "platform.yaml:3: systems.or ders: Write the name"),
        ("https://", "ftp://", "platform.yaml:7: consumers.warehouse.url: "),
        ("/hooks", "/hooks?t=${TOKEN}", "platform.yaml:7: consumers.warehouse.url: References are"),
        ("Order service", "file:title", "platform.yaml:4: systems.orders.title: References are"),
        ("orders/warehouse", "orders", "platform.yaml:9: subscriptions.orders: The name of"),
        ("orders/warehouse", "orders/none", "platform.yaml:9: subscriptions.orders/none: There is"),
        (
            "consumers:",
            'event-types:\n  "order.paid ": {}\nconsumers:',
            "platform.yaml:6: event-types.order.paid : Leave out the blanks around the name.",
        ),
        ("[order.*]", "order.*", "platform.yaml:10: subscriptions.orders/warehouse.event_types"),
        ("[order.*]", "[1]", "platform.yaml:10: subscriptions.orders/warehouse.event_types"),
        ("[order.*]", "*all", "platform.yaml:10: Anchors and aliases"),
        ("[order.*]", "!!python/name:os.system", "platform.yaml:10: Tags are not read"),
        ("Order service", "a: b", "platform.yaml:4: This is not YAML"),
        (
            "msgplatform: 1",
            "msgplatform: 2",
            "The file is of form 2, and this release reads form 1",
        ),
        ("consumers:", "systems: {}\nconsumers:", "systems is there already, in line 2"),
        ("consumers:", '  "%6Frders": {}\nconsumers:', "systems.%6Frders: It is there already, in"),
        (
            "consumers:",
            "landing-pages:\n  spring: {system: orders, title: Spring, form_fields: [{name: email,"
            " required: no}]}\nconsumers:",
            "platform.yaml:6: landing-pages.spring.form_fields: email: “required” is true",
        ),
        ("Order service", "\x07", "A control character"),
        ("[order.*]", "[" * 200 + "]" * 200, "levels deep"),
    ],
)
def test_a_fault_is_named_with_its_line_and_nothing_is_applied(
    tmp_path: Path, old: str, new: str, fault: str
) -> None:
    assert old in SMALL
    told = refused(written(tmp_path, SMALL.replace(old, new, 1)))
    assert fault in told
    assert "Nothing was changed." in told


def test_a_name_in_another_case_is_another_name_that_is_refused(tmp_path: Path) -> None:
    apply(written(tmp_path, SMALL))
    told = refused(written(tmp_path, SMALL.replace("  orders:", "  Orders:")))
    assert "systems.Orders" in told


def test_a_large_file_is_refused(tmp_path: Path) -> None:
    assert "divide it" in refused(written(tmp_path, "#" * (text.MAX_BYTES + 1)))
    assert "divide it" in refused(written(tmp_path, "systems: [" + "0," * 200_000 + "]"))


def test_what_the_files_do_not_have_is_removed_on_request_only(tmp_path: Path) -> None:
    Biz.objects.create(name="old")
    Receive.objects.create(name="spare", url="http://127.0.0.1/")
    assert "2 left alone" in apply(written(tmp_path, SMALL))
    assert "asks first: answer with --yes" in refused(written(tmp_path, SMALL), "--prune")
    shown = apply(written(tmp_path, SMALL), "--prune", "--yes")
    assert "- systems old" in shown
    assert "- consumers spare" in shown
    assert not Biz.objects.get(name="old").enabled
    assert not Receive.objects.filter(name="spare").exists()
    assert "0 added, 0 changed, 0 removed" in apply(written(tmp_path, SMALL), "--prune", "--yes")
    # Another section is nobody's concern.
    only_systems = SMALL.split("consumers:", maxsplit=1)[0]
    assert "0 removed" in apply(written(tmp_path, only_systems), "--prune", "--yes")


@pytest.mark.parametrize("status", ["", "    status: null\n", "    status: normal\n"])
def test_a_discarded_subscription_that_a_file_has_is_taken_up(tmp_path: Path, status: str) -> None:
    apply(written(tmp_path, SMALL))
    BizReceive.objects.update(status=BizReceive.Status.DISCARDED)
    assert "1 changed" in apply(written(tmp_path, SMALL + status))
    assert BizReceive.objects.get().status == BizReceive.Status.NORMAL


def test_a_team_applies_its_own_part(tmp_path: Path) -> None:
    Biz.objects.create(name="orders")
    Receive.objects.create(name="warehouse", url="https://warehouse.example/hooks")
    other = Biz.objects.create(name="other")
    BizReceive.objects.create(biz=other, receive=Receive.objects.get())
    own = "subscriptions:\n  orders/warehouse:\n    event_types: [a]\n"
    assert "1 added" in apply(written(tmp_path, own), "--system", "orders")
    told = refused(written(tmp_path, own + "  other/warehouse: {}\n"), "--system", "orders")
    assert "nothing of this name in the business systems orders" in told
    assert "limited to" in refused(written(tmp_path, "consumers:\n  x: {url: 'http://a/'}\n"),
                                   "--system", "orders")  # fmt: skip
    apply(written(tmp_path, "subscriptions: {}\n"), "--system", "orders", "--prune", "--yes")
    statuses = dict(BizReceive.objects.values_list("biz__name", "status"))
    assert statuses == {"orders": BizReceive.Status.DISCARDED, "other": BizReceive.Status.NORMAL}


def test_what_is_exported_is_no_difference_whatever_its_texts_have(tmp_path: Path) -> None:
    """Ends of lines of other alphabets, wide blanks at the end, and a name that is long."""
    empty()
    orders = Biz.objects.create(name="orders", title="a\u2028\u3000b")
    example = {"wide": "\u3000a\u3000", "\x85k": "c\x85d", "no": ["a\u3000\n\u3000b\u2029", 1]}
    EventType.objects.create(name="order.paid", example=example, description="a\u3000\nb\u2028c")
    EventType.objects.create(name="n" * 128, biz=orders, example="\u2028")
    EventType.objects.create(name="orders/order:paid-2")
    EventType.objects.create(name="a/b", biz=orders)
    before, exported = rows(), run("export")
    path = written(tmp_path, exported)
    shown = apply(path, "--dry-run")
    assert "0 added, 0 changed, 0 removed, 5 unchanged" in shown
    empty()
    apply(path)
    assert rows() == before


def test_an_export_asks_for_all_rows_of_a_kind_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sections = {
        "systems": "s{}: {{}}", "consumers": "w{}: {{url: 'https://w.example/'}}",
        "subscriptions": "s{0}/w{0}: {{}}", "event-types": "s{0}/a.b: {{}}\n  s.{0}: {{}}",
        "sms/gateways": "g{}: {{host: smg, login_name: a, login_password: '${{WORD}}',"
        " smg_login_name: b, smg_login_password: '${{WORD}}', corp_id: '12345'}}",
        "sms/accounts": "a{0}: {{system: s{0}, sp_number: '{0}', corp_id: '12345',"
        " gateways: [g{0}]}}",
        "landing-pages": "page{0}: {{system: s{0}, title: a, form_fields: [{{name: phone,"
        " required: true}}]}}",
        "alert-channels": "c{}: {{url: '${{ROBOT}}'}}",
        "alert-rules": "r{0}: {{channels: [c{0}], systems: [s{0}]}}",
        "crms": "m{}: {{adapter: hubspot, settings: {{object: contacts, id_property: id}},"
        " credentials: {{token: '${{WORD}}'}}}}",
        "policies": "hive/m{}: {{mapping: Email = name}}",
    }  # fmt: skip
    Source.hive()
    monkeypatch.setenv("WORD", "secret")
    monkeypatch.setenv("ROBOT", "dingtalk://SECa1@a1b2/")
    counts = []
    for end in (2, 5):
        lines = [SMALL.partition("\n")[0]]
        for section, line in sections.items():
            lines += [f"{section}:", *(f"  {line.format(number)}" for number in range(1, end))]
        apply(written(tmp_path, "\n".join(lines)))
        with CaptureQueriesContext(connection) as statements:
            assert run("export").count("sp_number") == end - 1
        counts.append(len(statements))
    assert counts[0] == counts[1]


def test_each_secret_has_a_variable_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    empty()
    for name in ("a-b", "a_b"):
        Receive.objects.create(name=name, url="https://a.example/", headers={"X-Key": name})
    before, exported = rows(), run("export", "--references")
    first, second = re.findall(r"\$\{(\w+)\}", exported)
    assert first == "CONSUMER_A_B_HEADERS_X_KEY"
    monkeypatch.setenv(first, "a-b")
    monkeypatch.setenv(second, "a_b")
    empty()
    apply(written(tmp_path, exported))
    assert rows() == before


def test_a_name_that_no_file_can_have_is_left_alone(tmp_path: Path) -> None:
    """Such as a source has that was made before its name was checked."""
    options = {"table": "customer", "time_column": "t", "value_columns": ["name"]}
    row = Source.objects.create(name="shop/eu", **options)
    row.clean()
    for name in ("a/b", " a", "a\u3000"):
        with pytest.raises(ValidationError, match="No slash"):
            Source(name=name, **options).clean()
    exported = run("export")
    assert "  # shop%2Feu is not here: a file cannot name it.\n" in exported
    path = written(tmp_path, exported)
    assert "0 added, 0 changed, 0 removed" in apply(path)
    assert ". sources shop%2Feu  (A file cannot name it: it stays.)" in apply(path, "--prune")
    assert Source.objects.filter(name="shop/eu").exists()


def test_quiet_hours_and_rules_without_a_channel_are_exported(
    tmp_path: Path, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A zone that is this platform's is written; a rule of an earlier release is left out."""
    settings.TIME_ZONE = "Asia/Shanghai"
    channel = AlertChannel.objects.create(name="ops", url="dingtalk://SECa1@a1b2/")
    AlertRule.objects.create(name="night").channels.add(channel)
    AlertRule.objects.create(name="silent")
    monkeypatch.setenv("ALERT_CHANNEL_OPS_URL", channel.url)
    exported = run("export", "--references")
    assert "  # silent is not here: it has no channels, and cannot be applied.\n" in exported
    AlertRule.objects.all().delete()
    channel.delete()
    settings.TIME_ZONE = "UTC"
    apply(written(tmp_path, exported))
    for model in (AlertChannel, AlertRule):
        assert model.objects.get().time_zone == "Asia/Shanghai"


def test_the_default_account_moves_whatever_the_order(tmp_path: Path) -> None:
    """One of the two is put first, while the other one is still the default."""
    for default in ("b", "a", "b"):
        accounts = "".join(
            f"  {name}: {{system: orders, sp_number: '10655', corp_id: '12345', "
            f"is_default: {'true' if name == default else 'false'}}}\n"
            for name in ("a", "b")
        )
        apply(written(tmp_path, f"systems:\n  orders: {{}}\nsms/accounts:\n{accounts}"))
        assert SmsAccount.objects.get(is_default=True).name == default
    another = SmsAccount(
        biz=Biz.objects.get(), name="c", sp_number="10656", corp_id="12345", is_default=True
    )
    with pytest.raises(ValidationError, match="b is this system's default already"):
        another.clean()
    SmsAccount.objects.filter(name="b").update(enabled=False)
    another.clean()


def test_secrets_come_by_reference(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "key").write_bytes(b"\xef\xbb\xbfof a file\r\n")  # by Notepad
    (tmp_path / "outside").write_text("hidden")
    monkeypatch.setenv("WAREHOUSE_KEY", "of a variable")
    head = SMALL.split("subscriptions:", maxsplit=1)[0] + "    headers:\n"

    def with_headers(value: str) -> Path:
        return written(tmp_path, f"{head}      X-Key: {value}\n")

    secrets = ("--secrets", tmp_path / "secrets")
    apply(with_headers('"${WAREHOUSE_KEY}"'))
    assert Receive.objects.get().headers == {"X-Key": "of a variable"}
    shown = apply(with_headers("file:key"), *secrets)
    assert "~ headers: (secret)" in shown
    assert Receive.objects.get().headers == {"X-Key": "of a file"}
    assert "of a file" not in str(list(AuditLog.objects.values())) + run("export")
    assert "does not belong in a file" in refused(with_headers("plain"))
    assert "is a setting of the platform" in refused(with_headers("${SECRET_KEY}"))
    assert "no variable NOBODY" in refused(with_headers("${NOBODY}"))
    assert "is not in the folder" in refused(with_headers("file:../outside"), *secrets)
    assert "Name the folder" in refused(with_headers("file:key"))


def test_new_secrets_are_written_once_to_a_file_of_its_owner(tmp_path: Path) -> None:
    file = tmp_path / "new"
    apply(written(tmp_path, SMALL), "--new-secrets", file)
    assert file.read_text() == f"consumers warehouse secret {Receive.objects.get().secret}\n"
    assert file.stat().st_mode & 0o777 == 0o600
    assert "cannot be made" in refused(written(tmp_path, SMALL), "--new-secrets", file)


def test_a_file_for_new_secrets_is_made_for_what_was_applied_only(tmp_path: Path) -> None:
    file = tmp_path / "new"
    wrong = written(tmp_path, SMALL.replace("orders/warehouse", "orders/none"))
    assert "There is no such consumer" in refused(wrong, "--new-secrets", file)
    assert not file.exists()


def test_new_secrets_that_a_full_disk_does_not_take_are_to_be_rotated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def file_of_a_full_disk(_command: Command, _path: Path) -> TextIO:
        return Path("/dev/full").open("w")

    monkeypatch.setattr(Command, "_new_secrets", file_of_a_full_disk)
    with pytest.raises(CommandError, match=r"were applied, but .* consumers warehouse are stored"):
        apply(written(tmp_path, SMALL), "--new-secrets", tmp_path / "new")
    assert Receive.objects.exists()


def test_nobody_says_that_nothing_was_changed_when_a_commit_is_lost(tmp_path: Path) -> None:
    """The connection is gone after the last statement, and before the answer to COMMIT."""
    if connection.vendor != "mysql":  # SQLite has no connection to lose
        return
    with closing(connections.create_connection("default")) as other:

        def losing_the_connection(execute: Any, sql: str, *arguments: Any) -> Any:
            result = execute(sql, *arguments)
            if AuditLog._meta.db_table in sql:
                with other.cursor() as cursor:
                    cursor.execute("KILL %s", [connection.connection.thread_id()])
            return result

        with (
            connection.execute_wrapper(losing_the_connection),
            pytest.raises(CommandError, match="It may have been applied, or not") as caught,
        ):
            apply(written(tmp_path, SMALL))
    assert "Nothing was changed" not in str(caught.value)


def test_the_console_says_what_a_file_keeps(tmp_path: Path, admin_client: Client) -> None:
    path = written(tmp_path, SMALL)
    apply(path, "--label", "commit 4f2a")
    pk = BizReceive.objects.get().pk
    page = admin_client.get(f"/admin/notify/bizreceive/{pk}/change/").content.decode()
    assert "A platform file keeps this: commit 4f2a" in page
    url = f"/admin/notify/receive/{Receive.objects.get().pk}/change/"
    fields = admin_client.get(url).context["adminform"].form.fields
    assert ("name" in fields, "title" in fields) == (False, True)
    BizReceive.objects.update(event_types=["stock.*"])
    shown = apply(path, "--dry-run")
    assert "It was changed by hand since commit 4f2a was applied." in shown
    apply(path)
    assert BizReceive.objects.get().event_types == ["order.*"]
    written(tmp_path, SMALL.partition("consumers")[0] + "consumers: {}\nsubscriptions: {}\n")
    apply(path, "--label", "commit 5a3b", "--dry-run")
    apply(path)
    assert "name" not in admin_client.get(url).context["adminform"].form.fields
    assert KeptObject.objects.filter(section="subscriptions").exists()
    apply(path, "--label", "commit 5a3b")
    assert "name" in admin_client.get(url).context["adminform"].form.fields, "no file has it"
    assert [row.name for row in KeptObject.objects.exclude(section="")] == ["orders"]


def test_a_file_keeps_an_object_with_the_longest_name(tmp_path: Path) -> None:
    system, event_type = "s" * 64, "a/" * 64
    path = written(
        tmp_path,
        f"""\
msgplatform: 1
systems: {{{system}: {{}}}}
event-types: {{{system}/{event_type.replace("/", "%2F")}: {{description: a}}}}
""",
    )
    apply(path, "--label", "v1")
    EventType.objects.update(description="b")
    (row,) = EventType.objects.all()
    kept_object = kinds.kept_object(row)
    assert kept_object is not None
    assert kept_object.label == "v1"
    assert "changed by hand since v1" in apply(path, "--label", "v2")
    assert "1 removed" in apply(
        written(tmp_path, "msgplatform: 1\nevent-types: {}\n"), "--prune", "--yes"
    )
    assert not KeptObject.objects.filter(section="event-types").exists()


def test_the_file_of_the_manual_is_applied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    manual = (Path(__file__).parents[3] / "docs/platform-file.md").read_text(encoding="utf-8")
    path = written(tmp_path, manual.partition("```yaml\n")[2].partition("```")[0])
    monkeypatch.setenv("WAREHOUSE_KEY", "k")
    assert "3 added" in apply(path)
    assert "0 added, 0 changed" in apply(written(tmp_path, run("export"), "again.yaml"))
