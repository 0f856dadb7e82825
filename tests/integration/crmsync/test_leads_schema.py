"""The rules of `test_api_schema.py`, for the addresses of leads."""

from typing import Any

import pytest
from django.urls import get_resolver

from tests.support.api_document import api_views, document, statuses

URLCONF = "msgplatform.urls"
LEADS, BATCH, LEAD = "/api/v1/leads", "/api/v1/leads/batch", "/api/v1/leads/{id}"
CHANGES = "/api/v1/leads/changes"


@pytest.fixture
def schema() -> dict[str, Any]:
    return document()


def test_every_api_view_is_in_it_and_closed_by_a_scope(schema: dict[str, Any]) -> None:
    views = dict(api_views(get_resolver(URLCONF)))
    assert {LEADS, CHANGES, BATCH, LEAD} <= set(views)
    for path in (LEADS, CHANGES, BATCH, LEAD):
        assert path in schema["paths"]
        assert views[path].required_scope


def test_operations(schema: dict[str, Any]) -> None:
    paths = schema["paths"]
    assert set(paths[LEADS]) == {"get", "post"}
    assert set(paths[LEAD]) == {"get", "put", "patch", "delete"}
    # A page hosted elsewhere needs no key.
    assert paths[LEADS]["post"]["security"] == [{"apiKey": []}, {}]
    assert paths[BATCH]["post"]["security"] == [{"apiKey": []}]
    assert {"200", "202", "400", "401", "403", "409", "413", "429"} <= statuses(
        schema, LEADS, "post"
    )
    assert {"204", "404"} <= statuses(schema, LEAD, "delete")
    names = {parameter["name"] for parameter in paths[LEADS]["get"]["parameters"]}
    assert names == {
        "phone", "name", "uid", "appkey", "deleted", "crm", "policy", "state", "error_class",
        "remote_id", "since", "until", "cursor", "limit",
    }  # fmt: skip
    names = {parameter["name"] for parameter in paths[CHANGES]["get"]["parameters"]}
    assert names == {"since", "phone", "uid", "appkey", "deleted", "cursor", "limit"}


def test_what_a_lead_consists_of(schema: dict[str, Any]) -> None:
    """As the code reads it: further fields are scalars, and a change may name the APPKEY."""
    parts = schema["components"]["schemas"]
    for name in ("NewLeadRequest", "LeadChangeRequest"):
        extra = parts[name]["properties"]["extra"]
        assert set(extra["type"]) == {"object", "null"}, name
        values = extra["additionalProperties"]
        assert set(values["type"]) == {"string", "number", "boolean", "null"}, name
        assert values.keys() == {"type"}, name
        assert "appkey" in parts[name]["properties"], name
    assert "appkey" in parts["NewLeadRequest"]["required"]
    assert "appkey" not in parts["LeadChangeRequest"].get("required", [])
    extra = parts["Lead"]["properties"]["extra"]
    assert set(extra["additionalProperties"]["type"]) == {"string", "number", "boolean"}
