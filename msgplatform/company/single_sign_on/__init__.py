"""Sign-in by the company's provider (OpenID Connect, the settings OIDC_*), on django-allauth."""
