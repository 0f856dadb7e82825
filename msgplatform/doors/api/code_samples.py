"""Samples of every operation in the OpenAPI document (`x-codeSamples`): for curl, Python and
TypeScript.

They are made from the operation itself: its address, its parameters and its first example. Where
the Python client has a method for the operation, the sample calls it. The API key comes from the
environment variable API_KEY.
"""

import json
import pprint
import shlex
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import quote, urlencode

from django.conf import settings

Schema = dict[str, Any]
# Examples of values for the parameters of addresses.
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
    operations = [
        (path, method, methods[method])
        for path, methods in result["paths"].items()
        for method in _METHODS
        if method in methods
    ]
    examples = {}  # of bodies, by component
    for _path, _method, operation in operations:
        for example in list(_content(operation).get("examples", {}).values())[:1]:
            if example["value"] is not None and (component := _body_name(operation)):
                examples[component] = example["value"]
    schemas = result.get("components", {}).get("schemas", {})
    for path, method, operation in operations:
        component = _body_name(operation)
        body = examples.get(component) or _batch(schemas, component, examples)
        url = f"{settings.PUBLIC_URL}{_address(path, operation)}"
        operation["x-codeSamples"] = [
            {"lang": "Shell", "label": "curl", "source": _curl(method, url, body)},
            {"lang": "Python", "label": "Python",
             "source": _client(operation, body) or _python(method, url, body)},
            {"lang": "TypeScript", "label": "TypeScript",
             "source": _typescript(method, url, body)},
        ]  # fmt: skip
    return result


def _content(operation: Schema) -> Schema:
    content: Schema = operation.get("requestBody", {}).get("content", {}).get(_MEDIA_TYPE, {})
    return content


def _body_name(operation: Schema) -> str:
    """The name of the body's component, '' without a body."""
    reference: str = _content(operation).get("schema", {}).get("$ref", "")
    return reference.rpartition("/")[2]


def _batch(schemas: Schema, body_name: str, examples: Mapping[str, Any]) -> Any:
    """A batch of one item whose own operation has an example."""
    for name, field in schemas.get(body_name, {}).get("properties", {}).items():
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


def _call(name: str, arguments: Mapping[str, Any], unnamed_count: int) -> str:
    """A call of a client's method, whose first `unnamed_count` arguments go by their place."""
    texts = [_literal(value) for value in list(arguments.values())[:unnamed_count]]
    texts += [f"{key}={_literal(value)}" for key, value in list(arguments.items())[unnamed_count:]]
    one_line = f"client.{name}({', '.join(texts)})"
    if len(one_line) <= 80 and "\n" not in one_line:
        return one_line
    lines = "".join(f"\n    {_indent(text, 4)}," for text in texts)
    return f"client.{name}({lines}\n)"


def _literal(value: Any) -> str:
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    return pprint.pformat(value, width=72, sort_dicts=False)


def _rename_fields(body: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """The body's fields as arguments of a method: body's name → the argument's."""
    return {names[name]: body[name] for name in names if name in body}


_KEY = {"idempotency_key": "key"}
_EVENT = {"event_type": "event_type", "payload": "payload", **_KEY, "channel": "channel"}
_SMS = {"to": "to", "text": "text", **_KEY, "reference": "reference", "account": "account"}


def _publish_many(body: Any) -> str:
    events = [_call("Event", _rename_fields(event, _EVENT), 2) for event in body["messages"]]
    text = ", ".join(event.removeprefix("client.") for event in events)
    call = f"verdicts = client.publish_many([{text}])"
    return f"{call}\nprint([verdict.outcome.value for verdict in verdicts])"


# Operation → lines that do it, with `client` of msgplatform-client.
_CLIENT_CALLS: dict[str, Callable[[Any], str]] = {
    "messages_create": lambda body: (
        f"sent = {_call('publish', _rename_fields(body, _EVENT), 2)}\nprint(sent.outcome, sent.id)"
    ),
    "messages_batch_create": _publish_many,
    "messages_list": lambda _body: (
        'for message in client.messages(event_type="order.paid"):\n'
        "    print(message.id, message.state)"
    ),
    "messages_retrieve": lambda _body: (
        f"message = client.message({_literal(_VALUES['id'])})\n"
        "print(message.state, [delivery.status.value for delivery in message.deliveries])"
    ),
    "sms_create": lambda body: (
        f"sent = {_call('send_sms', _rename_fields(body, _SMS), 2)}\nprint(sent.outcome, sent.ids)"
    ),
    "sms_retrieve": lambda _body: f"sms = client.sms({_literal(_VALUES['id'])})\nprint(sms.state)",
}


def _client(operation: Schema, body: Any) -> str:
    """The sample with the Python client; '' where it has no method for the operation."""
    write_calls = _CLIENT_CALLS.get(operation.get("operationId", ""))
    if write_calls is None:
        return ""
    calls = write_calls(body)
    names = "Client, Event" if "Event(" in calls else "Client"
    return "\n".join([
        "import os",
        "",
        f"from msgplatform_client import {names}",
        "",
        f"with Client({json.dumps(settings.PUBLIC_URL)}, os.environ[\"API_KEY\"]) as client:",
        f"    {_indent(calls, 4)}",
    ])  # fmt: skip


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


def _typescript(method: str, url: str, body: Any) -> str:
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
    """The text with `blanks` before each line but the first."""
    return text.replace("\n", "\n" + " " * blanks)
