"""Features that are left out: their folder and their line are deleted in a copy of the tree. The
rest works: checks, tables, pages, the document of the API, a message to its consumer."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from django.conf import settings

from msgplatform import env
from tests.servers import Servers

ESSENTIAL = {"msgplatform.company.signing_in"}
OPTIONAL = [name for name in settings.FEATURES if name not in ESSENTIAL]
FULL = bool(os.environ.get("MSGPLATFORM_FULL_LOAD"))
LEFT_OUT = [OPTIONAL, *([name] for name in OPTIONAL if FULL)]

FIRST_MESSAGE = """
import django, http.server, threading
django.setup()
from django.contrib.auth.models import User
from django.core.management import call_command
from django.test import Client
from msgplatform.models import Biz
from tests.support import notify_rows, notify_turns

call_command("check")
call_command("migrate", verbosity=0)
client = Client(headers={"host": "localhost"})
client.force_login(User.objects.create_superuser("ann", password="a long password 7"))
for address in ("/console/", "/console/getting-started", "/admin/", "/api/schema/"):
    answer = client.get(address)
    assert answer.status_code == 200, (address, answer.status_code)

bodies = []
class Consumer(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(204)
        self.end_headers()

server = http.server.HTTPServer(("127.0.0.1", 0), Consumer)
threading.Thread(target=server.serve_forever, daemon=True).start()
shop = Biz.objects.create(name="shop")
row = notify_rows.subscription(shop)
row.receive.url = f"http://127.0.0.1:{server.server_port}/"
row.receive.save()
notify_rows.publish(shop)
notify_turns.run_until(lambda: bool(bodies))
assert b'"data":{"n":1}' in bodies[0]
"""


def copy_without(features: list[str], folder: Path) -> None:
    """A copy of the product without these features: neither their folder nor their line. What lies
    beside the product, as demo and benches, is not in it."""
    for name in (
        "msgplatform",
        "notify",
        "gateway",
        "crmsync",
        "templates",
        "docs",
        "tests/support",
    ):
        shutil.copytree(env.BASE_DIR / name, folder / name)
    for name in ("manage.py", "tests/__init__.py"):
        shutil.copy(env.BASE_DIR / name, folder / name)
    settings_file = folder / "msgplatform" / "settings.py"
    text = settings_file.read_text()
    for feature in features:
        shutil.rmtree(folder / feature.replace(".", "/"))
        assert text.count(f'    "{feature}",\n') == 1
        text = text.replace(f'    "{feature}",\n', "")
    settings_file.write_text(text)


@pytest.mark.parametrize("features", LEFT_OUT, ids=lambda names: "-".join(names))
def test_a_message_passes_without_features(
    features: list[str], tmp_path: Path, servers: Servers
) -> None:
    copy_without(features, tmp_path)
    environment = {
        "PATH": os.environ["PATH"], "STATE_DIR": str(tmp_path / "var"),
        "DJANGO_SETTINGS_MODULE": "msgplatform.settings", "PUBLIC_URL": "http://localhost",
        "SECRET_KEY": "M8nq1sA0Zc7yTgVbUwXe2rJp4kLd9fHh5iOa3uCt6vRmQxYzE-s",
        "ENCRYPTION_KEY": "YSBrZXkgZm9yIHRlc3RzIG9ubHksIDMyIGJ5dGVzIG4=",
        "REDIS_URL": servers.work.url, "SMS_REDIS_URL": servers.sms.url,
        "OUTBOUND_ALLOW": "127.0.0.0/8",
    }  # fmt: skip
    (tmp_path / "var").mkdir()
    run = subprocess.run(
        [sys.executable, "-c", FIRST_MESSAGE], cwd=tmp_path, env=environment, check=False,
        capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    assert run.returncode == 0, run.stdout + run.stderr


def test_a_program_does_not_load_features_of_others(tmp_path: Path) -> None:
    """Only the export of the audit log, in run_bulk, and a sender of messages need libcurl."""
    code = "import django, sys; django.setup(); print('pycurl' in sys.modules)"
    environment = {
        **os.environ, "MSGPLATFORM_PROFILE": "daemon", "STATE_DIR": str(tmp_path),
        "DJANGO_SETTINGS_MODULE": "msgplatform.settings",
    }  # fmt: skip
    run = subprocess.run(
        [sys.executable, "-c", code], cwd=env.BASE_DIR, env=environment, check=True,
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert run.stdout.strip() == "False"
