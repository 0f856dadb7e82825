"""A database as a tree before the migrations were squashed left it (commit 3f92bdf).

Its tables are those of today without what LATER takes back, and one of one-time passwords; that was
compared once, table by table, on SQLite (where the order of some columns differs) and MariaDB. Else
only its rows of django_migrations and of content types differ; the content type of the cell stays
here, as permissions of groups hold it.
"""

from __future__ import annotations

# App → its migrations at that commit. The other apps had those that they have today.
NAMES = {
    "msgplatform": """
        0001_initial 0002_day_counter 0003_people 0004_failures 0005_management_keys
        0006_one_time_passwords 0007_bulk_outcomes_and_saved_filters 0008_audit_log_target
        0009_bulk_batch_endings 0010_alert_said 0011_hour_counter 0012_job_waits
        0013_exact_names
    """,
    "notify": """
        0001_initial 0002_receivers_and_health 0003_archive 0004_encrypted_columns
        0005_encrypt_secrets 0006_given_up 0007_restored_messages 0008_own_process
        0009_list_by_event_type 0010_plain_words 0011_given_up_is_the_platforms
        0012_event_types 0013_operate_subscriptions 0014_why_disabled 0015_exact_names
        0016_turns_of_systems
    """,
    "gateway": """
        0001_initial 0002_connections_help 0003_partitions 0004_encrypted_columns
        0005_encrypt_secrets 0006_own_process 0007_incoming_and_ended
        0008_networks_and_operator 0009_report_hours_help 0010_exact_names
    """,
    "crmsync": """
        0001_initial 0002_lead_triggers 0003_sync 0004_hive_source 0005_partitions
        0006_view_personal 0007_one_permission_for_personal_data 0008_lead_versions
        0009_adopted_records 0010_exact_names
    """,
}

ONE_TIME_PASSWORDS = (
    "CREATE TABLE msgplatform_onetimepassword (user_id INTEGER NOT NULL PRIMARY KEY)",
    "INSERT INTO django_content_type (app_label, model) VALUES ('msgplatform', 'onetimepassword')",
)


# App → statements that take back what its later migrations added.
LATER = {
    "gateway": (
        "ALTER TABLE sms_account DROP COLUMN report_batches",
        "ALTER TABLE sgip_mt DROP COLUMN event_id",
    ),
    "crmsync": (
        "ALTER TABLE sync_operation DROP COLUMN first_try_at",
        "ALTER TABLE sync_operation DROP COLUMN first_try_ms",
    ),
    "msgplatform": (
        "DROP TABLE message_trace",
        "DROP TABLE cell",
        "DROP TABLE kept_object",
        "DROP TABLE alert_news",
        "DROP TABLE alert_notice",
        "DROP TABLE alert_message",
        "DROP TABLE alert_rule_system",
        "DROP TABLE alert_rule_channel",
        "DROP TABLE alert_rule",
        "DROP TABLE alert_channel",
        "ALTER TABLE msgplatform_apikey DROP COLUMN systems",
        "DROP INDEX bulk_job_system /*! ON msgplatform_bulkjob */",
        "ALTER TABLE msgplatform_bulkjob DROP COLUMN biz_id",
        "DROP TABLE person_limit_systems",
        "DROP TABLE person_limit",
        "DROP TABLE audit_export",
        # SQLite takes the table's name, which MariaDB wants, for a comment.
        "DROP INDEX audit_log_line /*! ON msgplatform_auditlog */",
        "ALTER TABLE msgplatform_auditlog DROP COLUMN line",
        "ALTER TABLE biz DROP COLUMN encrypts_payloads",
        "DROP TABLE person_erasure",
    ),
    "notify": (
        *(
            f"ALTER TABLE biz_receive DROP COLUMN {name}"
            for name in ("format", "log_answers", "log_days", "answers_removed_below")
        ),
        "ALTER TABLE receive DROP COLUMN delivery",
        "ALTER TABLE event_type DROP COLUMN personal_fields",
    ),
}


def disguise(*apps: str) -> list[str]:
    """Statements after which a database that was migrated looks as that tree left it."""
    statements = []
    for app in apps or NAMES:
        values = ", ".join(
            f"('{app}', '{name}', '2026-11-24 12:00:00')" for name in NAMES[app].split()
        )
        statements += [
            f"DELETE FROM django_migrations WHERE app = '{app}'",
            f"INSERT INTO django_migrations (app, name, applied) VALUES {values}",
        ]
    return [
        *statements,
        "UPDATE django_content_type SET model = 'givenup' WHERE model = 'failuregroup'",
        *(ONE_TIME_PASSWORDS if "msgplatform" in (apps or NAMES) else ()),
        *(statement for app in apps or NAMES for statement in LATER.get(app, ())),
    ]
