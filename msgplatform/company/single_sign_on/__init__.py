"""Sign-in by the company's provider (OpenID Connect, the settings OIDC_*), on django-allauth.

guarded   the outbound calls: through the address guard, with time limits
company   the provider: its document, the code flow, the ID token
adapter   who gets in, and as what: groups of the token to roles and business systems
views     the ways there and back, and linking an account
logout    signing out there, and being signed out from there
"""
