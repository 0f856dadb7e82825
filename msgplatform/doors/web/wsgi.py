"""Django's WSGI application. A wrong configuration ends the process with a list of corrections."""

import os

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "msgplatform.settings")

from django.core.checks import run_checks
from django.core.wsgi import get_wsgi_application

application = get_wsgi_application()
# Daemons run the same checks. These connect to no server.
if errors := [check for check in run_checks() if check.is_serious() and not check.is_silenced()]:
    lines = [f"  {error.msg}\n    → {error.hint}" for error in errors]
    raise SystemExit("msgplatform does not start until this is corrected:\n" + "\n".join(lines))
