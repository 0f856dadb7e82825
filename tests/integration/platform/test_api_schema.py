"""The OpenAPI schema says what every operation needs and answers; its pages need no network."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.urls import get_resolver
from drf_spectacular.drainage import GENERATOR_STATS
from drf_spectacular.validation import validate_schema

from tests.support import api_support
from tests.support.api_document import api_views, document, generate, statuses
from tests.support.api_support import WRITE, Api

api = pytest.fixture(api_support.api)
ECHO, BATCH = "/api/v1/test/echo", "/api/v1/test/batch"


@pytest.fixture
def schema() -> dict[str, Any]:
    return document(api_support.URLCONF)


class TestOperations:
    def test_the_document_is_valid(self, schema: dict[str, Any]) -> None:
        validate_schema(schema)
        assert schema["openapi"].startswith("3.1")

    def test_the_scope_is_named(self, schema: dict[str, Any]) -> None:
        operation = schema["paths"][ECHO]["post"]
        assert f"`{WRITE}`" in operation["description"]
        assert operation["security"] == [{"apiKey": []}]
        assert schema["components"]["securitySchemes"]["apiKey"]["scheme"] == "bearer"

    def test_problems(self, schema: dict[str, Any]) -> None:
        always = {"429", "500", "503"}
        assert statuses(schema, BATCH, "post") == always | {
            "200", "400", "401", "403", "409", "413", "415"}  # fmt: skip
        fault = "/api/v1/test/fault/{name}"
        assert statuses(schema, fault, "get") - {"200"} == always | {"404"}
        assert statuses(schema, "/api/v1/test/audit", "get") == always | {
            "200", "400", "401", "403"}  # fmt: skip

    def test_they_are_problem_json(self, schema: dict[str, Any]) -> None:
        for name, response in schema["components"]["responses"].items():
            assert list(response["content"]) == ["application/problem+json"], name
        assert "Retry-After" in schema["components"]["responses"]["Problem429"]["headers"]

    def test_idempotency_key_only_where_the_view_says_so(self, schema: dict[str, Any]) -> None:
        def headers(path: str) -> list[str]:
            parameters = schema["paths"][path]["post"].get("parameters", [])
            return [p["name"] for p in parameters if p["in"] == "header"]

        assert (headers(BATCH), headers(ECHO)) == (["Idempotency-Key"], [])

    def test_pages_of_lists(self, schema: dict[str, Any]) -> None:
        operation = schema["paths"]["/api/v1/test/audit"]["get"]
        assert {p["name"] for p in operation["parameters"]} == {"biz", "cursor", "limit"}
        page = schema["components"]["schemas"]["PaginatedAuditList"]
        assert set(page["properties"]) == {"results", "next", "previous"}

    def test_structs(self, schema: dict[str, Any]) -> None:
        body = schema["paths"][BATCH]["post"]["requestBody"]["content"]["application/json"]
        assert body["schema"] == {"$ref": "#/components/schemas/BatchRequest"}
        schemas = schema["components"]["schemas"]
        items = schemas["BatchRequest"]["properties"]["items"]["items"]
        assert items == {"$ref": "#/components/schemas/ItemRequest"}
        assert schemas["ItemRequest"]["additionalProperties"] is False
        assert schemas["ItemRequest"]["required"] == ["name", "payload"]


class TestPlatform:
    """The addresses that are really served."""

    def test_it_is_made_without_a_warning(self) -> None:
        GENERATOR_STATS.reset()
        with GENERATOR_STATS.silence():
            validate_schema(generate("msgplatform.urls"))
        assert not GENERATOR_STATS._warn_cache
        assert not GENERATOR_STATS._error_cache

    def test_every_api_view_is_in_it_and_closed_by_a_scope(self) -> None:
        paths = document()["paths"]
        views = dict(api_views(get_resolver("msgplatform.urls")))
        assert views
        for path, view in views.items():
            assert path in paths
            assert getattr(view, "required_scope", None), f"{path} names no scope"

    def test_every_operation_says_what_it_is_for(self) -> None:
        for name, operation in operations():
            summary, description = operation.get("summary", ""), operation["description"]
            assert 4 <= len(summary) <= 60, name
            assert not summary.endswith("."), name
            said, _, scope = description.partition("\n\nScope: `")
            assert said.endswith("."), name
            assert scope.endswith("`"), name

    def test_clients_need_not_send_what_is_optional(self) -> None:
        """A default in a body makes typed clients ask for the field; null is as good as nothing."""
        for name, body in bodies():
            for field, schema in body["properties"].items():
                assert "default" not in schema, (name, field)
                is_any_value = not schema.keys() - {"description"}
                if field not in body.get("required", ()) and not is_any_value:
                    assert "null" in str(schema).lower(), (name, field)

    def test_bodies_are_as_strict_as_the_platform(self) -> None:
        schemas = document()["components"]["schemas"]
        for name, operation in operations():
            if body := operation.get("requestBody"):
                assert body["required"], name
        for name, body in bodies():
            assert body["additionalProperties"] is False, name
            assert not any(field.get("readOnly") for field in body["properties"].values()), name
            for field in body["properties"].values():
                reference = field.get("items", {}).get("$ref", "").rpartition("/")[2]
                assert not reference or schemas[reference]["additionalProperties"] is False, name

    def test_parameters_are_as_strict_as_the_platform(self) -> None:
        def parameter(path: str, name: str) -> dict[str, Any]:
            of_path = document()["paths"][f"/api/v1/{path}"]["get"]["parameters"]
            (schema,) = [each["schema"] for each in of_path if each["name"] == name]
            return dict(schema)

        for path in ("feed/posts", "feed/timelines/{uid}"):
            for name in ("app_id", "src_type"):
                assert parameter(path, name)["maxLength"] == 32
                assert parameter(path, name)["pattern"] == "^[A-Za-z0-9_.:-]*$"
        for path, name in (
            ("feed/timelines/{uid}", "cursor"),
            ("sms/incoming", "since_id"),
            ("sync/runs", "policy"),
        ):
            assert parameter(path, name)["pattern"] == "^[0-9]{1,19}$"
        assert set(parameter("statistics", "flow")["enum"]) == {"crmsync", "feed", "notify", "sms"}
        for path in ("event-types/{name}", "systems/{system}/event-types/{name}"):
            assert re.fullmatch(parameter(path, "name")["pattern"], "order.paid")
            assert not re.fullmatch(parameter(path, "name")["pattern"], "order paid")
        schemas = document()["components"]["schemas"]
        subscription = schemas["SubscriptionRequest"]["properties"]
        assert (subscription["timeout"]["minimum"], subscription["timeout"]["maximum"]) == (0.5, 59)
        assert schemas["KeyRequest"]["properties"]["scopes"]["minItems"] == 1
        assert "type" not in schemas["EventTypeRequest"]["properties"]["example"]
        assert schemas["EditRequest"]["required"] == ["data"]

    def test_batches_have_bounds(self) -> None:
        batches = [(name, body) for name, body in bodies() if "/batch" in name]
        assert len(batches) == 5
        for name, body in batches:
            (items,) = body["properties"].values()
            assert (items["minItems"], items["maxItems"]) == (1, 1000), name

    def test_any_accept_header_suits_an_operation_without_an_answer(self) -> None:
        views = dict(api_views(get_resolver("msgplatform.urls")))
        checked = set()
        for name, operation in operations():
            method, path = name.split(" ")
            if {"200", "201", "202"}.isdisjoint(operation["responses"]):
                bodiless = getattr(views[path], "bodiless_methods", ())
                assert method == "delete" or method.upper() in bodiless, name
                checked.add(name)
        assert len(checked) == 20

    def test_our_own_notes_are_not_in_it(self) -> None:
        text = str(document())
        assert not any(word in text for word in ("msgspec", "serializer", "the view"))


def operations() -> Iterator[tuple[str, dict[str, Any]]]:
    for path, methods in document()["paths"].items():
        for method, operation in methods.items():
            if path.startswith("/api/v1/"):
                yield f"{method} {path}", operation


def bodies() -> Iterator[tuple[str, dict[str, Any]]]:
    """Operation → schema of its body. PATCH is left out: there null is a value."""
    schemas = document()["components"]["schemas"]
    for name, operation in operations():
        if "requestBody" in operation and not name.startswith("patch"):
            schema = operation["requestBody"]["content"]["application/json"]["schema"]
            yield name, schemas[schema["$ref"].rpartition("/")[2]]


class TestPages:
    def test_schema(self, api: Api) -> None:
        response = api.get("/api/schema/")
        assert response.status_code == 200
        assert b"openapi: 3.1" in response.content
        response = api.get("/api/schema/", HTTP_ACCEPT="application/vnd.oai.openapi+json")
        assert response.json()["info"]["title"] == "msgplatform"

    def test_the_schema_in_a_format(self, api: Api) -> None:
        assert api.get("/api/schema/?format=json").json()["info"]["title"] == "msgplatform"
        for query in ("?format=yaml", "?format=xml", "?format="):
            assert b"openapi: 3.1" in api.get(f"/api/schema/{query}").content, query

    @pytest.mark.parametrize("query", ["?version=%0A", "?lang=zh-hans@1", "?lang=no/such"])
    def test_the_schema_is_the_same_whatever_is_asked_of_it(self, api: Api, query: str) -> None:
        response = api.get(f"/api/schema/{query}")
        assert response.status_code == 200
        assert response.content == api.get("/api/schema/").content

    def test_docs_load_nothing_from_elsewhere(self, api: Api) -> None:
        page = api.get("/api/docs/").content.decode()
        links = re.findall(r'(?:src|href)="([^"#][^"]*)"', page)
        beside = {"/console/", "/clients/", "/problems/", "/api/schema/?format=json"}
        assert beside <= set(links), "the way back, and what belongs to it"
        files = [link for link in links if link.startswith(django_settings.STATIC_URL)]
        assert len(files) >= 3
        assert set(links) == {*files, *beside, "/"}
        assert {api.get(link).status_code for link in files} == {200}

    def test_the_document_begins_with_what_holds_for_every_request(self, api: Api) -> None:
        schema = api.get("/api/schema/?format=json").json()
        said = schema["info"]["description"]
        for words in ("Bearer mp_", "Ids are strings", "`idempotency_key`", "/problems/conflict"):
            assert words in said
        assert "](" not in said.replace("](https://", ""), "a link to a page that is not served"
        # The groups in the order of the document, each with a sentence.
        tags = [tag["name"] for tag in schema["tags"]]
        assert tags[:5] == ["events", "sms", "leads", "sync", "feed"]
        used = {tag for methods in schema["paths"].values() for one in methods.values()
                for tag in one["tags"]}  # fmt: skip
        assert set(tags) == used - {"test"}
        assert all(tag["description"].endswith(".") for tag in schema["tags"])

    def test_docs_without_the_slash(self, api: Api) -> None:
        response = api.get("/api/docs")
        assert (response.status_code, response["Location"]) == (302, "/api/docs/")
