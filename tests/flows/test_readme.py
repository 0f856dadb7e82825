"""The README's commands, as written, in a clean clone, as a user without rights."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NOBODY = 65534
_BLOCK = re.compile(r"^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)
# A newcomer's shell has none of what this test run has set.
_KEPT = ("LANG", "PIP_", "SSL_", "REQUESTS_", "http", "HTTP", "no_proxy", "NO_PROXY")


@pytest.fixture
def clone() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="mp-readme-"))
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(folder / "msgplatform")], check=True)
    if os.geteuid() == 0:
        subprocess.run(["chown", "-R", f"{NOBODY}:{NOBODY}", str(folder)], check=True)
    yield folder / "msgplatform"
    shutil.rmtree(folder, ignore_errors=True)


def run(block: str, folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if k.startswith(_KEPT)}
    environment |= {"HOME": str(folder.parent), "PATH": "/usr/local/bin:/usr/bin:/bin"}
    return subprocess.run(
        ["bash", "-euo", "pipefail", "-c", block],
        cwd=folder, env=environment, capture_output=True, text=True, timeout=240, check=False,
        **({"user": NOBODY, "group": NOBODY, "extra_groups": []} if os.geteuid() == 0 else {}),
    )  # fmt: skip


def test_every_command_of_the_readme_works(clone: Path) -> None:
    blocks = _BLOCK.findall((clone / "README.md").read_text())
    assert len(blocks) >= 2
    outputs = []
    for block in blocks:
        done = run(block, clone)
        assert done.returncode == 0, f"{block}\n{done.stdout[-2000:]}\n{done.stderr[-3000:]}"
        outputs.append(done.stdout)
    account = json.loads(outputs[0])
    assert account["ok"] is True
    notify = account["flows"]["notify"]
    assert notify["accepted"] >= 1000
    assert notify["lost"] == 0
    assert min(notify["systems"], notify["subscribers"]) >= 3
    assert "ok    settings" in outputs[1]
