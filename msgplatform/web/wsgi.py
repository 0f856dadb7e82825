"""Django's WSGI application. With a wrong configuration it exits, and says what to change."""

from __future__ import annotations

import os

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "msgplatform.settings")

from django.core.wsgi import get_wsgi_application

from msgplatform import checks

application = get_wsgi_application()
if wrong := checks.wrong_settings():
    lines = [f"  {message.msg}\n    → {message.hint}" for message in wrong]
    raise SystemExit("msgplatform does not start until this is corrected:\n" + "\n".join(lines))
