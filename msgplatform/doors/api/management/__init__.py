"""The management API: sets up the platform and acts on many messages, without the console.

resources    what every named thing has in common: list, show, create or replace, delete
systems      business systems and their keys
failures     messages that are not tried any more: list, acknowledge, send again
people       who uses the console, and their groups
jobs         bulk jobs: start, watch, pause, resume, cancel
statistics   counters over time
urls         their addresses; flows add those of their own things

A management key (`msgplatform.models.ApiKey` without a business system) opens it, by scopes that
begin with `manage:`.
"""
