"""Samples of the API's document that use the Python client call methods that it has."""

import ast
from pathlib import Path
from typing import Any

from tests.support.api_document import document

CLIENT = Path(__file__).parents[3] / "clients" / "python" / "src" / "msgplatform_client"


def parameters(module: str, class_name: str) -> dict[str, set[str]]:
    """Method → the names of its parameters. The client cannot be imported here: a part of it is
    generated when it is built."""
    tree = ast.parse((CLIENT / module).read_text())
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    (body,) = [node.body for node in classes if node.name == class_name]
    return {
        method.name: {one.arg for one in (*method.args.args, *method.args.kwonlyargs)}
        for method in body
        if isinstance(method, ast.FunctionDef)
    }


def samples() -> dict[str, str]:
    """Operation → its sample, of those that use the client."""
    operations: list[Any] = [one for path in document()["paths"].values() for one in path.values()]
    by_id = {one["operationId"]: one["x-codeSamples"][1]["source"] for one in operations}
    return {name: code for name, code in by_id.items() if "msgplatform_client" in code}


def test_they_call_what_there_is() -> None:
    methods = parameters("client.py", "Client")
    event = {"event_type", "payload", "key", "channel"}
    assert len(samples()) == 6
    for name, code in samples().items():
        calls = [node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Call)]
        called = {ast.unparse(call.func): {one.arg for one in call.keywords} for call in calls}
        if "Event" in called:
            assert called["Event"] <= event, name
        of_client = {key: args for key, args in called.items() if key.startswith("client.")}
        assert len(of_client) == 1, name
        for method, arguments in of_client.items():
            known = methods[method.removeprefix("client.")]
            filters = {"event_type"} if method == "client.messages" else set()
            assert arguments <= known | filters, name
