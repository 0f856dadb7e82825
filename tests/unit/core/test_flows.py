"""The contract that every flow must pass."""

import importlib
import re
from typing import Any

import pytest
from django.core.management import get_commands, load_command_class

from msgplatform.core import flows
from msgplatform.core.daemons.command import DaemonCommand
from msgplatform.core.flows.contract import Flow

FLOWS = flows.all()


def test_flows_are_registered() -> None:
    assert [flow.name for flow in FLOWS][:4] == ["notify", "feed", "sms", "crmsync"]


@pytest.mark.parametrize("flow", FLOWS, ids=lambda flow: flow.name)
class TestContract:
    def test_name_is_a_slug(self, flow: Flow) -> None:
        assert re.fullmatch(r"[a-z]+", flow.name)
        assert flow.title
        assert re.fullmatch(r"[a-z]+\.[a-z]+_[a-z]+", flow.permission)

    def test_daemons_are_commands_of_this_project(self, flow: Flow) -> None:
        commands = get_commands()
        assert flow.daemons
        for daemon in flow.daemons:
            app = commands[daemon.command]
            command: Any = load_command_class(app, daemon.command)
            assert isinstance(command, DaemonCommand)

    def test_role_in_heartbeat_is_the_commands_name(self, flow: Flow) -> None:
        for daemon in flow.daemons:
            command: Any = load_command_class(get_commands()[daemon.command], daemon.command)
            options = vars(command.create_parser("manage.py", daemon.command).parse_args([]))
            worker = command.worker(**options)
            assert f"run_{worker.role}" == daemon.command

    def test_urls_import(self, flow: Flow) -> None:
        if flow.urls:
            assert importlib.import_module(flow.urls).urlpatterns

    def test_scopes_are_named_and_explained(self, flow: Flow) -> None:
        for scope, text in flow.scopes.items():
            assert re.fullmatch(r"(?!manage:)[a-z]+:[a-z]+", scope)
            assert text
        for scope, text in flow.management_scopes.items():
            assert re.fullmatch(r"manage:[a-z]+(-[a-z]+)*", scope)
            assert text

    def test_search_fields_are_explained(self, flow: Flow) -> None:
        assert all(re.fullmatch(r"[a-z_]+", name) for name in flow.messages.fields)
        assert all(str(field.label) for field in flow.messages.fields.values())

    def test_the_first_calls_need_a_scope_of_its_own(self, flow: Flow) -> None:
        # CRM sync's names a landing page, which is in the database.
        calls = flow.setup.first_calls() if flow.name != "crmsync" else ()
        assert len({call.scope for call in calls}) <= 1
        for call in calls:
            assert call.scope in flow.scopes
            assert call.path.startswith("/api/v1/")

    def test_bulk_actions_are_explained(self, flow: Flow) -> None:
        for name, action in flow.actions.items():
            assert re.fullmatch(r"[a-z_]{1,32}", name)  # a bulk job keeps it
            assert str(action.title)
            assert all(re.fullmatch(r"[a-z_]+", field) for field in action.fields)
            assert all(str(field.label) for field in action.fields.values())
            assert "rate" not in action.fields  # the form has its own


def test_the_same_name_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="registered already"):
        flows.register(FLOWS[0])
