"""Django's WSGI application. With a wrong configuration it exits, and says what to change."""

from __future__ import annotations

import os

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "msgplatform.settings")

from django.core.checks import run_checks
from django.core.wsgi import get_wsgi_application

application = get_wsgi_application()
# The same checks as a daemon's, the flows' settings included. No server is asked.
if wrong := [m for m in run_checks() if m.is_serious() and not m.is_silenced()]:
    lines = [f"  {message.msg}\n    → {message.hint}" for message in wrong]
    raise SystemExit("msgplatform does not start until this is corrected:\n" + "\n".join(lines))
