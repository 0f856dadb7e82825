"""simple-salesforce, a client of others, against the stub: its shapes are those it understands."""

from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import pytest
import requests
from requests.adapters import HTTPAdapter
from simple_salesforce import exceptions
from simple_salesforce.api import Salesforce

from tests.support.http_sinks import Sink
from tests.support.json_stub import serving
from tests.support.salesforce_stub import SalesforceStub

LEADS = "composite/sobjects/Lead/Hive_Id__c"


class WithoutTls(HTTPAdapter):
    """The client only speaks https, to names of Salesforce: the stub is asked instead."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self.url = urlsplit(url)

    def send(self, request: Any, *options: Any, **more: Any) -> Any:
        asked = urlsplit(request.url)
        request.url = urlunsplit((*self.url[:2], *asked[2:]))
        return super().send(request, *options, **{**more, "proxies": None})


@pytest.fixture
def stub() -> SalesforceStub:
    return SalesforceStub()


@pytest.fixture
def server(stub: SalesforceStub) -> Iterator[Sink]:
    with serving(stub) as server:
        stub.url = server.url("")
        yield server


def log_in(server: Sink, secret: str = "hush-hush") -> Salesforce:
    session = requests.Session()
    session.mount("https://", WithoutTls(server.url("")))
    return Salesforce(
        consumer_key="the-client", consumer_secret=secret, domain="the-company", version="61.0",
        session=session,
    )  # fmt: skip


def together(client: Salesforce, path: str, *records: dict[str, Any]) -> Any:
    made = [{"attributes": {"type": "Lead"}, **record} for record in records]
    return client.restful(path, method="PATCH", json={"allOrNone": False, "records": made})


def test_upserts_changes_reads_and_deletes(stub: SalesforceStub, server: Sink) -> None:
    client = log_in(server)
    first, second = together(
        client, LEADS, {"Hive_Id__c": "a", "LastName": "A"}, {"Hive_Id__c": "b", "LastName": "B"}
    )
    assert (first["success"], first["created"], first["errors"]) == (True, True, [])
    assert client.Lead.upsert("Hive_Id__c/a", {"LastName": "A2"}) == 200
    assert client.Lead.upsert("Hive_Id__c/c", {"LastName": "C"}) == 201
    assert client.Lead.update(second["id"], {"LastName": "B2"}) == 204
    (changed,) = together(client, "composite/sobjects", {"id": first["id"], "LastName": "A3"})
    assert changed == {"id": first["id"], "success": True, "errors": []}
    found = client.query("SELECT Id, LastName FROM Lead WHERE Hive_Id__c IN ('a', 'b')")
    assert found["done"]
    assert {row["Id"]: row["LastName"] for row in found["records"]} == {
        first["id"]: "A3", second["id"]: "B2",
    }  # fmt: skip
    assert client.api_usage["api-usage"].used == 18
    asked = {"ids": f"{first['id']},00Q000000000099AAA", "allOrNone": "false"}
    deleted, missing = client.restful("composite/sobjects", asked, method="DELETE")
    assert deleted["success"]
    assert missing["errors"][0]["statusCode"] == "ENTITY_IS_DELETED"
    assert first["id"] not in stub.leads


def test_errors_of_single_records(stub: SalesforceStub, server: Sink) -> None:
    other = stub.add(Email="a@b.c")
    client = log_in(server)
    answers = together(
        client, LEADS, {"Hive_Id__c": "a"}, {"Hive_Id__c": "b", "LastName": "B", "Email": "a@b.c"},
        {"Hive_Id__c": "c", "LastName": "C"},
    )  # fmt: skip
    assert [answer["success"] for answer in answers] == [False, False, True]
    (missing,) = answers[0]["errors"]
    assert (missing["statusCode"], missing["fields"]) == ("REQUIRED_FIELD_MISSING", ["LastName"])
    (double,) = answers[1]["errors"]
    assert double["statusCode"] == "DUPLICATE_VALUE"
    assert double["message"].endswith(f"with id: {other[:15]}")


def test_calls_that_are_refused(stub: SalesforceStub, server: Sink) -> None:
    client = log_in(server)
    with pytest.raises(exceptions.SalesforceMalformedRequest) as malformed:
        client.Lead.upsert("Hive_Id__c/a", {})
    assert malformed.value.content[0]["errorCode"] == "REQUIRED_FIELD_MISSING"
    for _ in range(2):
        stub.add(Hive_Id__c="twice")
    with pytest.raises(exceptions.SalesforceMoreThanOneRecord) as several:
        client.Lead.upsert("Hive_Id__c/twice", {"LastName": "T"})
    assert len(several.value.content) == 2
    with pytest.raises(exceptions.SalesforceResourceNotFound):
        client.Lead.update("00Q000000000099AAA", {"LastName": "N"})
    with pytest.raises(exceptions.SalesforceAuthenticationFailed) as refused:
        log_in(server, "wrong")
    assert refused.value.code == "invalid_client"


def test_an_expired_token_is_fetched_anew(stub: SalesforceStub, server: Sink) -> None:
    client = log_in(server)
    stub.expire()
    assert client.restful("query", {"q": "SELECT Id FROM Lead WHERE Hive_Id__c IN ('a')"})["done"]
    assert stub.logins == 2


def test_the_description_of_an_object(server: Sink) -> None:
    fields = {field["name"]: field for field in log_in(server).Lead.describe()["fields"]}
    assert fields["Hive_Id__c"]["externalId"]
    assert not fields["LastName"]["nillable"]
