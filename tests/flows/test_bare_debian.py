"""From a Debian with nothing but apt to the first signed delivery, by the wheel, and to the client
that the platform serves. Root, with `apt-get install mmdebstrap`."""

import html
import re
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

from msgplatform.core.servers.private_server import free_port
from tests.flows.installed_platform import ROOT, bare_debian, first_delivery

pytestmark = pytest.mark.full
MAX_SECONDS = 180.0
COMMAND = """
apt-get update -qq && apt-get install -qq --no-install-recommends pipx >/dev/null 2>&1
pipx install --pip-args '--constraint /root/requirements.txt' "/root/$1[demo]"
cd /root && exec /root/.local/bin/msgplatform up --port "$2"
"""


@pytest.mark.parametrize("suite", ["bookworm", "trixie"])
def test_the_first_delivery(suite: str, tmp_path: Path) -> None:
    root = bare_debian(suite, tmp_path)
    clients = ROOT / "clients" / "dist"  # the wheel has those that are there
    subprocess.run([ROOT / "scripts" / "clients.sh", clients, "python"], check=True)
    home = root.folder / "root"
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", home],
                   cwd=ROOT, check=True)  # fmt: skip
    (wheel,) = home.glob("*.whl")
    # Hashes are for `--require-hashes`, and a constraint of an extra's package is none.
    (home / "requirements.txt").write_text(
        "".join(
            line.split(" ")[0] + "\n"
            for line in (ROOT / "requirements.txt").read_text().splitlines()
            if line[:1].isalpha()
        )
    )
    port, receiver_port = free_port(), free_port()
    variables = ("env", "OUTBOUND_ALLOW=127.0.0.1/32", f"SMS_RECEIVER_PORT={receiver_port}")
    start = time.monotonic()
    try:
        root.start(*variables, "sh", "-euc", COMMAND, "sh", wheel.name, str(port))
        base = f"http://127.0.0.1:{port}"
        manage = ("env", "--chdir=/root", "/root/.local/bin/msgplatform")
        key = first_delivery(root, manage, base)
        seconds = time.monotonic() - start
        python = root.run("python3", "--version").strip()
        size = root.run("du", "-sm", "/root/.local").split()[0]
        print(f"{suite}: {python}: {seconds:.0f} s to the first delivery, {size} MB")
        assert seconds <= MAX_SECONDS
        root.run("sh", "-c", "command -v cc", code=127)
        with urllib.request.urlopen(f"{base}/clients/") as answer:
            page = html.unescape(answer.read().decode())
        (install,) = re.findall(r"pip (install '.*')", page)
        root.run("sh", "-euc", f"python3 -m venv /root/shop; /root/shop/bin/pip {install}")
        publish = ("publish", "order.paid", '{"order": 8}', "--idempotency-key", "order-8")
        settings = ("env", f"MSGP_URL={base}", f"MSGP_KEY={key}", "/root/shop/bin/msgp")
        assert "created" in root.run(*settings, *publish)
    finally:
        root.stop()
