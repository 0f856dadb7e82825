"""HubSpot's own client against the stub: the stub's shapes are those that it understands."""

import json
from collections.abc import Iterator
from typing import Any

import hubspot
import pytest
from hubspot.crm import contacts

from tests.support.http_sinks import Sink
from tests.support.hubspot_stub import HubSpotStub
from tests.support.json_stub import serving


@pytest.fixture
def stub() -> HubSpotStub:
    return HubSpotStub("hush-hush")


@pytest.fixture
def server(stub: HubSpotStub) -> Iterator[Sink]:
    with serving(stub) as server:
        yield server


def client(server: Sink, token: str = "hush-hush") -> Any:
    """It refuses answers without what HubSpot's description of its interface requires."""
    return hubspot.Client.create(
        access_token=token, host=server.url(""), client_side_validation=True
    )


def batches(server: Sink, token: str = "hush-hush") -> contacts.BatchApi:
    return client(server, token).crm.contacts.batch_api


def upsert(*given: tuple[str, dict[str, str]]) -> Any:
    made = [
        contacts.SimplePublicObjectBatchInputUpsert("hive_id", key, key, properties)
        for key, properties in given
    ]
    return contacts.BatchInputSimplePublicObjectBatchInputUpsert(made)


def read(*keys: str) -> Any:
    wanted = [contacts.SimplePublicObjectId(key) for key in keys]
    return contacts.BatchReadInputSimplePublicObjectId(
        [], "hive_id", wanted, ["hive_id", "firstname"]
    )


def test_upserts_changes_reads_and_archives(stub: HubSpotStub, server: Sink) -> None:
    api = batches(server)
    made = api.upsert(upsert(("a", {"firstname": "A"}), ("b", {"firstname": "B"})))
    assert isinstance(made, contacts.BatchResponseSimplePublicUpsertObject)
    by_trace = {result.object_write_trace_id: result for result in made.results}
    assert by_trace["a"].new is True
    assert by_trace["a"].properties == {"hive_id": "a", "firstname": "A"}
    again = api.upsert(upsert(("a", {"firstname": "A2"})))
    assert [(result.id, result.new) for result in again.results] == [(by_trace["a"].id, False)]

    change = contacts.SimplePublicObjectBatchInput(
        id=by_trace["b"].id, object_write_trace_id="b", properties={"firstname": "B2"}
    )
    changed = api.update(contacts.BatchInputSimplePublicObjectBatchInput([change]))
    assert isinstance(changed, contacts.BatchResponseSimplePublicObject)
    assert changed.results[0].properties["firstname"] == "B2"

    found = api.read(read("a", "b"))
    assert {each.properties["hive_id"]: each.properties["firstname"] for each in found.results} == {
        "a": "A2", "b": "B2",
    }  # fmt: skip
    ids = [contacts.SimplePublicObjectId(by_trace["a"].id)]
    assert api.archive(contacts.BatchInputSimplePublicObjectId(ids)) is None
    assert list(stub.contacts) == [by_trace["b"].id]
    left = api.read(read("a", "b"))
    assert isinstance(left, contacts.BatchResponseSimplePublicObjectWithErrors)
    assert left.errors[0].category == "OBJECT_NOT_FOUND"
    assert left.errors[0].context == {"ids": ["a"]}


def test_errors_of_single_records(stub: HubSpotStub, server: Sink) -> None:
    stub.contacts["77"] = {"email": "a@b.c"}
    given = upsert(("a", {"email": "a@b.c"}), ("b", {"email": "x@"}), ("c", {"email": "c@b.c"}))
    answer = batches(server).upsert(given)
    assert isinstance(answer, contacts.BatchResponseSimplePublicUpsertObjectWithErrors)
    assert answer.num_errors == 2
    assert [result.object_write_trace_id for result in answer.results] == ["c"]
    conflict, invalid = answer.errors
    assert (conflict.category, conflict.context) == ("CONFLICT", {"objectWriteTraceId": ["a"]})
    assert conflict.message == "Contact already exists. Existing ID: 77"
    assert (invalid.category, invalid.context) == (
        "VALIDATION_ERROR",
        {"objectWriteTraceId": ["b"]},
    )
    assert invalid.errors[0].message == "Email address x@ is invalid"
    assert invalid.errors[0].code == "INVALID_EMAIL"


@pytest.mark.parametrize("policy", ["TEN_SECONDLY_ROLLING", "SECONDLY", "DAILY"])
def test_a_limit_that_is_reached(stub: HubSpotStub, server: Sink, policy: str) -> None:
    stub.limit = policy
    refused = fails(server, 429)
    assert (refused["errorType"], refused["policyName"]) == ("RATE_LIMIT", policy)


def test_a_call_that_is_refused(stub: HubSpotStub, server: Sink) -> None:
    with pytest.raises(contacts.exceptions.UnauthorizedException) as error:
        batches(server, "wrong").upsert(upsert(("a", {})))
    body = json.loads(error.value.body)
    assert body["category"] == "INVALID_AUTHENTICATION"
    stub.contacts["77"] = {"email": "a@b.c"}
    conflict = fails(server, 409, ("a", {"email": "a@b.c"}))
    assert conflict["message"] == "Contact already exists. Existing ID: 77"
    assert fails(server, 400, ("a", {}), ("a", {}))["category"] == "VALIDATION_ERROR"


def fails(server: Sink, status: int, *given: tuple[str, dict[str, str]]) -> dict[str, Any]:
    """The body of an error, which has what the client's model of errors requires."""
    with pytest.raises(contacts.ApiException) as error:
        batches(server).upsert(upsert(*given or (("a", {}),)))
    assert error.value.status == status
    body = json.loads(error.value.body)
    rules = contacts.Configuration()
    rules.client_side_validation = True
    contacts.Error(
        category=body.get("category", body.get("errorType")), message=body["message"],
        correlation_id=body["correlationId"], local_vars_configuration=rules,
    )  # fmt: skip
    return body


def test_the_properties(server: Sink) -> None:
    found = {
        each.name: each
        for each in client(server).crm.properties.core_api.get_all("contacts").results
    }
    assert found["hive_id"].has_unique_value
    assert found["createdate"].modification_metadata.read_only_value
