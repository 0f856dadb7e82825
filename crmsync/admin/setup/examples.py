"""Settings and credentials of each kind of CRM to begin with; a person replaces the addresses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_HTTP = {
    "url": "https://crm.example.com/api/leads",
    "headers": {"Authorization": "Bearer {secret.token}"},
    "body": {"external_id": "{key}", "fields": "{fields}"},
    "is_upsert": True,
    "update": {
        "method": "PATCH", "url": "https://crm.example.com/api/leads/{remote_id}",
        "body": {"fields": "{fields}"},
    },
    "delete": {"method": "DELETE", "url": "https://crm.example.com/api/leads/{remote_id}"},
    "read": {
        "url": "https://crm.example.com/api/leads?external_id={key}", "record": "items.0.fields",
        "remote_id": "items.0.id",
    },
    "read_by_id": {"url": "https://crm.example.com/api/leads/{remote_id}", "record": "fields"},
    "test": {"url": "https://crm.example.com/api/me"},
    "answer": {"remote_id": "id", "existing_id": "existing_id", "message": "message"},
}  # fmt: skip

# By the adapter's name: settings, credentials.
EXAMPLES: Mapping[str, tuple[Mapping[str, Any], Mapping[str, Any]]] = {
    "http": (_HTTP, {"token": ""}),
    "hubspot": ({"object": "contacts", "id_property": "hive_id"}, {"token": ""}),
    "salesforce": (
        {
            "login_url": "https://example.my.salesforce.com", "object": "Lead",
            "external_id": "Hive_Id__c",
        },
        {"client_id": "", "client_secret": ""},
    ),
    "sql": (
        {"table": "customer", "key_column": "id", "version_column": "version",
         "deleted_column": "is_deleted"},
        {"url": "mysql://user:password@db.example.com:3306/crm"},
    ),
    "tryton": (
        {"url": "https://tryton.example.com", "database": "crm", "user": "msgplatform",
         "model": "party.party", "key_field": "code"},
        {"password": ""},
    ),
}  # fmt: skip
