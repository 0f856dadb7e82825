"""The tests of SGIP reach every branch of it."""

import json
import os
import subprocess
import sys
from pathlib import Path

UNIT = Path(__file__).parent
ROOT = UNIT.parents[2]
# The fuzz is left out: what only chance reaches is not shown to be tested.
TESTS = sorted(
    str(path)
    for path in UNIT.glob("test_sgip_*.py")
    if path.stem.split("_")[-1] not in {"fuzz", "coverage"}
)


def test_every_branch_of_the_protocol_is_tested(tmp_path: Path) -> None:
    environment = {
        **os.environ,
        "COVERAGE_FILE": str(tmp_path / "coverage"),
        "CI": "",
        "HYPOTHESIS_FEW": "1",
    }
    # Without the configuration of the whole suite: no servers, no Django.
    options = ["-q", "-c", "/dev/null", "--rootdir", str(ROOT), "-p", "no:cacheprovider"]
    options += ["-p", "no:django", "-p", "no:valkey", "-p", "no:schemathesis"]
    measure = ["--branch", "--source=gateway.sgip", "--rcfile=/dev/null", "-m", "pytest"]
    run = subprocess.run(
        [sys.executable, "-m", "coverage", "run", *measure, *options, *TESTS],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    report = tmp_path / "report.json"
    subprocess.run(
        [sys.executable, "-m", "coverage", "json", "-q", "--rcfile=/dev/null", "-o", str(report)],
        cwd=ROOT,
        env=environment,
        check=True,
    )
    found = json.loads(report.read_text())
    missing = {
        name: (file["missing_lines"], file["missing_branches"], file["excluded_lines"])
        for name, file in found["files"].items()
        if file["missing_lines"] or file["missing_branches"] or file["excluded_lines"]
    }
    assert missing == {}
    measured = {ROOT / name for name in found["files"]}
    assert measured == set((ROOT / "gateway" / "sgip").rglob("*.py"))
    assert found["totals"]["num_branches"] > 100
