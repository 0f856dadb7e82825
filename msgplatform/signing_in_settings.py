"""Settings of signing in to the console: local passwords, the company's provider (OpenID Connect),
second factors; and those of django-allauth, which is behind the last two.

The comment above each is its meaning in `docs/configuration.md`, which `make docs` writes.
"""

from __future__ import annotations

from msgplatform import env

# -- signing in ----------------------------------------------------------------------------------
# For so long after a login, or after the last proof of who somebody is, secrets are shown and
# people and their roles are changed without another proof.
CONFIRM_MINUTES = env.integer("CONFIRM_MINUTES", 15, 1, 720)

# -- django-allauth ------------------------------------------------------------------------------
ACCOUNT_ADAPTER = "msgplatform.console.signing_in.accounts.AccountAdapter"
ACCOUNT_REAUTHENTICATION_TIMEOUT = CONFIRM_MINUTES * 60
ACCOUNT_FORMS = {"reauthenticate": "msgplatform.console.signing_in.login.ConfirmPasswordForm"}
# Addresses of people are shown and sent to nobody, and identify nobody.
ACCOUNT_EMAIL_VERIFICATION = "none"
ACCOUNT_SIGNUP_FIELDS = ["username*", "password1*"]
ACCOUNT_UNIQUE_EMAIL = False
