"""Samples of every operation in the OpenAPI document (`x-codeSamples`): for curl, Python and Node.

They are made from the operation itself: its address, its parameters and its first example. The API
key comes from the environment variable API_KEY.
"""

from __future__ import annotations

import json
import pprint
import shlex
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote, urlencode

from django.conf import settings

Schema = dict[str, Any]
# Values for parameters of addresses, each its platform's own.
_VALUES = {
    "id": "249443647488000845",
    "uid": "1001",
    "name": "orders",
    "system": "orders",
    "consumer": "warehouse",
}
_METHODS = ("get", "post", "put", "patch", "delete")
_MEDIA_TYPE = "application/json"


def add(result: Schema, **_context: Any) -> Schema:
    """A hook of drf-spectacular: changes the document, and returns it."""
    operations = list(_operations(result))
    examples = {
        reference: example
        for _path, _method, operation in operations
        if (example := _example(operation)) is not None and (reference := _body(operation))
    }
    schemas = result.get("components", {}).get("schemas", {})
    for path, method, operation in operations:
        body = examples.get(_body(operation)) or _batch(schemas, _body(operation), examples)
        url = f"{settings.PUBLIC_URL}{_address(path, operation)}"
        operation["x-codeSamples"] = [
            {"lang": "Shell", "label": "curl", "source": _curl(method, url, body)},
            {"lang": "Python", "label": "Python", "source": _python(method, url, body)},
            {"lang": "JavaScript", "label": "Node", "source": _node(method, url, body)},
        ]
    return result


def _operations(document: Schema) -> Iterator[tuple[str, str, Schema]]:
    for path, methods in document["paths"].items():
        for method in _METHODS:
            if method in methods:
                yield path, method, methods[method]


def _content(operation: Schema) -> Schema:
    content: Schema = operation.get("requestBody", {}).get("content", {}).get(_MEDIA_TYPE, {})
    return content


def _body(operation: Schema) -> str:
    """The name of the body's component, '' without a body."""
    reference: str = _content(operation).get("schema", {}).get("$ref", "")
    return reference.rpartition("/")[2]


def _example(operation: Schema) -> Any:
    examples: Schema = _content(operation).get("examples", {})
    return next((example["value"] for example in examples.values()), None)


def _batch(schemas: Schema, body: str, examples: Mapping[str, Any]) -> Any:
    """A batch of one item, of an item that has an example of its own."""
    for name, field in schemas.get(body, {}).get("properties", {}).items():
        item = field.get("items", {}).get("$ref", "").rpartition("/")[2]
        if item in examples:
            return {name: [examples[item]]}
    return None


def _address(path: str, operation: Schema) -> str:
    """The path with values for its parameters, and the query parameters that are required."""
    query = {}
    for parameter in operation.get("parameters", ()):
        name, schema = parameter["name"], parameter.get("schema", {})
        value = next(iter(schema.get("enum", ())), _VALUES.get(name, name))
        if parameter["in"] == "path":
            path = path.replace(f"{{{name}}}", quote(str(value), safe=""))
        elif parameter["in"] == "query" and parameter.get("required"):
            query[name] = value
    return f"{path}?{urlencode(query)}" if query else path


def _curl(method: str, url: str, body: Any) -> str:
    lines = [
        f"curl -X {method.upper()} {shlex.quote(url)}",
        '  -H "Authorization: Bearer $API_KEY"',
    ]
    if body is not None:
        lines += [
            f'  -H "Content-Type: {_MEDIA_TYPE}"',
            f"  -d {shlex.quote(json.dumps(body, ensure_ascii=False))}",
        ]
    return " \\\n".join(lines)


def _python(method: str, url: str, body: Any) -> str:
    lines = [
        "import os",
        "",
        "import requests",
        "",
        f"response = requests.{method}(",
        f"    {json.dumps(url)},",
        '    headers={"Authorization": f"Bearer {os.environ[\'API_KEY\']}"},',
    ]
    if body is not None:
        literal = pprint.pformat(body, width=80, sort_dicts=False)
        lines.append(f"    json={_indent(literal, 9)},")
    lines += ["    timeout=30,", ")", "print(response.status_code, response.text)"]
    return "\n".join(lines)


def _node(method: str, url: str, body: Any) -> str:
    lines = [
        f"const response = await fetch({json.dumps(url)}, {{",
        f'  method: "{method.upper()}",',
        "  headers: {",
        "    Authorization: `Bearer ${process.env.API_KEY}`,",
    ]
    if body is None:
        lines.append("  },")
    else:
        literal = json.dumps(body, ensure_ascii=False, indent=2)
        lines += [
            f'    "Content-Type": "{_MEDIA_TYPE}",',
            "  },",
            f"  body: JSON.stringify({_indent(literal, 2)}),",
        ]
    lines += ["});", "console.log(response.status, await response.text());"]
    return "\n".join(lines)


def _indent(text: str, blanks: int) -> str:
    """All lines after the first, so many blanks to the right."""
    return text.replace("\n", "\n" + " " * blanks)
