"""Settings of signing in to the console: local passwords, second factors; and those of
django-allauth, which is behind the latter."""

from msgplatform import env

# -- signing in ----------------------------------------------------------------------------------
# For so long after a login, or after the last proof of who somebody is, secrets are shown and
# people and their roles are changed without another proof.
CONFIRM_MINUTES = env.integer("CONFIRM_MINUTES", 15, 1, 720)

# Roles whose people must have a second factor, separated by commas: `administrator,operator`.
# Superusers count as administrators. Anybody may have one.
# By default: none
MFA_ROLES = env.words_of("MFA_ROLES", ("viewer", "operator", "administrator"))

# `no`: people get in by the company's provider alone, and by the link that `manage.py login_link`
# prints.
LOCAL_PASSWORDS = env.flag("LOCAL_PASSWORDS", True)

# The mail server that sends invitations: `smtp://` (port 25), `smtp+starttls://` (587) or
# `smtps://` (465) and `user:password@mail.example.com`; the sender is
# `?from=console@example.com`, in which `%20` is a blank.
# By default: none; the link of an invitation is copied
MAIL_URL = env.url("MAIL_URL", "", ("smtp", "smtp+starttls", "smtps"))
globals().update(env.mail_server(MAIL_URL))

# -- django-allauth ------------------------------------------------------------------------------
ACCOUNT_ADAPTER = "msgplatform.company.signing_in.accounts.AccountAdapter"
ACCOUNT_REAUTHENTICATION_TIMEOUT = CONFIRM_MINUTES * 60
ACCOUNT_FORMS = {"reauthenticate": "msgplatform.company.signing_in.login.ConfirmPasswordForm"}
# Addresses of people are shown and sent to nobody, and identify nobody.
ACCOUNT_EMAIL_VERIFICATION = "none"
ACCOUNT_SIGNUP_FIELDS = ["username*", "password1*"]
ACCOUNT_UNIQUE_EMAIL = False
MFA_ADAPTER = "msgplatform.company.signing_in.second_factor.SecondFactorAdapter"
MFA_SUPPORTED_TYPES = ["totp", "webauthn", "recovery_codes"]
MFA_TOTP_ISSUER = "msgplatform"
# Steps of 30 seconds that a clock may be off.
MFA_TOTP_TOLERANCE = 1
MFA_ALLOW_UNVERIFIED_EMAIL = True
