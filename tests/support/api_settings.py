"""The platform's settings with the addresses of the API's tests, for a server process."""

from msgplatform.settings import *  # noqa: F403

ROOT_URLCONF = "tests.support.api_views"
