"""The WSGI application. It does not start on a wrong configuration: it says what to mend."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "msgplatform.settings")

from django.conf import settings
from django.core.wsgi import get_wsgi_application

from msgplatform import checks
from msgplatform.api.json import UNSIZED_BODY
from msgplatform.core import flows
from msgplatform.web.handlers import API_PREFIX, ApiHandler, Handler

_pages = get_wsgi_application()  # first: it makes the flows known
_prefixes = (API_PREFIX, *(prefix for flow in flows.all() for prefix in flow.api_prefixes))
_django = Handler(_pages, ApiHandler(), _prefixes)
if wrong := checks.wrong_settings():
    lines = [f"  {message.msg}\n    → {message.hint}" for message in wrong]
    raise SystemExit("msgplatform does not start until this is mended:\n" + "\n".join(lines))


def application(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    """Django, which takes a body without Content-Length (chunked, HTTP/2) for an empty one.

    Where the server ends the stream with the body, the largest size is announced instead: Django
    reads to the end, and what bounds bodies (`api.json.read_body`) knows that it is a bound.
    """
    unsized = not environ.get("CONTENT_LENGTH") and environ.get("wsgi.input_terminated")
    if unsized and (environ.get("CONTENT_TYPE") or "HTTP_TRANSFER_ENCODING" in environ):
        environ["CONTENT_LENGTH"] = str(settings.DATA_UPLOAD_MAX_MEMORY_SIZE)
        environ[UNSIZED_BODY] = True
    return _django(environ, start_response)
