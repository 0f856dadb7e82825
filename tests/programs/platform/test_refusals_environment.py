"""What the environment may not say: every variable that has a form, with a value against it."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest
from django.conf import settings

from msgplatform import env

WRONG = {
    "DEBUG": "perhaps",
    "DATABASE_URL": "oracle://x",
    "COLD_DATABASE_URL": "sqlite",
    "CELL": "16/16",
    "CELL_URLS": "0=https://cell-0.example.com,3=cell-3",
    "FLOWS": "notify,notify.feed,gateway,crmsync,telegrams",
    "REDIS_URL": "http://x",
    "SMS_REDIS_URL": "redis//x",
    "SSL_REDIRECT": "2",
    "HSTS_INCLUDE_SUBDOMAINS": "si",
    "HSTS_PRELOAD": "10",
    "TRUST_X_FORWARDED_PROTO": "https",
    "TIME_ZONE": "Mars",
    "API_NUM_PROXIES": "eleven",
    "OUTBOUND": "perhaps",
    "OUTBOUND_ALLOW": "10.0.0.0/40",
    "OUTBOUND_CA_FILE": "/does/not/exist.pem",
    "OUTBOUND_PROXY": "ftp://proxy",
    "NOTIFY_LEASE_SECONDS": "1",
    "NOTIFY_TIMEOUT_SECONDS": "0",
    "NOTIFY_BREAKER_ENABLED": "half",
    "NOTIFY_BREAKER_SECONDS": "0",
    "NOTIFY_BREAKER_KEEP_HOURS": "-1",
    "NOTIFY_FAILING_MINUTES": "-1",
    "NOTIFY_DISABLE_AFTER_HOURS": "-1",
    "NOTIFY_ROTATION_HOURS": "169",
    "NOTIFY_KEEP_DAYS": "a week",
    "NOTIFY_KEEP_FAILED_DAYS": "nan",
    "NOTIFY_ARCHIVE_DAYS": "1.5",
    "MAIL_URL": "http://mail.example.com",
    "SANDBOX": "perhaps",
    "SANDBOX_URL": "sandbox.example.com",
    "AUDIT_EXPORT_ALERT_MINUTES": "0",
    "OTEL_EXPORTER_OTLP_ENDPOINT": "otel-collector:4317",
    "OTEL_EXPORTER_OTLP_HEADERS": "Authorization: Bearer x",
    "OTEL_EXPORTER_OTLP_TIMEOUT": "10s",
    "OTEL_TRACES_SAMPLER_ARG": "1%",
    "TRACE_URL": "https://traces.example.com/trace/",
    "TRACE_DAYS": "0",
    "ALERT_BACKLOG_MINUTES": "a while",
    "ALERT_SILENT_SECONDS": "1",
    "ALERT_MIXED_SECONDS": "0",
    "MINUTE_COUNTER_DAYS": "1",
    "PERSON_ERASURE_DAYS": "0",
    "DAY_COUNTER_DAYS": "0",
    "SMS_IDEMPOTENCY_SECONDS": "1",
    "SMS_KEEP_ARCHIVED_HOURS": "-1",
    "SMS_REPLICAS": "6",
    "SMS_LEASE_SECONDS": "4",
    "SMS_SCHEDULE_DAYS": "400",
    "SMS_FAILING_MINUTES": "-1",
    "SMS_ARCHIVE_DAYS": "-1",
    "SMS_RECEIVER_HOST": "gw.example.com:8801",
    "SMS_RECEIVER_PORT": "70000",
    "CRM_LEASE_SECONDS": "4",
    "CRM_BREAKER_SECONDS": "0",
    "CRM_OPERATION_DAYS": "91",
    "CRM_COPIES_MB": "0",
    "CRM_KEEP_DAYS": "-1",
    "FEED_READ_FANOUT_ABOVE": "9",
    "FEED_WRITE_FANOUT_BELOW": "0",
    "FEED_FANOUT_BATCH": "5",
    "FEED_TIMELINE_LENGTH": "19",
    "FEED_REBUILD_LENGTH": "19",
    "FEED_ACTIVE_DAYS": "0",
    "FEED_KEEP_EVENT_HOURS": "0.5",
    "FEED_KEEP_ENTRY_DAYS": "-1",
    "FEED_CLEAN_SECONDS": "86401",
    "FEED_MAX_AUTHORS": "1",
    "FEED_MIN_SHARE": "0",
    "FEED_LATE_SECONDS": "0.5",
    "FEED_TARGET_STATEMENTS": "0",
    "FEED_TARGET_LATENCY": "1",
    "FEED_TARGET_CPU": "90",
    "ACCESS_LOG": "maybe",
    "API_DOCS_PUBLIC": "perhaps",
    "LOG_JSON": "maybe",
    "LOG_LEVEL": "WARN1",
    "PUBLIC_URL": "example.com",
    "CONFIRM_MINUTES": "0",
    "MFA_ROLES": "administrator,guest",
    "LOCAL_PASSWORDS": "perhaps",
    "OIDC_ISSUER": "login.example.com",
    "OIDC_ROLES": "operator",
    "OIDC_SYSTEMS": "=shop",
    "OIDC_SECOND_FACTOR": "perhaps",
    "OIDC_TIMEOUT_SECONDS": "0.1",
}
# What any text is right for, or what has a check of its own (`test_checks.py`).
_FORMLESS = {"text", "words", "secret", "state_dir", "capitals"}


def read_by_settings() -> set[str]:
    """Names of the variables that settings read through a function that knows a form: those of
    the platform and of each flow."""
    trees = [
        ast.parse((env.BASE_DIR / f"{name.replace('.', '/')}.py").read_text())
        for name in (
            "msgplatform.settings",
            "msgplatform.company.signing_in.settings",
            *(f"{flow}.settings" for flow in settings.FLOWS),
        )
    ]
    return {
        str(node.args[0].value)
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id == "env"
        and node.func.attr not in _FORMLESS
        and node.args
        and isinstance(node.args[0], ast.Constant)
    }


@pytest.fixture(scope="module")
def checked(tmp_path_factory: pytest.TempPathFactory) -> str:
    """One process in which everything is wrong: all of it is told at once."""
    folder: Path = tmp_path_factory.mktemp("wrong")
    environment = {
        "PATH": os.environ["PATH"],
        "STATE_DIR": str(folder),
        "SECRET_KEY": "long enough for Django's own check of it, and random: x8Jq2mL0",
        "ENCRYPTION_KEY": "YSBrZXkgZm9yIHRlc3RzIG9ubHksIDMyIGJ5dGVzIG4=",
        **WRONG,
    }
    done = subprocess.run(
        [sys.executable, "manage.py", "check"],
        cwd=env.BASE_DIR, env=environment, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    return done.stderr


@pytest.mark.parametrize("name", sorted(WRONG))
def test_a_wrong_value_is_named_with_its_repair(checked: str, name: str) -> None:
    lines = checked.splitlines()
    (place,) = [n for n, line in enumerate(lines) if line.startswith(f"{name}: (msgplatform.E")]
    told = f"{lines[place]} {lines[place + 1]}"
    assert "HINT: " in told, "it says what to write instead"


def test_no_variable_is_missing_here() -> None:
    assert read_by_settings() - set(WRONG) == set()
