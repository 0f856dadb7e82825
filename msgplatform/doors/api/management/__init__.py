"""The management API: sets up the platform and acts on many messages, without the console.

A management key (`msgplatform.models.ApiKey` without a business system) opens it, by scopes that
begin with `manage:`.
"""
