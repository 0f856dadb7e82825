"""The platform with its own addresses, for the server of test_api_server.

Its SMS intake reads gateways and accounts at every call, because every test makes new ones.
"""

import os

os.environ["DJANGO_SETTINGS_MODULE"] = "msgplatform.settings"

from msgplatform.web.asgi import application

from gateway.api import requests  # isort: skip - Django has to be set up
from gateway.directory import Directory
from gateway.intake.accept import Intake

_fresh = Intake(Directory(refresh_seconds=0.0))
requests.intake = lambda: _fresh  # type: ignore[attr-defined,assignment]

__all__ = ["application"]
