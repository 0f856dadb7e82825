"""The ASGI application of a web worker."""

from __future__ import annotations

import gc
import multiprocessing

from django.urls import reverse

from msgplatform.core.daemons import beside
from msgplatform.core.data import ids
from msgplatform.core.servers import child_process
from msgplatform.web import wsgi  # before what follows: it sets Django up
from msgplatform.web.application import Application, intakes
from msgplatform.web.django_app import DjangoApp
from msgplatform.web.door import Door

# Threads of Django. Publishes wait for their group's commit in none of them, so that they are for
# what is read and for batches; more of them wait for one interpreter.
_THREADS = 16
_HEALTH = [reverse(name) for name in ("healthz", "readyz")]

# What has no need of the database goes on while that is away, or hangs.
ids.keep_ahead()
beside.switch_on()

application = Application(Door(intakes()), DjangoApp(wsgi.application, _THREADS, _HEALTH))

# Granian forks its workers, and the kernel's "die with your parent" is not inherited by a fork.
if _parent := multiprocessing.parent_process():
    child_process.die_with_parent(_parent.pid or 0)
    # What was imported stays for ever: nothing to look through again and again. A request leaves
    # a few dozen objects in cycles, which may wait for some hundred requests.
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
