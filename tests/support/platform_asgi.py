"""The platform with its own addresses, for the server of test_api_server.

Its SMS intake reads gateways and accounts at every call, because every test makes new ones.
"""

import os

os.environ["DJANGO_SETTINGS_MODULE"] = "msgplatform.settings"

from msgplatform.doors.web.asgi import application

from gateway.directory import Directory  # isort: skip - Django has to be set up
from gateway.intake import accept

_fresh = accept.Intake(Directory(refresh_seconds=0.0))
accept.intake = lambda: _fresh  # type: ignore[assignment]

__all__ = ["application"]
