"""Settings of the audit log's export."""

from msgplatform import env

# -- export of the audit log ---------------------------------------------------------------------
# Where `run_bulk` hands over the audit log as signed, chained lines: `stdout`, `syslog`,
# `syslog://host:601` or an `https://` address. A webhook's address is as sensitive as a password
# where it holds a token: AUDIT_EXPORT_FILE works too.
# By default: nowhere
AUDIT_EXPORT = env.secret("AUDIT_EXPORT")
# The bearer token for the webhook of AUDIT_EXPORT.
# By default: none
AUDIT_EXPORT_TOKEN = env.secret("AUDIT_EXPORT_TOKEN")
# Signs the lines (Ed25519): 32 bytes in URL-safe base64. Several, separated by commas: the first
# signs, `verify_audit` knows all. With AUDIT_EXPORT `run_bulk` needs it.
# By default: the file `audit_signing_key` in STATE_DIR, if it is there
AUDIT_SIGNING_KEYS = tuple(
    env.secret("AUDIT_SIGNING_KEY", default_file=env.state_dir() / "audit_signing_key")
    .replace(",", " ")
    .split()
)
# Entries that were not taken for so long make an alert.
AUDIT_EXPORT_ALERT_MINUTES = env.number("AUDIT_EXPORT_ALERT_MINUTES", 5, 0.01, 10_080)
