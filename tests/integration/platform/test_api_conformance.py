"""Whatever callers send, the real server answers as the OpenAPI document says: schemathesis makes
requests from the document, valid and wrong ones, and judges the answers.

Of the requests that schemathesis makes for the bounds of the document, each rule of each parameter
and field is broken once, and each kind of valid request is sent once; MSGPLATFORM_FULL_LOAD=1 sends
all of them, and so does API_EXAMPLES. API_EXAMPLES=1000 hunts: so many random requests for each
operation, others every time. API_PATHS is a regular expression of the addresses to ask, if not all
of them.
"""

import copy
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis import Case
from schemathesis.core.parameters import ParameterLocation
from schemathesis.generation.hypothesis.builder import (
    HypothesisTestConfig,
    HypothesisTestMode,
    create_test,
)
from schemathesis.generation.meta import CoveragePhaseData
from schemathesis.specs.openapi.checks import negative_data_rejection, positive_data_acceptance

from tests.support.api_document import document
from tests.support.api_server import Server
from tests.support.api_things import Things

EXAMPLES, PATHS = os.environ.get("API_EXAMPLES"), os.environ.get("API_PATHS", "")
IS_WHOLE = bool(EXAMPLES or os.environ.get("MSGPLATFORM_FULL_LOAD"))
EFFORT = settings(
    max_examples=int(EXAMPLES or 2),
    derandomize=not EXAMPLES,
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    server = Server(
        tmp_path / "log",
        "tests.support.platform_asgi:application",
        {"API_RATE_READ": "off", "API_RATE_FAILED": "off"},
    )
    yield server
    server.stop()


def without_keys(document: dict[str, Any]) -> dict[str, Any]:
    """Every request has a valid key: what happens without one is tested elsewhere."""
    whole = copy.deepcopy(document)
    del whole["components"]["securitySchemes"]
    for methods in whole["paths"].values():
        for operation in methods.values():
            del operation["security"]
    return whole


def judge(case: Case, response: Any, without: Sequence[Any] = (), more: Sequence[Any] = ()) -> None:
    # A request that is right by its schema may be about something that does not exist, or that
    # nobody can know by the schema.
    excluded = [positive_data_acceptance, *without]
    case.validate_response(response, excluded_checks=excluded, additional_checks=list(more))


def has_rejected(_context: Any, response: Any, case: Case) -> None:
    """A batch is answered by 200 even if its items are wrong; then their verdicts say so."""
    if case.meta.generation.mode.is_negative and response.status_code == 200:
        assert "rejected" in {verdict["outcome"] for verdict in response.json()["results"]}


def kind(case: Case) -> object:
    """Cases of the same kind break the same rule of the same field, or are valid in the same way;
    each case that is not about a bound of the document is a kind by itself."""
    bound = case.meta.phase.data
    if not isinstance(bound, CoveragePhaseData):
        return case.id
    return (
        case.operation.label, case.meta.generation.mode, bound.scenario,
        bound.parameter_location, bound.parameter, bound.location,
    )  # fmt: skip


def aimed(case: Case, things: Things) -> None:
    """Make most requests about things that are there: random names and ids never are."""
    found, parts = things.found(case.method, case.path), case.meta.components
    path, query = parts.get(ParameterLocation.PATH), parts.get(ParameterLocation.QUERY)
    if found and path and path.mode.is_positive and crc32(repr(case).encode()) % 4:
        case.path_parameters = dict(found)
    if case.headers and crc32(repr(case).encode()) % 3:
        for name in ("If-Match", "If-None-Match"):  # things are there, in other versions
            case.headers.pop(name, None)
    if query and query.mode.is_positive:
        case.query |= things.asked(case.method, case.path)
    body = parts.get(ParameterLocation.BODY)
    if body and body.mode.is_positive and isinstance(case.body, dict):
        case.body = {**case.body, **things.body(case.path)}


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("work_redis", "sms_redis")
def test_every_answer_is_documented(
    server: Server, tmp_path: Path, subtests: pytest.Subtests
) -> None:
    things, session = Things(tmp_path), requests.Session()
    session.trust_env = False  # it looks for proxies in the whole environment, at each request
    succeeded, kinds = set(), set[object]()

    @EFFORT
    def ask(case: Case) -> None:
        if not IS_WHOLE and kind(case) in kinds:
            return
        kinds.add(kind(case))
        aimed(case, things)
        operation = case.operation
        response = case.call(
            base_url=f"http://127.0.0.1:{server.port}",
            session=session,
            headers={"Authorization": f"Bearer {things.key(operation.definition.raw)}"},
            timeout=120,  # some addresses are checked by a process that has to start
        )
        if response.status_code < 400:
            succeeded.add(operation.label)
        if operation.path.endswith("/batch"):
            judge(case, response, [negative_data_rejection], [has_rejected])
        else:
            judge(case, response)

    # Not by the plugin of schemathesis: with pytest 9.2 all of its tests would have the same id.
    api = schemathesis.openapi.from_dict(without_keys(document())).include(path_regex=PATHS)
    rejection = api.config.checks.negative_data_rejection
    # An If-Match of another version is refused before the rest is read.
    rejection.expected_statuses = [*rejection.expected_statuses, "412"]
    plan = HypothesisTestConfig(project=api.config, modes=list(HypothesisTestMode))
    operations = {found.ok().label: found.ok() for found in api.get_all_operations()}
    for label, operation in operations.items():
        with subtests.test(label):
            create_test(operation=operation, test_func=ask, config=plan)()
    # Otherwise only refusals were judged.
    assert operations.keys() - succeeded == set()
