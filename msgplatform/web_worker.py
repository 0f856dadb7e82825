"""What a web worker that `manage.py up` started serves: the WSGI application, and no orphan.

Granian forks its workers, and the kernel's "die with your parent" is not inherited by a fork.
"""

import multiprocessing

from msgplatform.core import attached
from msgplatform.wsgi import application

__all__ = ["application"]

if _parent := multiprocessing.parent_process():
    attached.die_with_parent(_parent.pid or 0)
