"""The platform, but it asks for API keys again soon and reserves ids at once: for the server of
test_database_hangs, whose database need not be away for long then."""

import os

os.environ["DJANGO_SETTINGS_MODULE"] = "msgplatform.settings"

from msgplatform.core.data import ids

ids._LOOK_SECONDS = 1.0

from msgplatform.doors.web.asgi import application  # noqa: E402 - the first look begins here

from msgplatform.doors.api.access import key_cache  # noqa: E402  # isort: skip - Django has to be set up

key_cache.TTL_SECONDS, key_cache.REFRESH_SECONDS = 5.0, 4.0

__all__ = ["application"]
