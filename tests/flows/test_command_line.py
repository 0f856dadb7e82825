"""`msgp` as it is installed from the wheel, against a running platform."""

import json
import re
import shutil
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
from standardwebhooks.webhooks import Webhook

import msgplatform
from msgplatform.core.servers.private_server import free_port
from tests.cluster import DAEMONS, WEB
from tests.flows.client_projects import PythonProject
from tests.flows.command_line import CommandLine, Consumer, LossyNetwork, next_line
from tests.flows.sms_cluster import SmsCluster

KEYS = """
import json
from msgplatform.doors.api.access import keys
from msgplatform.models import Biz
biz, _ = Biz.objects.get_or_create(name="orders")
print(json.dumps([
    keys.create(biz, "till", keys.scopes())[1],
    keys.create(biz, "reader", ["events:read"])[1],
    keys.create(None, "provisioning", keys.management_scopes())[1],
]))
"""
CONSUMER = """
from msgplatform.models import Biz
from notify.models import BizReceive, Receive
receive = Receive.objects.create(name={name!r}, url={url!r})
BizReceive.objects.create(biz=Biz.objects.get(name="orders"), receive=receive,
                          event_types=[{event_type!r}], schedule=[1], status={status})
"""
PAYLOAD = """
import json
from notify.models import BizMsg
print(json.dumps(bytes(BizMsg.objects.get(id={id}).payload).decode()))
"""
GATEWAY = """
from gateway.models import SmsAccount, SmsGateway
from msgplatform.models import Biz
SmsGateway.objects.create(name="north", host="127.0.0.1", port={port}, login_name="sp",
    login_password="secret", smg_login_name="north", smg_login_password="secret", corp_id="99999")
biz = Biz.objects.get(name="orders")
SmsAccount.objects.create(biz=biz, name="orders", sp_number="10655", corp_id="12345",
                          is_default=True)
SmsAccount.objects.create(biz=biz, name="quiet", sp_number="10656", corp_id="12345", report_flag=2)
"""
SEND_SMS = """
import os
from msgplatform_client import Client

with Client(os.environ["MSGPLATFORM_URL"], os.environ["MSGPLATFORM_KEY"]) as client:
    sent = client.send_sms(["13800000002", "13800000003"], "hello", key="two", reference="order-7")
    again = client.send_sms(["13800000002", "13800000003"], "hello", key="two", reference="order-7")
    assert (sent.outcome, again.outcome, again.ids) == ("created", "duplicate", sent.ids)
    endings = [[*client.follow_sms(id, seconds=240)][-1] for id in sent.ids]
    assert [each.reference for each in endings] == ["order-7"] * 2
    print(*[each.state for each in endings])
"""
PLATFORM_CONSUMERS = """
consumers:
  cellar:
    url: https://cellar.example/hooks
    headers:
      X-Api-Key: ${HOOK_TOKEN}
"""
PLATFORM_TYPES = """event-types:
  order.paid:
    description: Paid
    schema:
      type: object
      required: [order]
      properties: {order: {type: string}, items: {type: array, items: {$ref: "#/$defs/Item"}}}
      $defs: {Item: {type: object, properties: {sku: {type: string}}}}
  order.gone:
    description: "Gone"
"""
GOOD_PAYLOAD = """
from events import EventType, OrderPaid

paid: OrderPaid = {"order": "7", "items": [{"sku": "a"}]}
name: EventType = "order.gone"
"""
FORMATS = """
import json
from msgplatform.models import Biz
from notify.models import BizReceive, Receive
secrets = []
for format in ("standard", "cloudevents", "cloudevents-binary"):
    receive = Receive.objects.create(name=format, url={url!r})
    secrets.append(receive.secret)
    BizReceive.objects.create(biz=Biz.objects.get(name="orders"), receive=receive,
                              event_types=["format.*"], format=format)
print(json.dumps(secrets))
"""
LOGINS = """
from concurrent.futures import ThreadPoolExecutor
from msgplatform_client.cli import profiles

with ThreadPoolExecutor(8) as pool:
    for number in range(40):
        pool.submit(profiles.keep, str(number), profiles.Profile("url", "key"))
print(len(profiles.load()))
"""
VERIFY = """
import json, sys
from msgplatform_client import WebhookVerificationError, verify

for headers, body, secrets in json.load(open(sys.argv[1])):
    is_binary = "ce-type" in headers
    for secret in secrets:
        try:
            it = verify(headers, body, secret, prefix="Webhook", is_binary=is_binary)
        except WebhookVerificationError:
            continue
        print(it.id, it.type, it.data, it.idempotency_key, it.source)
        if is_binary:
            try:
                verify(headers, body, secret)
            except WebhookVerificationError as error:
                assert "is_binary" in str(error)
            else:
                raise AssertionError("a binary one was read as another format")
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[SmsCluster]:
    # Short, because a socket's path may have only 107 bytes.
    folder = Path(tempfile.mkdtemp(prefix="mp-cli-"))
    database_url = f"sqlite:///{folder / 'platform.db'}"
    gateways = {"north": ["--behaviour=happy"]}
    with SmsCluster(folder, database_url, gateways, (WEB, *DAEMONS)) as running:
        yield running
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> PythonProject:
    return PythonProject(tmp_path_factory.mktemp("python"))


@pytest.fixture(scope="module")
def keys(cluster: SmsCluster) -> list[str]:
    """A key that may do everything for the system `orders`, one that reads, one that manages."""
    return list(cluster.script(KEYS))


@pytest.fixture
def nobody(project: PythonProject, tmp_path: Path, keys: list[str]) -> CommandLine:
    """Somebody who is not logged in."""
    return CommandLine(project, tmp_path / "home", *keys)


@pytest.fixture
def msgp(nobody: CommandLine, cluster: SmsCluster, keys: list[str]) -> CommandLine:
    """Somebody with a key of `orders` in the environment."""
    nobody.environment |= {"MSGP_URL": cluster.base_url, "MSGP_KEY": keys[0]}
    return nobody


@pytest.fixture
def manager(msgp: CommandLine, keys: list[str]) -> CommandLine:
    """The same with a management key."""
    own = CommandLine(msgp.project, msgp.folder, *msgp.secrets)
    own.environment = {**msgp.environment, "MSGP_KEY": keys[2]}
    return own


def subscribe(
    cluster: SmsCluster, name: str, consumer: Consumer, event_type: str, status: str = "NORMAL"
) -> None:
    row = {"name": name, "url": consumer.url, "event_type": event_type}
    cluster.console.run(CONSUMER.format(**row, status=f"BizReceive.Status.{status}"))


def test_login(nobody: CommandLine, cluster: SmsCluster, keys: list[str], tmp_path: Path) -> None:
    key, reader, _ = keys
    url = cluster.base_url
    assert "msgp login" in nobody.refusal("whoami", code=3)
    wrong = key[:-1] + ("a" if key[-1] != "a" else "b")
    assert "not valid" in nobody.refusal("login", url, "--key", wrong, code=3)
    assert "begins with mp_" in nobody.refusal("login", url, "--key", "hunter2", code=2)
    for address in ("messages", "https://192.168.1.300"):
        assert "https://" in nobody.refusal("login", address, "--key", key, code=2)
    assert "needs the key" in nobody.refusal("login", url, code=2)
    nowhere = ("login", "http://127.0.0.1:9", "--key", key, "--patience", "0")
    assert "does not answer" in nobody.refusal(*nowhere, code=4)
    socks = ("login", "http://messages.example", "--key", key)
    assert "ALL_PROXY" in nobody.refusal(*socks, code=2, ALL_PROXY="socks5://127.0.0.1:9")
    with Consumer(200, b"<p>hello").listening() as other:
        assert "unknown form" in nobody.refusal("login", other.url, "--key", key, code=1)
    assert not (tmp_path / "home/config").exists()  # nothing was kept

    # As an editor of Windows stores it.
    said = nobody("login", f"{url}/", "--key", "-", stdin=f"\ufeff{key}\n").out
    assert said == f"Logged in to {url} with the key till of the system orders.\n"
    (file,) = (tmp_path / "home/config/msgp").iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    code, shown = nobody.on_a_terminal(
        "login", "--profile", "reader", typed={"platform: ": url, "API key: ": reader}
    )
    assert code == 0, shown
    assert reader not in shown

    whoami = nobody("whoami", "--json").json
    assert (whoami["name"], whoami["system"]) == ("till", "orders")
    assert nobody("whoami", "--profile", "reader").lines[1:] == ["  events:read"]
    assert nobody("--profile", "reader", "whoami").lines[1:] == ["  events:read"]
    by_environment = nobody("whoami", "--json", MSGP_KEY=reader, MSGP_URL=url).json
    assert by_environment["name"] == "reader"
    assert "MSGP_KEY" in nobody.refusal("whoami", code=3, MSGP_URL="http://elsewhere.example")
    refusal = nobody.refusal("publish", "a.b", "1", "--profile", "reader", code=3)
    assert "events:write" in refusal
    full_disk = ["bash", "-c", 'ulimit -f 0; exec "$0" "$@"', str(nobody.project.msgp)]
    done = subprocess.run(
        [*full_disk, "login", url, "--key", key], cwd=nobody.folder, env=nobody.environment,
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert "cannot be written" in done.stderr
    assert [*file.parent.iterdir()] == [file]  # no copy with keys
    assert [line.split()[0] for line in nobody("profiles").lines] == ["default", "reader"]
    nobody("logout")
    assert "There are: reader" in nobody.refusal("whoami", code=3)
    nobody.refusal("logout", code=3)
    file.write_text("{")
    assert "log in again" in nobody.refusal("whoami")


def test_logins_at_once(project: PythonProject, tmp_path: Path) -> None:
    program = project.code("logins", LOGINS)
    assert project.run(program, XDG_CONFIG_HOME=str(tmp_path)) == "40\n"


def test_publish(msgp: CommandLine, cluster: SmsCluster, tmp_path: Path) -> None:
    paid = ("publish", "order.paid", '{"amount": 99.00, "名": "小米"}', "-k", "7-paid")
    first = msgp(*paid, "--json").json
    assert first["outcome"] == "created"
    assert first["recipients"] == 0
    again = msgp(*paid, "--json").json  # nobody counts the recipients of a duplicate
    assert again == {"outcome": "duplicate", "id": first["id"]}
    assert cluster.script(PAYLOAD.format(id=first["id"])) == paid[2]  # 99.00 is not 99.0
    assert msgp("message", first["id"], "--payload").lines[-1] == paid[2]
    signs = msgp("publish", "order.paid", '"é 北京 😀"', "--json").json["id"]
    done = msgp("message", signs, "--payload", "--json", PYTHONIOENCODING="ascii")
    assert (done.json["payload"], done.out.isascii()) == ("é 北京 😀", True)
    other = ("publish", "order.paid", "1", "-k", "7-paid", "--json")
    refusal = json.loads(msgp(*other, code=1).err)
    assert (refusal["exit_code"], refusal["problem"]["type"]) == (1, "/problems/conflict")
    (tmp_path / "order.json").write_text('\ufeff{"order": 8}')
    for arguments in (["--file", str(tmp_path / "order.json")], ["-"], []):
        made = msgp("publish", "order.paid", *arguments, "--json", stdin='{"order": 8}').json
        assert json.loads(cluster.script(PAYLOAD.format(id=made["id"]))) == {"order": 8}
    for arguments, words in (
        (["publish", "order.paid", "{"], "line 1, column 2"),
        (["publish", "order.paid", "NaN"], "NaN"),
        (["publish", "order.paid", "1", "--file", "x"], "not both"),
        (["publish", "order.paid", "--file", "/nowhere"], "/nowhere cannot be read"),
        (["publish"], "event type"),
        (["message", "../key"], "no id"),
        (["publish", "--batch", "-k", "x"], "--batch"),
        (["tail", "--lines", "many"], "--lines"),
        (["publsh"], "publsh"),
    ):  # fmt: skip
        assert words in msgp.refusal(*arguments, code=2), arguments
    assert "order.paid" in msgp.refusal("publish", "order paid", "1")  # how to write it
    assert "Nothing has this id" in msgp.refusal("message", "1")


def test_publish_lines(msgp: CommandLine, cluster: SmsCluster) -> None:
    events = [
        {"event_type": "line.a", "payload": {"n": 1}, "idempotency_key": "l1"},
        {"event_type": "line b", "payload": 2},
        {"event_type": "line.a", "payload": None, "idempotency_key": "l3", "channel": "shop-1"},
    ]
    text = "\n".join(json.dumps(event) for event in events)
    for outcome in ("created", "duplicate"):
        done = msgp("publish", "--batch", "--json", stdin=text, code=1)
        assert [each["outcome"] for each in done.objects] == [outcome, "rejected", outcome]
        assert "1 of 3" in done.err
    assert len(msgp("publish", "line.c", "--batch", stdin="1\n\n2\n").lines) == 2
    refusal = msgp.refusal("publish", "--batch", stdin=f"{text}\n{{", code=2)
    assert "Line 4" in refusal
    assert "Line 1 is no event" in msgp.refusal("publish", "--batch", stdin="[]", code=2)
    # A payload stays as it is written; the platform refuses the number that is too large, alone.
    payload = r'{"a": 99.00, "b": 0.12345678901234567890123, "d": ["\u540d, {:"]}'
    lines = [
        f' {{"event_type" : "line.d","payload" :{each} , "idempotency_key": "l4"}}'
        for each in (payload, "1e999")
    ]
    exact, large = msgp("publish", "--batch", "--json", stdin="\n".join(lines), code=1).objects
    assert cluster.script(PAYLOAD.format(id=exact["id"])) == payload
    assert (large["outcome"], large["field"]) == ("rejected", "payload")


def test_follow(msgp: CommandLine, cluster: SmsCluster) -> None:
    with Consumer().listening() as good, Consumer(500, b"no \x1b[2J").listening() as bad:
        subscribe(cluster, "good", good, "follow.good")
        subscribe(cluster, "bad", bad, "follow.*")
        done = msgp("publish", "follow.bad", "1", "--follow", "--json", code=1)
        (delivery,) = done.objects[-1]["deliveries"]
        assert (delivery["consumer"], delivery["status"]) == ("bad", "exhausted")
        shown = msgp("message", done.objects[0]["id"], "--payload").out
        assert "500" in shown
        assert "\x1b" not in shown
        assert r"no \x1b[2J" in shown
        bad.status = 204
        done = msgp("publish", "follow.good", "1", "--follow")
        assert {"bad delivered 204", "good delivered 204"} <= set(done.lines[-1].split("  "))
        id = done.lines[0].split()[0]
        assert msgp("follow", id, "--json").json["id"] == id
        assert "nobody subscribes" in msgp("publish", "other.thing", "1", "--follow").lines[-1]
        # Not paused: on SQLite a process that stands still in a transaction holds up the intake.
        cluster.stop("run_maker")
        try:
            done = msgp("publish", "follow.good", "2", "--follow", "--timeout", "0", code=5)
        finally:
            cluster.start("run_maker")
        assert done.lines[-1].endswith("accepted")


def test_tail(msgp: CommandLine, cluster: SmsCluster) -> None:
    for n in range(3):
        msgp("publish", "tail.early", str(n))
    assert len(msgp("tail", "--event", "tail.early", "-n", "2", "--no-follow").lines) == 2
    with (
        Consumer().listening() as consumer,
        msgp.running("tail", "--event", "tail.now", "--json", "--interval", "0.2") as tail,
    ):
        subscribe(cluster, "tailed", consumer, "tail.now")
        ids = [msgp("publish", "tail.now", "1", "--json").json["id"] for _ in range(2)]
        delivered: set[str] = set()
        while delivered != set(ids):
            message = json.loads(next_line(tail.stdout))
            assert message["event_type"] == "tail.now"
            if [each["status"] for each in message["deliveries"]] == ["delivered"]:
                delivered.add(message["id"])
        cluster.restart(WEB)
        last = msgp("publish", "tail.now", "3", "--json", "--patience", "120").json["id"]
        while json.loads(next_line(tail.stdout))["id"] != last:
            pass
        assert msgp.interrupt(tail).code == 130


def test_tail_of_an_older_event(msgp: CommandLine, cluster: SmsCluster, keys: list[str]) -> None:
    """An event that gets the status after a newer one had it."""
    with Consumer().listening() as consumer:
        subscribe(cluster, "paused", consumer, "older.paused", "PAUSED")
        subscribe(cluster, "prompt", consumer, "older.prompt")
        channel = ("--channel", "older")
        older = msgp("publish", "older.paused", "1", *channel, "--json").json["id"]
        done = msgp("publish", "older.prompt", "1", *channel, "--follow", "--json")
        arguments = ("tail", *channel, "--status", "delivered", "--json", "--interval", "0.2")
        with msgp.running(*arguments) as tail:
            assert json.loads(next_line(tail.stdout))["id"] == done.objects[0]["id"]
            requests.post(
                f"{cluster.base_url}/api/v1/held/orders/paused/release",
                headers={"Authorization": f"Bearer {keys[2]}"},
                timeout=300,
            ).raise_for_status()
            assert json.loads(next_line(tail.stdout))["id"] == older
            assert msgp.interrupt(tail).code == 130


def test_releases(msgp: CommandLine) -> None:
    """An older msgp works, and says that it is older."""
    own = msgplatform.__version__
    assert msgp("version", "--json").json == {"client": own, "platform": own}
    assert not msgp("whoami").err
    (metadata,) = msgp.project.folder.glob("venv/lib/*/site-packages/msgplatform_client-*/METADATA")
    text = metadata.read_text()
    try:
        metadata.write_text(re.sub("(?m)^Version: .*$", "Version: 0.0.9", text))
        assert "an older release than the platform" in msgp("whoami").err
        assert "0.0.9" in msgp("tail", "--no-follow", "--json").err + msgp("version").out
    finally:
        metadata.write_text(text)


def test_help_and_colours(nobody: CommandLine) -> None:
    text = nobody("--help").out
    commands = re.findall(r"(?m)^│ ([a-z]+) ", text)
    assert {"login", "publish", "tail"} <= set(commands)
    assert "\x1b" not in text
    for name in ("login", "publish"):
        assert f"msgp {name} " in nobody(name, "--help").out  # an example
    assert "\x1b[31m" in nobody("whoami", code=3, FORCE_COLOR="1").err
    assert "\x1b[31m" not in nobody("whoami", code=3, FORCE_COLOR="1", NO_COLOR="1").err
    # It looks for the shell that has started it.
    shell = subprocess.run(
        ["bash", "-c", f"{nobody.project.msgp} --show-completion; exit"],
        env=nobody.environment, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "_msgp_completion" in shell.stdout


def test_texts(msgp: CommandLine, cluster: SmsCluster, keys: list[str]) -> None:
    cluster.console.run(GATEWAY.format(port=cluster.ports["north"]))
    for name in ("north", "receiver", "sender-a"):
        cluster.start(name)
    sent = msgp(
        "sms", "send", "您的验证码是 1234", "13800000000", "13800000001", "--follow", "--json"
    )
    ids = sent.objects[0]["ids"]
    ended = {each["id"]: each["state"] for each in sent.objects[1:]}
    assert ended == dict.fromkeys(ids, "delivered")
    numbers = {user for user, _part in cluster.books["north"].accepted()}
    assert numbers == {"8613800000000", "8613800000001"}
    shown = msgp("sms", "show", ids[0]).lines
    assert shown[0] == f"{ids[0]}  8613800000000  delivered"
    assert msgp("sms", "follow", ids[0], "--json").json["state"] == "delivered"
    assert "to" in msgp.refusal("sms", "send", "hello", "not a number")
    quiet = msgp("sms", "send", "hello", "13800000005", "--account", "quiet", "--follow", "--json")
    assert quiet.objects[-1]["state"] == "accepted"  # no Report follows: it is a good end
    away = msgp.refusal(
        "sms", "send", "hello", "13800000004", "--patience", "0",
        code=4, MSGP_URL="http://127.0.0.1:9",
    )  # fmt: skip
    assert "Repeat it with --idempotency-key" in away
    program = msgp.project.code("texts", SEND_SMS)
    environment = {"MSGPLATFORM_URL": cluster.base_url, "MSGPLATFORM_KEY": keys[0]}
    assert msgp.project.run(program, **environment) == "delivered delivered\n"


def test_one_timeout_for_all_texts(msgp: CommandLine) -> None:
    """It is over when the first text has ended: the second is looked at once."""
    paths: list[str] = []

    def answer(path: str) -> bytes:
        paths.append(path)
        is_first = path.endswith("/1")
        if is_first:
            time.sleep(1)
        text = {"id": path[-1], "to": "8613800000000", "state": ["pending", "delivered"][is_first]}
        return json.dumps({**text, "outcome": "created", "ids": ["1", "2"]}).encode()

    with Consumer(200, answer).listening() as platform:
        send = ("sms", "send", "hello", "13800000000", "13800000001", "--follow", "--timeout", "1")
        refusal = msgp.refusal(*send, code=5, MSGP_URL=platform.url)
    assert "not ended after 1 s" in refusal
    assert paths == ["/api/v1/sms", "/api/v1/sms/1", "/api/v1/sms/2"]


def test_failures(msgp: CommandLine, manager: CommandLine, cluster: SmsCluster) -> None:
    cluster.start("run_bulk")
    with Consumer(503).listening() as consumer:
        subscribe(cluster, "broken", consumer, "fail.once")
        id = msgp("publish", "fail.once", "1", "--follow", "--json", code=1).objects[0]["id"]

        def is_told() -> bool:
            """Asked for directly, as a command that is asked again and again takes a core."""
            answer = cluster.get("/api/v1/failures?flow=notify", manager.environment["MSGP_KEY"])
            return any(group["message"] == id for group in answer["results"])

        cluster.wait_until(is_told, "the group of failures")
        groups = manager("failures", "--flow", "notify", "--json").objects
        (failure,) = (group for group in groups if group["message"] == id)
        assert "503" in failure["answer"]
        assert "broken" in manager("failures").out
        consumer.status = 204
        assert "msgp failures" in manager.refusal("resend", failure["id"], "--preview", code=2)
        done = manager("resend", failure["id"], "--follow", "--json")
        assert (done.objects[0]["total"], done.objects[-1]["state"]) == (1, "done")
        assert msgp("follow", id).lines[-1].endswith("broken delivered 204")
        filters = ("--filter", f"ids={id}", "--filter", "status=delivered")
        assert manager("resend", *filters, "--preview", "--json").json["total"] == 1
        assert "--yes" in manager.refusal("resend", *filters, code=2)
        resend = ("resend", *filters, "--yes", "--json")
        assert manager(*resend, "--follow").objects[-1]["done"] == 1
        with LossyNetwork(cluster.base_url).running() as network:
            lossy = manager.refusal(*resend, "--patience", "0", code=4, MSGP_URL=network.url)
        (key,) = re.findall("Repeat it with --idempotency-key ([^ :]+):", lossy)
        jobs = [manager(*resend, "--idempotency-key", key).json["id"] for _ in range(2)]
        assert jobs[0] == jobs[1]
        assert "a group has none" in manager.refusal("resend", failure["id"], "-k", key, code=2)
    assert "manage:failures" in msgp.refusal("failures", code=3)
    assert "filters" in manager.refusal("resend", code=2)
    assert "status=exhausted" in manager.refusal("resend", "--filter", "status", code=2)
    twice = ("--filter", "status=exhausted", "--filter", "status=poison")
    assert "twice" in manager.refusal("resend", *twice, "--preview", code=2)
    manager.refusal("resend", "999999999")


def test_try_a_filter(msgp: CommandLine, manager: CommandLine, cluster: SmsCluster) -> None:
    with Consumer().listening() as consumer:
        subscribe(cluster, "tried", consumer, "tried.*")
        for total in (12, 101):
            msgp("publish", "tried.order", f'{{"total": {total}}}')
        document = '{"data": {"total": {"$gt": 100}}}'
        tried = manager("filter", "orders/tried", document, "--json").json
        assert (tried["tried"], tried["matching"]) == (2, 1)
        assert tried["last_day"] == {"events": 2, "coming": 2, "matching": 1, "is_whole": True}
        assert "data.total is not > 100" in manager("filter", "orders/tried", document).out
        saved = manager("filter", "orders/tried", "--file", "-", stdin="").lines
        assert saved[-2] == "2 of the latest 2 events would come"
    assert "not JSON" in manager.refusal("filter", "orders/tried", "{", code=2)
    assert "orders/warehouse" in manager.refusal("filter", "orders", code=2)
    assert "begins with one of" in manager.refusal("filter", "orders/tried", '{"total": 1}')
    assert "manage:subscriptions" in msgp.refusal("filter", "orders/tried", code=3)


def test_platform_files(
    manager: CommandLine, cluster: SmsCluster, keys: list[str], tmp_path: Path
) -> None:
    folder = tmp_path / "platform"
    folder.mkdir()
    (folder / "consumers.yaml").write_text(PLATFORM_CONSUMERS)
    types = folder / "types.yml"
    types.write_text(PLATFORM_TYPES)
    manager.environment["HOOK_TOKEN"] = "token-7f3a"
    manager.secrets = (*manager.secrets, "token-7f3a", "whsec_")
    apply = ("apply", str(folder))
    assert "HOOK_TOKEN" in manager.refusal(*apply, code=2, HOOK_TOKEN="")
    assert manager(*apply, "--dry-run").lines[-1].startswith("3 added")
    manager("diff", str(folder), "--exit-code", code=1)
    made = tmp_path / "secrets.json"
    done = manager(*apply, "--new-secrets", str(made), "--label", "c0ffee")
    assert done.lines[-1].startswith("3 added")
    assert "+ consumers cellar" in done.out
    assert stat.S_IMODE(made.stat().st_mode) == 0o600
    assert json.loads(made.read_text())["consumers cellar"]["secret"].startswith("whsec_")
    assert manager("diff", str(folder), "--exit-code", "--json").json["dry_run"]
    assert manager("export", PYTHONIOENCODING="ascii").out == manager("export").out
    more = folder / "more.yaml"
    more.write_text("consumers:\n  attic:\n    url: https://attic.example/hooks\n")
    assert "New secrets of consumers attic are stored" in " ".join(manager(*apply).err.split())
    exported = tmp_path / "exported.yaml"
    manager("export", "-o", str(exported), "--section", "event-types")
    assert "order.paid" in exported.read_text()
    assert not exported.read_text().startswith("{")  # it is no JSON
    assert "cellar" in manager("export", "--json").json["consumers"]
    assert "at least one name" in manager.refusal("export", "--system", "")
    for form in ((), ("--json",)):
        assert "${" in manager("export", "--references", "--section", "consumers", *form).out
    module = tmp_path / "events.py"
    manager("types", "-o", str(module))
    judged(module, tmp_path)

    text = types.read_text()
    types.write_text(text.replace("description: Paid", "descripton: Paid"))
    refusal = manager.refusal(*apply)
    assert re.search(r"types\.yml:3: event-types\.order\.paid\.descripton", refusal), refusal
    types.write_text(text.replace("  order.gone:", "  - order.gone:"))
    assert "types.yml:" in manager.refusal(*apply, code=2)
    types.write_text(text[: text.index("  order.gone:")])
    assert "--yes" in manager.refusal("apply", str(types), "--prune", code=2)
    code, shown = manager.on_a_terminal("apply", str(types), "--prune", typed={"[y/N]: ": "n"})
    assert (code, "event-types order.gone" in shown) == (1, True), shown
    done = manager("apply", str(types), "--prune", "--yes", "--json")
    assert [each["name"] for each in done.json["changes"] if each["action"] == "removed"] == [
        "order.gone"
    ]
    literal = tmp_path / "literal.yaml"
    literal.write_text("consumers: {a: {url: https://a.example, headers: {X-Key: hunter2}}}")
    assert "literal.yaml:1" in manager.refusal("diff", str(literal), code=2)
    literal.write_text("consumers: {a: {url: https://a.example, headers: {X-Key: '${MSGP_KEY}'}}}")
    assert "MSGP_KEY" in manager.refusal("diff", str(literal), code=2)
    for text in ("{{ URL }}: 1", "a: !!binary aa", f"a: {'9' * 5_000}", "a: 1e+999"):
        literal.write_text(text)
        assert "literal.yaml" in manager.refusal("diff", str(literal), code=2)
    literal.write_text("1.10: {}")
    assert "literal.yaml:1: 1.10" in manager.refusal("diff", str(literal))
    literal.write_text("consumers: [a]")
    assert "literal.yaml:1: consumers" in manager.refusal("diff", str(literal))
    both = ("diff", str(literal), str(folder / "consumers.yaml"))
    assert "consumers.yaml:2: consumers" in manager.refusal(*both, code=2)
    assert "literal.yaml:1: consumers" in manager.refusal(both[0], *both[:0:-1], code=2)
    turned = tmp_path / "turned.yaml"
    turned.write_text('event-types:\n  order.turned:\n    example: {note: "yes\\u202eon"}\n')
    manager("apply", str(turned))
    for form in ((), ("--json",)):
        code, shown = manager.on_a_terminal("export", *form, typed={})
        assert (code, r"yes\u202eon" in shown, "\u202e" in shown) == (0, True, False)
    assert secret_fields(cluster.get("/api/v1/platform/schema", keys[2])) == {
        ("alert-channels", "url"), ("consumers", "headers"), ("crms", "credentials"),
        ("sources", "database"),
        ("sms/gateways", "login_password"), ("sms/gateways", "smg_login_password"),
    }  # fmt: skip


def test_types(manager: CommandLine, cluster: SmsCluster, keys: list[str]) -> None:
    """Those that all systems share, and with --system those of one system before them."""
    for address, field in (
        ("event-types/typed.thing", "of_all"),
        ("systems/orders/event-types/typed.thing", "of_orders"),
        ("systems/orders/event-types/typed.own", "own"),
    ):
        schema = {"type": "object", "properties": {field: {"type": "string"}}}
        cluster.put(f"/api/v1/{address}", {"schema": schema}, keys[2])
    shared, of_orders = manager("types").out, manager("types", "--system", "orders").out
    assert "of_all: " in shared
    assert "of_orders: " not in shared
    assert "typed.own" not in shared
    assert "of_all: " not in of_orders
    assert "of_orders: " in of_orders
    assert "typed.own" in of_orders


def test_a_lost_answer_names_the_key(msgp: CommandLine, cluster: SmsCluster) -> None:
    """The command under the key that its error names makes no second event."""
    with LossyNetwork(cluster.base_url).running() as network:
        arguments = ("publish", "lost.event", "1", "--patience", "0")
        refusals = [
            msgp.refusal(*arguments, *more, code=4, MSGP_URL=network.url)
            for more in ([], ["--json"])
        ]
        refusal = msgp.refusal(*arguments, "-k", "lost-1", code=4, MSGP_URL=network.url)
        assert "Repeat it" not in refusal
        assert len(network.lost) == 3
    keys = [re.findall("Repeat it with --idempotency-key ([^ :]+):", each)[0] for each in refusals]
    for key in (*keys, "lost-1"):
        assert msgp(*arguments, "-k", key, "--json").json["outcome"] == "duplicate"
    assert "Repeat it" not in msgp.refusal("publish", "lost event", "1")


def test_lost_answers(
    msgp: CommandLine, manager: CommandLine, cluster: SmsCluster, keys: list[str], tmp_path: Path
) -> None:
    """New secrets are in one answer only: what may have happened is not repeated."""
    file, secrets = tmp_path / "lost.yaml", tmp_path / "secrets.json"
    apply = ("apply", str(file), "--new-secrets", str(secrets))
    file.write_text("consumers: {lost: {url: nonsense}}")
    assert "Nothing was changed" in manager.refusal(*apply)
    assert not secrets.exists()
    file.write_text("consumers: {unwritten: {url: https://unwritten.example/hooks}}")
    done = subprocess.run(
        ["bash", "-c", 'ulimit -f 0; exec "$0" "$@"', str(manager.project.msgp), *apply],
        cwd=manager.folder, env=manager.environment, capture_output=True, text=True, timeout=300,
        check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert "Secrets of consumers unwritten were in that answer only: rotate" in done.stderr
    secrets.unlink()
    file.write_text("consumers: {lost: {url: https://lost.example/hooks}}")
    with LossyNetwork(cluster.base_url).running() as network:
        refusal = manager.refusal(*apply, code=4, MSGP_URL=network.url)
        assert len(network.lost) == 1
        assert "msgp diff" in refusal
        assert "rotate" in refusal
        assert not secrets.exists()
        manager("diff", str(file), "--exit-code")  # it has happened

        msgp("login", network.url, "--profile", "manager", "--key", "-", stdin=keys[2])
        listen = ("listen", "lost-too", "--set-up", "manager", "--event", "lost.thing")
        refusal = msgp.refusal(*listen, code=4)
        assert network.lost[1:] == ["/api/v1/consumers/lost-too"]
        assert "consumers/lost-too/rotate" in refusal
    began = time.monotonic()  # nobody answers there now
    assert "rotate" not in msgp.refusal(*listen, "--patience", "0", code=4)
    assert time.monotonic() - began < 100, "the client's own patience is 120 s"
    msgp("login", cluster.base_url, "--profile", "manager", "--key", "-", stdin=keys[2])
    with msgp.running(*listen) as listener:
        assert "Listening" in next_line(listener.stderr)
        assert msgp.interrupt(listener).out == ""  # no secret


def judged(module: Path, folder: Path) -> None:
    """Strict mypy takes the types, and a payload that has them, and refuses another one."""
    (folder / "good.py").write_text(GOOD_PAYLOAD)
    (folder / "bad.py").write_text(GOOD_PAYLOAD.replace('"7"', "7"))
    strict = ["mypy", "--strict", "--config-file=", "--no-incremental"]
    done = subprocess.run(
        [sys.executable, "-m", *strict, str(module), "good.py", "bad.py"], cwd=folder,
        capture_output=True, text=True, timeout=900, check=False,
    )  # fmt: skip
    (error,) = (line for line in done.stdout.splitlines() if " error: " in line)
    assert re.match('bad.py:.*"order"', error), done.stdout


def secret_fields(schema: dict[str, Any]) -> set[tuple[str, str]]:
    """Section and name of each field that is written only, as the client knows them by heart."""
    fields = set()
    for section, each in schema["properties"].items():
        for option in each.get("additionalProperties", {}).get("anyOf", ()):
            body = schema["$defs"].get(option.get("$ref", "").rpartition("/")[2], {})
            for name, field in body.get("properties", {}).items():
                if field.get("writeOnly"):
                    fields.add((section, name))
    return fields


def test_listen(msgp: CommandLine, cluster: SmsCluster, keys: list[str]) -> None:
    msgp("login", cluster.base_url, "--profile", "manager", "--key", "-", stdin=keys[2])
    local = Consumer(port=free_port())  # nobody listens there yet
    arguments = ("listen", "dev-anna", "--set-up", "manager", "--event", "listen.*", "--filter",
                 '{"data": {"$neq": "left out"}}', "--forward", local.url, "--json")  # fmt: skip
    with msgp.running(*arguments) as listener:
        secret = json.loads(next_line(listener.stdout))["secret"]

        def next_result() -> Any:
            return json.loads(next_line(listener.stdout))

        msgp("publish", "listen.a", '"left out"')
        first = msgp("publish", "listen.a", '{"n": 1}', "--json").json["id"]
        while "waits" not in json.loads(next_line(listener.stderr))["note"]:
            pass
        with local.listening(local.port):
            result = next_result()
            assert (result["message_id"], result["attempt"], result["outcome"]) == (
                first, 1, "delivered")  # fmt: skip
            headers, body = local.seen[0]
            assert Webhook(secret).verify(body, headers)["data"] == {"n": 1}
            cluster.restart(WEB)
            local.first_statuses = [500]
            second = msgp("publish", "listen.b", "2", "--json", "--patience", "120").json["id"]
            assert next_result()["outcome"] == "failed"
            result = next_result()
            assert (result["message_id"], result["attempt"], result["outcome"]) == (
                second, 2, "delivered")  # fmt: skip
            # A status counts as it does for the platform's senders, whatever follows it.
            local.status, local.is_cut_off = 200, True
            cut_off = msgp("publish", "listen.cut", "1", "--json").json["id"]
            result = next_result()
            assert (result["message_id"], result["status"], result["outcome"]) == (
                cut_off, 200, "delivered")  # fmt: skip
            local.is_cut_off, local.answer = False, "系统".encode("gbk")
            local.content_type = "text/plain; charset=gbk"
            answered = msgp("publish", "listen.gbk", "1", "--json").json["id"]
            assert next_result()["message_id"] == answered
            deliveries = msgp("message", answered, "--json").json["deliveries"]
            assert "系统" in [a["response_body"] for d in deliveries for a in d["attempts"]]
            with msgp.running("listen", "dev-anna", "--take-over", "--json") as other:
                assert listener.wait(timeout=300) == 1  # it says who has its place
                with msgp.running("listen", "dev-anna", "--take-over", "--json") as newest:
                    # Its first request waited: it does not take the place back.
                    assert other.stderr
                    assert "waiting for its place" not in other.stderr.read()
                    assert other.wait(timeout=300) == 1
                    done = msgp("publish", "listen.c", "3", "--follow")
                    assert done.lines[-1].endswith("dev-anna delivered 200")
                    printed = json.loads(next_line(newest.stdout))
                    assert json.loads(printed["body"])["data"] == 3
                    assert msgp.interrupt(newest).code == 130
            with msgp.running("listen", "dev-anna", "--take-over", "--json") as unread:
                assert unread.stdout
                unread.stdout.close()
                fourth = msgp("publish", "listen.d", "4", "--json").json["id"]
                assert unread.wait(timeout=300) == 1
            # What could not be printed was not acknowledged.
            with msgp.running("listen", "dev-anna", "--take-over", "--json") as other:
                assert json.loads(next_line(other.stdout))["message_id"] == fourth
    assert "no subscription" in msgp.refusal("listen", "nobody-there")
    subscribe(cluster, "pushed-to", local, "pushed.thing")
    assert "pushed" in msgp.refusal("listen", "pushed-to")
    assert "--set-up" in msgp.refusal("listen", "dev-anna", "--event", "a.b", code=2)
    for address in ("localhost:1", "http://localhost:abc", "http://localhost:99999", "http://"):
        refusal = msgp.refusal("listen", "dev-anna", "--forward", address, code=2)
        assert "http://localhost:3000" in refusal, address


def test_formats_of_deliveries(msgp: CommandLine, cluster: SmsCluster, tmp_path: Path) -> None:
    """`verify` of the client reads each format that a subscription can have."""
    consumer = Consumer()
    with consumer.listening():
        secrets = cluster.script(FORMATS.format(url=consumer.url))
        id = msgp("publish", "format.a", '{"n": 1}', "-k", "f1", "--follow", "--json").objects[0][
            "id"
        ]
    assert len(consumer.seen) == 3
    file = tmp_path / "seen.json"
    file.write_text(
        json.dumps([[headers, body.decode(), secrets] for headers, body in consumer.seen])
    )
    printed = msgp.project.run(msgp.project.code("formats", VERIFY), str(file))
    assert sorted(printed.splitlines()) == sorted(
        f"{id} format.a {{'n': 1}} f1 {source}"
        for source in ("", "/systems/orders", "/systems/orders")
    )
