"""JSON in and out over msgspec, with a bound on every body.

A view sets its bound with `max_body_bytes`. It holds for the announced length and for the bytes
that are really read.
"""

import json
import re
from codecs import BOM_UTF8
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, TypeVar, cast

import msgspec
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.functional import Promise
from rest_framework.exceptions import NotAcceptable, ParseError, UnsupportedMediaType
from rest_framework.negotiation import DefaultContentNegotiation
from rest_framework.parsers import BaseParser
from rest_framework.renderers import BaseRenderer
from rest_framework.request import Request

from msgplatform.core.errors import InvalidInput
from msgplatform.core.json.values import MAX_DEPTH, RepeatedName, depth, object_of
from msgplatform.doors.api.problems.problem import CONTENT_TYPE, BodyTooLarge

T = TypeVar("T")

MEDIA_TYPE = "application/json"
DEFAULT_MAX_BODY_BYTES = 1024 * 1024


def decode(request: Request, struct: type[T], max_bytes: int = DEFAULT_MAX_BODY_BYTES) -> T:
    """The body as a msgspec Struct; fields of type `msgspec.Raw` keep their exact bytes.

    Raises InvalidInput naming the field, ParseError with the position, BodyTooLarge,
    UnsupportedMediaType.
    """
    return parse(read_json_body(request, max_bytes), struct)


def read_json_body(request: Request, max_bytes: int) -> bytes:
    """`read_body` of a request whose Content-Type is JSON. Raises UnsupportedMediaType too."""
    content_type = request.META.get("CONTENT_TYPE", "")
    if content_type != MEDIA_TYPE and media_type_of(content_type) != MEDIA_TYPE:
        raise UnsupportedMediaType(content_type)
    return read_body(request, max_bytes)


def media_type_of(header: str) -> str:
    """The media type of a Content-Type or of a range of Accept, without parameters."""
    return header.partition(";")[0].strip().lower()


def parse(body: bytes, struct: type[T]) -> T:
    """Decode a body that was read already. Raises InvalidInput, ParseError."""
    try:
        value: T = _parse(body, _decoder(cast(Any, struct)))
    except msgspec.ValidationError as error:
        raise _invalid(error) from None
    return value


def decode_item(item: msgspec.Raw, struct: type[T]) -> T:
    """Decode a value that was kept raw: batches are judged item by item. Raises InvalidInput."""
    try:
        value: T = _decoder(cast(Any, struct)).decode(item)
    except msgspec.ValidationError as error:
        raise _invalid(error) from None
    return value


def read_body(request: HttpRequest | Request, max_bytes: int) -> bytes:
    """The whole body, never more than `max_bytes`. Raises BodyTooLarge, ParseError."""
    encoding = request.META.get("HTTP_CONTENT_ENCODING", "identity")
    if encoding.lower() != "identity":
        raise UnsupportedMediaType(
            request.META.get("CONTENT_TYPE", ""), f"Content-Encoding {encoding} is not read here."
        )
    try:  # a chunked body has a length too (`web/django_app.py`)
        length = max(0, int(request.META.get("CONTENT_LENGTH") or 0))
    except ValueError:
        length = 0
    if length > max_bytes:
        raise BodyTooLarge(max_bytes)
    parts: list[bytes] = [request.read(length)]
    missing_bytes = length - len(parts[0])
    # A stream may return less than was asked for. Only at its end it returns nothing.
    while parts[-1] and missing_bytes > 0:
        parts.append(request.read(missing_bytes))
        missing_bytes -= len(parts[-1])
    if missing_bytes > 0:
        raise ParseError(f"The body ended after {length - missing_bytes} of {length} bytes.")
    return b"".join(parts)


@lru_cache(maxsize=128)
def _decoder(struct: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(struct)


def _parse(body: bytes, decoder: msgspec.json.Decoder[Any]) -> Any:
    """Raises msgspec.ValidationError, or ParseError with the position."""
    body = body.removeprefix(BOM_UTF8)  # RFC 8259, 8.1: a parser may ignore it
    if not body:
        raise ParseError("The body is empty: send a JSON value.")
    try:
        # Check here, because the decoder does not check fields that it skips or keeps raw.
        if not body.isascii():
            body.decode()
        return decoder.decode(body)
    except msgspec.ValidationError:
        raise
    except UnicodeDecodeError as error:
        raise ParseError(f"The body is not UTF-8 at byte {error.start}.") from None
    except msgspec.DecodeError as error:
        # msgspec says "(byte 57)", but people look for a line.
        words, marker, end = str(error), "(byte ", ""
        if marker in words:
            before = body[: int(words.rpartition(marker)[2].rstrip(")"))]
            line, column = before.count(b"\n") + 1, len(before) - before.rfind(b"\n")
            end = f" at line {line}, column {column}"
        raise ParseError(f"{words}{end}.") from None
    except RecursionError:
        raise ParseError("The JSON is nested too deeply.") from None


# Expected `str`, got `int` - at `$.events[3].type`
# Object missing required field `type` - at `$.events[3]`
_MESSAGE = re.compile(
    r"(?P<what>.*?(?P<which>missing required|unknown) field `(?P<name>[^`]*)`|.*?)"
    r"( - at `(key in )?\$(?P<path>[^`]*)`)?",
    re.DOTALL,
)


def _invalid(error: msgspec.ValidationError) -> InvalidInput:
    match: Any = _MESSAGE.fullmatch(str(error))  # every text matches
    path = match["path"] or ""
    if match["which"] is None:
        return InvalidInput(match["what"].replace("`", ""), path.lstrip("."))
    is_missing = match["which"] != "unknown"
    message = "This field is required." if is_missing else "There is no such field."
    return InvalidInput(message, f"{path}.{match['name']}".lstrip("."))


def parse_any(body: bytes) -> Any:
    """Any JSON value, at most MAX_DEPTH levels deep, with each name once in an object. Raises
    ParseError."""
    try:
        value = _parse(body, _decoder(Any))
    except msgspec.ValidationError as error:  # a number beyond a float's range
        raise ParseError(str(error).replace("`", "")) from None
    if depth(value) > MAX_DEPTH:
        raise ParseError(f"The JSON is nested more than {MAX_DEPTH} levels deep.")
    try:
        # msgspec accepts a name that is there twice. Numbers stay text, because Python reads none
        # of more than 4,300 digits.
        json.loads(body, object_pairs_hook=object_of, parse_int=str, parse_float=str)
    except RepeatedName as error:
        raise ParseError(f"The name {str(error)!r} is there twice in one object.") from None
    return value


class JSONParser(BaseParser):
    """`request.data` of views that take plain JSON."""

    media_type = MEDIA_TYPE

    def parse(self, stream: Any, media_type: str | None = None, parser_context: Any = None) -> Any:
        context = parser_context or {}
        max_bytes = getattr(context.get("view"), "max_body_bytes", DEFAULT_MAX_BODY_BYTES)
        return parse_any(read_body(context["request"], max_bytes))


def _encodable(value: Any) -> Any:
    if isinstance(value, str | Promise):  # translated texts and DRF's ErrorDetail
        return str(value)
    if isinstance(value, QuerySet):
        return list(value)
    raise TypeError(f"{type(value).__name__} cannot be written as JSON")


_encoder = msgspec.json.Encoder(enc_hook=_encodable)


class JSONRenderer(BaseRenderer):
    """Times in UTC are written with `Z`, decimals as strings. Ids are strings already."""

    media_type = MEDIA_TYPE
    format = "json"
    charset = None  # JSON is always UTF-8, and its media type has no such parameter

    def render(self, data: Any, *_arguments: Any, **_options: Any) -> bytes:
        return b"" if data is None else _encoder.encode(data)


_TAKES_JSON = frozenset({"*/*", MEDIA_TYPE, f"{MEDIA_TYPE}, */*", CONTENT_TYPE})


class JsonFirst(DefaultContentNegotiation):
    """DRF's negotiation, with a short cut for the usual Accept headers.

    For an operation whose success has no body, generated clients accept `application/problem+json`
    alone: the document has no other media type for it. Such operations take any Accept header:
    DELETE, and the methods that a view names in `bodiless_methods`.
    """

    def select_renderer(
        self, request: Request, renderers: Iterable[BaseRenderer], format_suffix: str | None = None
    ) -> Any:
        renderer = next(iter(renderers))
        if renderer.media_type != MEDIA_TYPE:
            return super().select_renderer(request, renderers, format_suffix)
        meta = request.META
        if (
            meta.get("HTTP_ACCEPT", "*/*") in _TAKES_JSON
            and format_suffix is None
            and not meta.get("QUERY_STRING")
        ):
            return renderer, MEDIA_TYPE
        try:
            return super().select_renderer(request, renderers, format_suffix)
        except NotAcceptable:
            view = request.parser_context.get("view") if request.parser_context else None
            is_bodiless = request.method in ("DELETE", *getattr(view, "bodiless_methods", ()))
            accepted_types = map(media_type_of, meta.get("HTTP_ACCEPT", "").split(","))
            if is_bodiless or CONTENT_TYPE in accepted_types:
                return renderer, MEDIA_TYPE
            raise
