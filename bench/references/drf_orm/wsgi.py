"""The application; a worker of granian must not outlive the bench."""

import multiprocessing

from django.core.wsgi import get_wsgi_application

from msgplatform.core.servers import child_process

if parent := multiprocessing.parent_process():
    child_process.die_with_parent(parent.pid or 0)

application = get_wsgi_application()
