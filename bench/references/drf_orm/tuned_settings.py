"""The same, after reading the documentation on performance."""

from bench.references.drf_orm.default_settings import *  # noqa: F403
from bench.references.drf_orm.default_settings import DATABASES

INSTALLED_APPS = [
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "rest_framework",
    "msgplatform",
]
# Of the platform's app only its tables are used, as in a daemon.
DAEMON = True
MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "django.middleware.common.CommonMiddleware",
]
TEMPLATES = []
DATABASES["default"]["CONN_MAX_AGE"] = 60
REST_FRAMEWORK = {
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_PARSER_CLASSES": ["rest_framework.parsers.JSONParser"],
    "UNAUTHENTICATED_USER": None,
}

BENCH_CACHED_KEY = True
BENCH_ATOMIC = False
