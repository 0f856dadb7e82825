"""The encryption of what was stored in clear, and the rotation of the key under traffic."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.harness.mariadb import MariaDb
from bench.harness.migrated import fill
from demo.notify.traffic import Accepted, publish_all
from msgplatform.core.secrets import encryption
from notify.subscriptions import signing
from tests.cluster import DAEMONS, WEB, Cluster, Console
from tests.flows import dumps
from tests.flows.conftest import KINDS
from tests.flows.traffic import SINKS, SYSTEMS, assert_marked, cast, missing
from tests.program_host import run_program

ROUND = 40
_REST_SECONDS = 0.5  # between two rounds, so that restarts have the machine
SPARE = 300  # consumers without a subscription, so that the command has pages to be killed between

SET_SECRETS = """
from notify.models import Receive
for name, secret in {secrets!r}.items():
    Receive.objects.filter(name=name).update(secret=secret, headers={{"Authorization": "Bearer x"}})
Receive.objects.bulk_create(
    Receive(name=f"spare-{{n}}", url="http://127.0.0.1:9/") for n in range({spare}))
print(1)
"""
STATES = """
import json
from collections import Counter
from msgplatform.core.secrets import reencrypt
print(json.dumps(dict(sum(map(reencrypt.count, reencrypt.columns()), Counter()))))
"""
ATTEMPTS = """
import json
from msgplatform.models import Alert
from notify.models import Attempt
refused = Attempt.objects.exclude(http_status=200).values_list("http_status", "error")
print(json.dumps([[*map(list, refused)], [*Alert.objects.values_list("kind", flat=True)]]))
"""

CONSUMERS = 300  # more than a page
FILL = """
import json
from django.db import connection
from gateway.models import SmsGateway
from notify.models import Receive
Receive.objects.bulk_create(Receive(name=f"c{{n}}", url="http://x/") for n in range({count}))
SmsGateway.objects.create(
    name="city", host="h", port=1, login_name="sp", smg_login_name="smg", corp_id="12345")
with connection.cursor() as cursor:
    for n, row_id in enumerate(Receive.objects.order_by("id").values_list("id", flat=True)):
        cursor.execute(
            "UPDATE receive SET secret = %s, previous_secret = %s, headers = %s WHERE id = %s",
            [f"whsec_clear{{n:019d}}", "" if n % 2 else "whsec_oldclear",
             json.dumps({{"Authorization": f"Bearer clear-{{n}}"}}), row_id])
    cursor.execute(
        "UPDATE sms_gateway SET login_password = 'clear-ours', smg_login_password = 'clear-theirs'")
"""
AS_STORED = """
import json
from gateway.models import SmsGateway
from notify.models import Receive
for n, row in enumerate(Receive.objects.order_by("id")):
    assert row.secret == f"whsec_clear{n:019d}", row.secret
    assert row.previous_secret == ("" if n % 2 else "whsec_oldclear")
    assert row.headers == {"Authorization": f"Bearer clear-{n}"}
row = SmsGateway.objects.get()
assert (row.login_password, row.smg_login_password) == ("clear-ours", "clear-theirs")
print(Receive.objects.count())
"""


@pytest.fixture(params=KINDS)
def stored(request: pytest.FixtureRequest, mariadb: MariaDb) -> Iterator[tuple[Console, str]]:
    """A console on a database without tables."""
    folder = Path(tempfile.mkdtemp(prefix="mp-migrate-"))
    url = f"sqlite:///{folder / 'platform.db'}"
    if request.param == "server":
        url = mariadb.create(folder.name.replace("-", "_"))
    environment = {**os.environ, "DATABASE_URL": url, "STATE_DIR": str(folder)}
    console = Console(environment, folder / "console.log")
    yield console, url
    console.close()
    shutil.rmtree(folder, ignore_errors=True)


def manage(url: str, *command: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "DATABASE_URL": url, **variables}
    return run_program([sys.executable, "manage.py", *command], environment)


def test_what_was_in_clear_is_encrypted_however_often_it_is_interrupted(
    stored: tuple[Console, str],
) -> None:
    console, url = stored
    fill(url, lambda: manage(url, "migrate").check_returncode(), "everything")
    console.run(FILL.format(count=CONSUMERS))
    in_clear = {"whsec_clear", "Bearer clear-", "clear-ours", "clear-theirs", "whsec_oldclear"}
    assert console.run(AS_STORED).strip() == str(CONSUMERS), "clear text is read"
    for place in ("reencrypt.write", "reencrypt.page:2", "reencrypt.page:4"):
        done = manage(url, "rotate_encryption_key", MSGPLATFORM_FAILPOINT=place)
        assert done.returncode == -signal.SIGKILL, done.stderr[-2000:]
        assert console.run(AS_STORED).strip() == str(CONSUMERS)
        assert {"in clear text", "under the first key"} <= set(states(console))
    for _ in range(2):  # it can be repeated
        done = manage(url, "rotate_encryption_key")
        assert done.returncode == 0, done.stderr[-2000:]
        assert states(console).keys() == {"under the first key"}
        assert console.run(AS_STORED).strip() == str(CONSUMERS)
    console.close()
    raw = b"\0".join(dumps.database(url))
    assert [text for text in in_clear if text.encode() in raw] == []


def states(console: Console) -> Counter[str]:
    import json

    return Counter(json.loads(console.run(STATES).splitlines()[-1]))


class Traffic(threading.Thread):
    """Publishes round after round until it is told to stop."""

    def __init__(self, cluster: Cluster, tokens: dict[str, str]) -> None:
        super().__init__()
        self._cluster, self._tokens, self.stop = cluster, tokens, threading.Event()
        self.accepted: list[Accepted] = []

    def run(self) -> None:
        while not self.stop.wait(_REST_SECONDS):
            self.accepted += publish_all(self._cluster.base_url, self._tokens, ROUND, 2)


def test_the_key_is_rotated_while_webhooks_are_signed(cluster: Cluster) -> None:
    secrets = {name: signing.new_secret() for name in SINKS}
    manners = {name: ["--secret", secret] for name, secret in secrets.items()}
    old, new = cluster.environment["ENCRYPTION_KEY"], encryption.new_key()
    with cast(cluster, manners, SYSTEMS) as (tokens, sinks):
        cluster.script(SET_SECRETS.format(secrets=secrets, spare=SPARE))

        def progress() -> None:
            """Messages that are published from now on arrive, verified."""
            before = len(traffic.accepted)
            cluster.wait_until(lambda: len(traffic.accepted) > before + ROUND, "messages")
            published = list(traffic.accepted)
            cluster.wait_until(lambda: not missing(published, sinks), "their delivery")

        def use(keys: str) -> None:
            cluster.environment["ENCRYPTION_KEY"] = keys
            for name in (*DAEMONS, WEB):
                cluster.stop(name)
                cluster.start(name)
            cluster.console.close()
            cluster.console = Console(cluster.environment, cluster.folder / "console.log")
            progress()

        def rotate(failpoint: str = "") -> subprocess.CompletedProcess[str]:
            return run_program(
                [sys.executable, "manage.py", "rotate_encryption_key", "--page=50"],
                {**cluster.environment, "MSGPLATFORM_FAILPOINT": failpoint},
            )

        traffic = Traffic(cluster, tokens)
        traffic.start()
        try:
            use(f"{new},{old}")
            for place in ("reencrypt.write:3", "reencrypt.page:4"):
                assert rotate(place).returncode == -signal.SIGKILL
                assert {"under the first key", "under an old key"} <= cluster.script(STATES).keys()
                progress()
            done = rotate()
            assert done.returncode == 0, done.stderr[-2000:]
            assert "remove the others" in done.stdout
            assert "whsec_" not in done.stdout + done.stderr
            progress()
            use(new)
            assert cluster.script(STATES).keys() == {"under the first key"}
        finally:
            traffic.stop.set()
            traffic.join()
        cluster.wait_until(lambda: not missing(traffic.accepted, sinks), "every copy")
        assert_marked(cluster)
        assert cluster.script(ATTEMPTS) == [[], []], "each was delivered at once, without an alert"
