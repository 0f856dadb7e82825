"""Refuses a package without the part that is made from the platform's OpenAPI document."""

from pathlib import Path

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class GeneratedPart(BuildHookInterface):
    def initialize(self, version: str, build_data: dict) -> None:
        if not (Path(self.root) / "src" / "msgplatform_client" / "generated").is_dir():
            raise SystemExit(
                "This folder lacks the generated part of the client. Install the package that your "
                "platform serves at /clients/, or build it: make clients, in the root of the clone."
            )
