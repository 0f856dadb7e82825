"""Command `types`: Python types of the payloads in the catalogue of event types."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import typer

from .exits import Exit, Failure
from .session import Session, on_platform

_HEADER = '''"""Payloads of event types, by `msgp types`: do not change them here.

    data: OrderPaid = delivery.data
"""
'''


@on_platform
def types(
    session: Session,
    file: Annotated[
        str, typer.Option("--output", "-o", help="Write to this file; without it to stdout.")
    ] = "",
    system: Annotated[
        str, typer.Option(help="With the event types that are of this system alone.")
    ] = "",
) -> None:
    """Write Python types (TypedDict) for the payloads of the event types in the catalogue.

    It needs a management key with manage:event-types, and the client's extra `types`.

    msgp types -o events.py
    """
    # The list has those of single systems, too.
    shared = [each for each in session.pages("event-types") if each["system"] is None]
    schemas = {each["name"]: each.get("schema") for each in shared}
    if system:
        own = session.pages("event-types", system=system)
        schemas |= {each["name"]: each.get("schema") for each in own}
    if not schemas:
        raise Failure("The catalogue has no event types.")
    text = _module(schemas)
    if not file:
        session.output.file(text)
        return
    try:
        Path(file).write_text(text, encoding="utf-8")
    except OSError as error:
        raise Failure(f"{file} cannot be written: {error.strerror}.") from error


def _module(schemas: Mapping[str, Any]) -> str:
    """The module's text. Raises Failure when the generator is not installed."""
    try:
        from datamodel_code_generator import InputFileType, generate
        from datamodel_code_generator.enums import DataModelType
        from datamodel_code_generator.format import Formatter, PythonVersion
    except ModuleNotFoundError:
        words = (
            "install the wheel with its extra: pip install 'msgplatform_client-….whl[cli,types]'."
        )
        raise Failure(f"The generator of types is not there: {words}", Exit.USAGE) from None
    with TemporaryDirectory() as folder:
        output = Path(folder) / "events.py"
        generate(
            json.dumps(_document(schemas)),
            input_file_type=InputFileType.JsonSchema,
            output=output,
            output_model_type=DataModelType.TypingTypedDict,
            target_python_version=PythonVersion.PY_311,
            use_annotated=False,
            use_union_operator=True,
            use_standard_collections=True,
            disable_timestamp=True,
            formatters=[Formatter.BUILTIN],
            custom_file_header=_HEADER,
        )
        return output.read_text(encoding="utf-8")


def _document(schemas: Mapping[str, Any]) -> dict[str, Any]:
    """One schema with a definition for each event type, and one of their names."""
    definitions: dict[str, Any] = {"EventType": {"enum": sorted(schemas)}}
    for name, schema in sorted(schemas.items()):
        title = _class_name(name)
        while title in definitions:
            title += "_"
        body = _moved(schema, f"#/$defs/{title}") if isinstance(schema, dict) else {}
        definitions[title] = {**body, "title": title, "description": f"The payload of {name}."}
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "$defs": definitions}


def _moved(schema: Any, place: str) -> Any:
    """The schema with its references as they are below `place`."""
    if isinstance(schema, list):
        return [_moved(each, place) for each in schema]
    if not isinstance(schema, dict):
        return schema
    moved = {key: _moved(value, place) for key, value in schema.items() if key != "$schema"}
    if isinstance(reference := schema.get("$ref"), str) and reference.startswith("#"):
        moved["$ref"] = place + reference[1:]
    return moved


def _class_name(event_type: str) -> str:
    words = re.findall("[A-Za-z0-9]+", event_type)
    name = "".join(f"{word[0].upper()}{word[1:]}" for word in words)
    return name if name[:1].isalpha() else f"Event{name}"
