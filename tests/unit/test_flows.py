"""The contract that every flow must pass."""

from __future__ import annotations

import importlib
import re
from collections.abc import Mapping

import pytest
from django.core.management import get_commands, load_command_class

from msgplatform.core import flows
from msgplatform.core.daemon import DaemonCommand

FLOWS = flows.all()


def test_flows_are_registered() -> None:
    assert [flow.name for flow in FLOWS] == ["notify"]


@pytest.mark.parametrize("flow", FLOWS, ids=lambda flow: flow.name)
class TestContract:
    def test_name_is_a_slug(self, flow: flows.Flow) -> None:
        assert re.fullmatch(r"[a-z]+", flow.name)
        assert flow.title
        assert re.fullmatch(r"[a-z]+\.[a-z]+_[a-z]+", flow.permission)

    def test_daemons_are_commands_of_this_project(self, flow: flows.Flow) -> None:
        commands = get_commands()
        assert flow.daemons
        for daemon in flow.daemons:
            app = commands[daemon.command]
            command = load_command_class(app, daemon.command)
            assert isinstance(command, DaemonCommand)
            assert daemon.processes >= 1

    def test_role_in_heartbeat_is_the_commands_name(self, flow: flows.Flow) -> None:
        for daemon in flow.daemons:
            command = load_command_class(get_commands()[daemon.command], daemon.command)
            worker = command.worker()
            assert f"run_{worker.role}" == daemon.command

    def test_urls_import(self, flow: flows.Flow) -> None:
        if flow.urls:
            assert importlib.import_module(flow.urls).urlpatterns

    def test_scopes_are_named_and_explained(self, flow: flows.Flow) -> None:
        for scope, text in flow.scopes.items():
            assert re.fullmatch(r"[a-z]+:[a-z]+", scope)
            assert text

    def test_filters_are_explained(self, flow: flows.Flow) -> None:
        assert isinstance(flow.filters, Mapping)
        assert all(flow.filters.values())


def test_the_same_name_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="registered already"):
        flows.register(FLOWS[0])
