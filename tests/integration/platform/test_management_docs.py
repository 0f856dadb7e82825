"""The script of docs/management-api.md, as written, against the real web server."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from msgplatform.doors.api.access import keys
from msgplatform.models import AuditLog
from notify.maker.maker import Maker
from notify.models import BizMsg, Receive, ReceiveMsg
from tests.support.api_server import Server

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("work_redis")]
MANUAL = Path(__file__).parents[3] / "docs/management-api.md"


def test_from_nothing_to_the_first_message(tmp_path: Path) -> None:
    (script,) = re.findall(r"```python\n(.*?)```", MANUAL.read_text(), re.DOTALL)
    _key, plain = keys.create(None, "provisioning", keys.management_scopes())
    server = Server(tmp_path / "log", "tests.support.platform_asgi:application")
    try:
        address = f"http://127.0.0.1:{server.port}"
        given = {**os.environ, "MSGPLATFORM_URL": address, "MSGPLATFORM_KEY": plain}

        def run() -> str:
            done = subprocess.run(
                [sys.executable, "-c", script], env=given, capture_output=True, text=True,
                timeout=300, check=False,
            )  # fmt: skip
            assert done.returncode == 0, done.stderr
            return done.stdout

        said = run()
        logged = AuditLog.objects.count()
        assert run() == "", "the second time there is nothing to do"
    finally:
        server.stop()
    assert AuditLog.objects.count() == logged
    message = BizMsg.objects.get()
    assert f"published: {message.pk}" in said
    assert f"signing secret of the warehouse: {Receive.objects.get().secret}" in said
    Maker().turn()
    assert ReceiveMsg.objects.get().biz_receive.receive.name == "warehouse"
