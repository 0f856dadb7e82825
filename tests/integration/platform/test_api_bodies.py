"""Bodies: the bound holds whatever the header says, wrong JSON is named by its position."""

import datetime
import decimal
import io
import json
import uuid
from typing import Any

import pytest
from django.utils.translation import gettext_lazy
from rest_framework.exceptions import ErrorDetail

from msgplatform.doors.api.json import JSONRenderer
from msgplatform.models import Biz
from tests.support import api_support
from tests.support.api_support import Api, problem

api = pytest.fixture(api_support.api)
ECHO, BATCH = "/api/v1/test/echo", "/api/v1/test/batch"
BOTH = pytest.mark.parametrize("path", [ECHO, BATCH])
MAX = 2000  # of these views


def padded(size: int) -> bytes:
    body = b'{"items": []'
    return body + b" " * (size - len(body) - 1) + b"}"


class Trickle(io.BytesIO):
    """A stream that gives a few bytes at once, as a socket does."""

    def read(self, size: int | None = -1) -> bytes:
        return super().read(7 if size is None or size < 0 else min(size, 7))


@BOTH
class TestBound:
    def post(self, api: Api, path: str, body: bytes, **extra: Any) -> Any:
        return api.post(path, body, api.key()[1], **extra)

    def test_as_much_as_allowed(self, api: Api, path: str) -> None:
        assert self.post(api, path, padded(MAX)).status_code == 200

    def test_one_byte_more(self, api: Api, path: str) -> None:
        body = problem(self.post(api, path, padded(MAX + 1)), 413, "body-too-large")
        assert body["max_bytes"] == MAX

    def test_too_much_announced_is_refused_unread(self, api: Api, path: str) -> None:
        stream = io.BytesIO(padded(100))
        extra = {"wsgi.input": stream, "CONTENT_LENGTH": str(MAX + 1)}
        problem(self.post(api, path, b"", **extra), 413, "body-too-large")
        assert stream.tell() == 0

    def test_a_length_that_lies_low(self, api: Api, path: str) -> None:
        """Only what was announced is read, whatever follows: it is the next request's."""
        stream = io.BytesIO(padded(2 * 1024 * 1024))
        extra = {"wsgi.input": stream, "CONTENT_LENGTH": "10"}
        problem(self.post(api, path, b"", **extra), 400, "malformed-body")
        assert stream.tell() == 10

    def test_a_length_that_lies_high(self, api: Api, path: str) -> None:
        extra = {"wsgi.input": io.BytesIO(padded(100)), "CONTENT_LENGTH": "150"}
        body = problem(self.post(api, path, b"", **extra), 400, "malformed-body")
        assert "100 of 150" in body["detail"]

    @pytest.mark.parametrize("length", ["", "-5", "many"])
    def test_a_length_that_is_none(self, api: Api, path: str, length: str) -> None:
        extra = {"wsgi.input": io.BytesIO(padded(100)), "CONTENT_LENGTH": length}
        assert self.post(api, path, b"", **extra).status_code in {200, 400}

    def test_a_stream_in_small_pieces(self, api: Api, path: str) -> None:
        extra = {"wsgi.input": Trickle(padded(MAX)), "CONTENT_LENGTH": str(MAX)}
        assert self.post(api, path, b"", **extra).status_code == 200


@BOTH
class TestSyntax:
    @pytest.mark.parametrize(
        ("body", "says"),
        [
            (b" ", "truncated"),
            (b"{", "truncated"),
            (b'{"a": 1,\n  "b" 2}', "(byte 15) at line 2, column 7"),
            (b'{"a": 1,}', "(byte 8)"),
            (b'{"items": []} trailing', "(byte 15)"),
            (b"{'a': 1}", "(byte 1)"),
            (b'{"a": NaN}', "(byte 6)"),
            (b'{"a": "\xff"}', "not UTF-8 at byte 7"),
            (b'{"\xff": 1, "items": []}', "not UTF-8 at byte 2"),
            (b'{"deep": ' + b"[" * 1900, "nested too deeply"),
        ],
    )
    def test_malformed(self, api: Api, path: str, body: bytes, says: str) -> None:
        response = api.post(path, body, api.key()[1])
        assert says in problem(response, 400, "malformed-body")["detail"]

    def test_a_byte_order_mark_is_passed_over(self, api: Api, path: str) -> None:
        """RFC 8259, 8.1. PowerShell and .NET send it."""
        body = b'\xef\xbb\xbf{"items": []}'
        assert api.post(path, body, api.key()[1]).status_code == 200

    @pytest.mark.parametrize("content_type", ["text/plain", "application/x-www-form-urlencoded",
                                              "multipart/form-data; boundary=x", ""])  # fmt: skip
    def test_wrong_type(self, api: Api, path: str, content_type: str) -> None:
        response = api.post(path, b'{"items": []}', api.key()[1], content_type=content_type)
        body = problem(response, 415, "unsupported-media-type")
        assert "application/json" in body["detail"]

    def test_compressed(self, api: Api, path: str) -> None:
        response = api.post(path, b"\x1f\x8b", api.key()[1], HTTP_CONTENT_ENCODING="gzip")
        problem(response, 415, "unsupported-media-type")

    @pytest.mark.parametrize("content_type", ["application/json; charset=utf-8",
                                              "Application/JSON"])  # fmt: skip
    def test_right_type(self, api: Api, path: str, content_type: str) -> None:
        response = api.post(path, b'{"items": []}', api.key()[1], content_type=content_type)
        assert response.status_code == 200


class TestStruct:
    def test_no_body(self, api: Api) -> None:
        body = problem(api.post(BATCH, b"", api.key()[1]), 400, "malformed-body")
        assert "empty" in body["detail"]

    @pytest.mark.parametrize(
        ("body", "field", "message"),
        [
            ("[]", "", "Expected object, got array"),
            ("{}", "items", "This field is required."),
            ('{"items": [{"name": "a", "payload": 1}, {"name": 7, "payload": 1}]}',
             "items[1].name", "Expected str, got int"),
            ('{"items": [{"name": "a"}]}', "items[0].payload", "This field is required."),
            ('{"items": [{"name": "a", "payload": 1, "colour": 1}]}',
             "items[0].colour", "There is no such field."),
            ('{"items": [{"name": "a", "payload": 1, "size": "`$.x`"}]}',
             "items[0].size", "Expected int | null, got str"),
        ],
    )  # fmt: skip
    def test_wrong_values(self, api: Api, body: str, field: str, message: str) -> None:
        response = api.post(BATCH, body.encode(), api.key()[1])
        answer = problem(response, 400, "invalid-input")
        assert answer["errors"] == [{"field": field, "message": message}]
        assert field in answer["detail"]
        assert message in answer["detail"]

    @pytest.mark.parametrize(
        "payload",
        ['{"a" :  1.50 , "a":2}', "1e999", "[ ]", '"\\u00e9é"', "null", "123456789012345678901"],
    )
    def test_the_exact_bytes_arrive(self, api: Api, payload: str) -> None:
        body = f'{{"items": [{{"name": "x", "payload": {payload} }}]}}'.encode()
        response = api.post(BATCH, body, api.key()[1])
        assert response.json()["payloads"] == [payload.encode().decode("latin-1")]


class TestEcho:
    """Through request.data."""

    @pytest.mark.parametrize(
        "value", [None, True, 0, -1.5, "消息 \u0000", [1, [2]], {"a": {"b": []}}, 2**80]
    )
    def test_values(self, api: Api, value: Any) -> None:
        response = api.post(ECHO, json.dumps(value).encode(), api.key()[1])
        assert json.loads(response.content or b"null") == value
        assert response.status_code == 200

    def test_a_number_beyond_any_float(self, api: Api) -> None:
        problem(api.post(ECHO, b'{"a": 1e999}', api.key()[1]), 400, "malformed-body")

    @pytest.mark.parametrize("accept", ["*/*", "application/json", "application/json, text/plain",
                                        "text/html, application/xhtml+xml, */*;q=0.8",
                                        # What openapi-generator's clients send.
                                        "application/problem+json",
                                        "application/problem+json; charset=utf-8, text/html",
                                        ])  # fmt: skip
    def test_json_is_what_is_served(self, api: Api, accept: str) -> None:
        response = api.get(ECHO, api.key()[1], HTTP_ACCEPT=accept)
        assert (response.status_code, response["Content-Type"].split(";")[0]) == (
            200,
            "application/json",
        )

    def test_something_else_is_not_served(self, api: Api) -> None:
        response = api.get(ECHO, api.key()[1], HTTP_ACCEPT="application/xml")
        problem(response, 406, "not-acceptable")

    @pytest.mark.parametrize("accept", ["application/problem+json", "text/html"])
    def test_a_deletion_has_no_answer_that_could_be_refused(self, api: Api, accept: str) -> None:
        answer = api.client.delete("/api/v1/systems/nothing", HTTP_ACCEPT=accept)
        problem(answer, 401, "unauthenticated")


@pytest.mark.django_db
class TestRenderer:
    def render(self, value: Any) -> Any:
        return json.loads(JSONRenderer().render(value))

    @pytest.mark.parametrize(
        ("value", "expected"),
        [
            (datetime.datetime(2026, 11, 20, 8, 0, 0, 1, datetime.UTC),
             "2026-11-20T08:00:00.000001Z"),
            (datetime.date(2026, 11, 20), "2026-11-20"),
            (decimal.Decimal("1.20"), "1.20"),
            (uuid.UUID(int=1), "00000000-0000-0000-0000-000000000001"),
            (gettext_lazy("name"), "name"),
            (ErrorDetail("wrong", code="x"), "wrong"),
            ({"a": (1, 2), 5: {3}}, {"a": [1, 2], "5": [3]}),
        ],
    )  # fmt: skip
    def test_values(self, value: Any, expected: Any) -> None:
        assert self.render(value) == expected

    def test_a_query_is_a_list(self) -> None:
        Biz.objects.create(name="orders")
        assert self.render(Biz.objects.values("name")) == [{"name": "orders"}]

    def test_nothing(self) -> None:
        assert JSONRenderer().render(None) == b""

    def test_what_cannot_be_written(self) -> None:
        with pytest.raises(TypeError, match="object"):
            self.render(object())
