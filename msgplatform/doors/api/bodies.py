"""Fields of request bodies. A body is described once, by a msgspec Struct: views decode it, and the
OpenAPI document shows it.

    class NoteBody(msgspec.Struct, forbid_unknown_fields=True):
        text: Annotated[str, text("What to note", max_length=100)]
        idempotency_key: IdempotencyKey = None

msgspec checks types. Bounds are shown in the document and checked by the intake, with a sentence
for each error: the Agent and XML-RPC come to the intake too.
"""

from collections.abc import Sequence
from typing import Annotated, Any

from drf_spectacular.plumbing import build_choice_description_list, list_hash
from msgspec import Meta

from msgplatform.core.intake.idempotency import MAX_KEY_LENGTH

KEY_PATTERN = "^[!-~]+$"  # the same characters as in `idempotency.check_key`
KEY_HELP = "Repeat with the same key and get the first answer; the header works as well"
MAX_BATCH = 1000  # items of one request


def field(description: str, **bounds: Any) -> Meta:
    """A field with its description; `bounds` are keywords of JSON Schema."""
    return Meta(description=description or None, extra_json_schema=bounds or None)


def choice(choices: Sequence[tuple[str, Any]], description: str = "") -> Meta:
    """One of a few texts: (value, label), as in a Django model. Serializers of answers with equal
    choices share the document's component."""
    labels = [(value, str(label)) for value, label in choices]
    values = [value for value, _label in labels]
    texts = filter(None, (description, build_choice_description_list(labels)))
    return field("\n\n".join(texts), **{"enum": values, "x-spec-enum-id": list_hash(labels)})


def text(description: str = "", max_length: int | None = None, pattern: str = "") -> Meta:
    """A text that is not empty; `max_length` counts characters."""
    bounds = {"minLength": 1, "maxLength": max_length, "pattern": pattern}
    return field(description, **{name: bound for name, bound in bounds.items() if bound})


def items(description: str) -> Meta:
    """The only field of a batch's body."""
    return field(description, minItems=1, maxItems=MAX_BATCH)


IdempotencyKey = Annotated[str | None, text(KEY_HELP, MAX_KEY_LENGTH, KEY_PATTERN)]
