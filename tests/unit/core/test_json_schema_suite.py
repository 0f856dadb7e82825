"""The official test suite of JSON Schema, draft 2020-12, as it came with the sources of jsonschema
4.26.0 (github.com/json-schema-org/JSON-Schema-Test-Suite, MIT licence), with its optional part."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from msgplatform.core.errors import InvalidInput
from msgplatform.core.json import schema as json_schema

_FILE = Path(__file__).parents[2] / "vectors" / "json_schema_suite.json"
SUITE: dict[str, list[dict[str, Any]]] = json.loads(_FILE.read_text(encoding="utf-8"))
# The metaschema of this one, which has no validation, is another document.
WRONG = {("vocabulary", "no validation: invalid number, but it still validates")}
# Our expressions cannot backtrack (RE2); formats are notes; `dependencies` is of an earlier draft.
OTHERWISE = {
    "optional/dependencies-compatibility": 14, "optional/ecmascript-regex": 10,
    "optional/format-assertion": 2,
}  # fmt: skip
# Nothing is fetched, and the suite tries that with addresses of its own.
REFUSALS = (
    "references to other documents are not followed", "leads nowhere in this schema",
    "cannot be used: invalid",
)  # fmt: skip


def judge(name: str) -> tuple[Counter[str], set[tuple[str, str]], list[str]]:
    """How many cases ended how; the wrong ones; the sentences of refused schemas."""
    counts, wrong, refusals = Counter[str](), set[tuple[str, str]](), list[str]()
    for group in SUITE[name]:
        schema = group["schema"]
        try:
            # A schema of an event type is an object.
            validator = json_schema.compile_schema(
                {"allOf": [schema]} if isinstance(schema, bool) else schema
            )
        except InvalidInput as error:
            counts["refused"] += len(group["tests"])
            refusals.append(str(error))
            continue
        for case in group["tests"]:
            is_valid = json_schema.first_error(validator, case["data"]) is None
            counts["right" if is_valid is case["valid"] else "wrong"] += 1
            if is_valid is not case["valid"]:
                wrong.add((name, case["description"]))
    return counts, wrong, refusals


@pytest.mark.parametrize("name", SUITE)
def test_the_official_suite(name: str) -> None:
    counts, wrong, refusals = judge(name)
    if name.startswith("optional/"):
        assert counts["wrong"] == OTHERWISE.get(name, 0), wrong
    else:
        assert wrong <= WRONG
    assert all(any(words in text for words in REFUSALS) for text in refusals), refusals


def test_all_of_it_was_run() -> None:
    totals: dict[str, Counter[str]] = {"required": Counter(), "optional": Counter()}
    for name in SUITE:
        totals["optional" if "/" in name else "required"] += judge(name)[0]
    assert dict(totals["required"]) == {"right": 1208, "refused": 48, "wrong": 1}
    assert dict(totals["optional"]) == {"right": 113, "refused": 19, "wrong": 26}
