"""The example of docs/crm-adapters.md: built, installed and used as somebody's own package."""

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support import children
from tests.support.json_stub import Answer, Asked, serving

DOCUMENT = Path(__file__).parents[4] / "docs" / "crm-adapters.md"
ALLOWED = {"OUTBOUND_ALLOW": "127.0.0.0/8"}

LISTED = """
from crmsync.adapters.registry import registry

known = registry()
say({"adapters": sorted(known.adapters), "broken": dict(known.broken)})
"""

USED = """
from crmsync.adapters.base import Record
from crmsync.adapters.registry import open_adapter

adapter = open_adapter("rolodex", {"url": sys.argv[1]}, {"token": "hush-hush"})

def told(outcomes):
    return [repr(outcome) for outcome in outcomes]

many = [Record(f"k{number}", 1, {"name": f"n{number}"}) for number in range(120)]
some = [Record("a", 1, {"name": "王小明"}), Record("b", 1, {"name": ""}), Record("c", 1, {}),
        Record("busy", 1, {})]
wrong = open_adapter("rolodex", {"url": sys.argv[1]}, {"token": "other-secret"})
say({
    "many": sorted({type(outcome).__name__ for outcome in adapter.send(many)}),
    "some": told(adapter.send(some)),
    "older": told(adapter.send([Record("a", 0, {"name": "old"})])),
    "deleted": told(adapter.send([Record("a", 2, {}, deleted=True)])),
    "looked_up": told(adapter.look_up([Record("a", 2, {}, deleted=True), Record("x", 1, {})])),
    "checked": [adapter.check(["name"]).kind, adapter.check(["nam"]).message, wrong.check().kind],
    "refused": told(wrong.send(some[:1])),
    "shown": repr([adapter, adapter.credentials, wrong.check()]),
})
"""


def block(language: str) -> str:
    (found,) = re.findall(rf"^```{language}\n(.*?)^```$", DOCUMENT.read_text(), re.M | re.S)
    return str(found)


# By the name of the entry point: what is changed in the example, and the reason that is shown.
BROKEN: dict[str, tuple[Callable[[str], str], str]] = {
    "needy": (lambda text: f"import nowhere_at_all\n{text}", "No module named 'nowhere_at_all'"),
    "partial": (lambda text: text.replace("def read(", "def get("), "does not define read"),
    "nameless": (lambda text: text.replace('    name = "rolodex"\n', ""), "does not define name"),
    "renamed": (str, "calls itself rolodex"),
    "absent": (
        lambda text: text.replace("class RolodexAdapter(", "class Other("),
        "RolodexAdapter",
    ),
    "quitting": (lambda text: f"{text}\nraise SystemExit('no licence')", "no licence"),
}


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A folder to be put on the path: the example, and a package of which nothing can be loaded."""
    target = tmp_path_factory.mktemp("installed")
    modules = {f"{name}_crm": change(block("python")) for name, (change, _) in BROKEN.items()}
    points = "\n".join(f'{name} = "{name}_crm:RolodexAdapter"' for name in BROKEN)
    broken = (
        block("toml")
        .replace('rolodex = "rolodex_crm:RolodexAdapter"', points)
        .replace('"rolodex-crm"', '"broken-crm"')
        .replace('["rolodex_crm"]', json.dumps(list(modules)))
    )
    for project, sources in (
        (block("toml"), {"rolodex_crm": block("python")}),
        (broken, modules),
    ):
        folder = tmp_path_factory.mktemp("package")
        (folder / "pyproject.toml").write_text(project, encoding="utf-8")
        for name, text in sources.items():
            (folder / f"{name}.py").write_text(text, encoding="utf-8")
        subprocess.run(
            [
                *(sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps"),
                *("--no-build-isolation", "--target", str(target), str(folder)),
            ],
            check=True, timeout=300,
        )  # fmt: skip
    return str(target)


class Rolodex:
    """The imagined CRM. `contacts` by id; one that is refused has no name."""

    def __init__(self) -> None:
        self.contacts: dict[str, dict[str, Any]] = {}
        self.batches: list[int] = []

    def __call__(self, request: Asked) -> Answer:
        if request.headers.get("authorization") != "Bearer hush-hush":
            return Answer({"message": "Unknown token."}, 401)
        if request.path == "/fields":
            names = [("name", False), ("made_at", True)]
            return Answer({"fields": [{"name": n, "read_only": r} for n, r in names]})
        if request.method == "GET":
            ids = request.query["ids"].split(",")
            return Answer({"contacts": [self.contacts[i] for i in ids if i in self.contacts]})
        given = request.body["contacts"]
        self.batches.append(len(given))
        return Answer({"results": [self.store(each) for each in given if each["id"] != "c"]})

    def store(self, given: dict[str, Any]) -> dict[str, Any]:
        if given["fields"].get("name") == "":
            why = {"field": "name", "message": "A contact has a name."}
            return {"id": given["id"], "state": "refused", **why}
        if given["id"] == "busy":
            return {"id": given["id"], "state": "busy"}
        held = self.contacts.get(given["id"])
        if held is None or held["version"] < given["version"]:
            self.contacts[given["id"]] = given
        return {"id": given["id"], "state": "stored", "created": held is None}


def test_packages_are_listed_and_broken_ones_with_their_reason(installed: str) -> None:
    listed = children.run(LISTED, PYTHONPATH=installed)
    assert set(listed["adapters"]) - set(children.run(LISTED)["adapters"]) == {"rolodex"}
    assert listed["broken"].keys() == BROKEN.keys()
    for name, (_, reason) in BROKEN.items():
        assert reason in listed["broken"][name]


def test_the_example_delivers(installed: str) -> None:
    rolodex = Rolodex()
    with serving(rolodex) as server:
        seen = children.run(USED, server.url(""), PYTHONPATH=installed, **ALLOWED)
    assert seen["many"] == ["Ok"]
    assert rolodex.batches[:3] == [50, 50, 20]
    assert {k: c["fields"] for k, c in rolodex.contacts.items() if k.startswith("k")} == {
        f"k{number}": {"name": f"n{number}"} for number in range(120)
    }
    assert seen["some"] == [
        "Ok(remote_id='a', created=True)",
        "Invalid(field='name', message='A contact has a name.')",
        "Retry(after=0.0, why='Rolodex did not say what became of the contact.')",
        "Retry(after=5.0, why='Rolodex is busy with this contact.')",
    ]
    assert seen["older"] == ["Ok(remote_id='a', created=False)"]
    assert seen["deleted"] == ["Ok(remote_id='a', created=False)"]
    assert rolodex.contacts["a"] == {"id": "a", "version": 2, "deleted": True, "fields": {}}
    assert seen["looked_up"] == [
        "Ok(remote_id='a', created=False)",
        "Retry(after=0.0, why='The CRM does not hold the record.')",
    ]
    assert seen["checked"] == [
        "ok", "Rolodex has no field nam. Did you mean name?", "credentials",
    ]  # fmt: skip
    assert seen["refused"] == ["Auth(message='HTTP 401: Unknown token.', of_record=False)"]
    assert "hush" not in seen["shown"]
    assert "other-secret" not in seen["shown"]
