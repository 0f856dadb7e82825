"""The platform, but a publish waits five minutes for its commit, and as long for a lock: for the
server of test_door_server, which holds a lock while it does much else."""

from msgplatform.core.data import engines
from msgplatform.core.intake.group_commit import GroupCommit

for options, limit in (
    (engines.MYSQL.options, "innodb_lock_wait_timeout=5"),
    (engines.SQLITE.options, "busy_timeout=20"),
):
    before = options["init_command"]
    options["init_command"] = before.replace(limit, f"{limit.split('=')[0]}=300")
    assert options["init_command"] != before
engines.MYSQL.options["read_timeout"] = 300
assert GroupCommit.__init__.__kwdefaults__
GroupCommit.__init__.__kwdefaults__["timeout"] = 300.0

from msgplatform.doors.web.asgi import application  # noqa: E402 - reads the settings

__all__ = ["application"]
