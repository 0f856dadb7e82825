"""Notify and SMS on two groups of Redis, each behind HAProxy."""

from __future__ import annotations

from pathlib import Path

from tests.cluster import DAEMONS, PATIENT_LEASE_SECONDS, WEB
from tests.flows.sms_cluster import SmsCluster
from tests.scale.sentinel import Group

SMG = "city"
SMS_PROGRAMS = ("sender-a", "receiver", "forwarder", "pump")
_NODE = 3010012301


class RedisPlatform(SmsCluster):
    """One of each program. The private Redis servers of `Cluster` run and are not used."""

    def __init__(self, folder: Path, database_url: str, groups: dict[str, Group]) -> None:
        super().__init__(folder, database_url, {SMG: ()}, (WEB, *DAEMONS))
        self.groups = groups
        self.has_gateway = False
        self.environment |= {
            "REDIS_URL": groups["work"].url,
            "SMS_REDIS_URL": groups["sms"].url,
            "NOTIFY_LEASE_SECONDS": str(PATIENT_LEASE_SECONDS),
            "NOTIFY_TIMEOUT_SECONDS": "10",
            "FLOWS": "notify,gateway",
            "SMS_REPLICAS": "1",
        }

    def __enter__(self) -> RedisPlatform:
        super().__enter__()
        for name in (SMG, *SMS_PROGRAMS):
            self.start(name)
        return self

    def set_replicas(self, count: int) -> None:
        """All programs have this SMS_REPLICAS from now on."""
        self.environment["SMS_REPLICAS"] = str(count)
        for name in [name for name in self.processes if name != SMG]:
            self.stop(name)
            self.start(name)
        self.wait_until(self._ready, "the web server to be ready")

    def gateway_row(self) -> dict[str, object]:
        return {
            "host": "127.0.0.1", "port": self.ports[SMG], "login_name": "sp",
            "login_password": "secret", "smg_login_name": SMG, "smg_login_password": "secret",
            "corp_id": "12345", "node_id": _NODE, "prefixes": ["138"], "connections": 2,
            "response_timeout": 5.0,
        }  # fmt: skip
