"""Settings of single sign-on: the company's provider (OpenID Connect), accounts of chats."""

from typing import Any

from msgplatform import env

# -- single sign-on ------------------------------------------------------------------------------
# The issuer of the company's provider (OpenID Connect), as its document names it:
# `https://login.example.com/realms/staff`. Its address must be public, or in OUTBOUND_ALLOW.
# By default: none, so that only local users get in
OIDC_ISSUER = env.url("OIDC_ISSUER", "", ("https", "http")).rstrip("/")
# The id of this platform at the provider, which sends people back to
# `PUBLIC_URL/console/sign-in/company/callback`.
OIDC_CLIENT_ID = env.text("OIDC_CLIENT_ID")
# The secret that goes with OIDC_CLIENT_ID.
OIDC_CLIENT_SECRET = env.secret("OIDC_CLIENT_SECRET")
# The provider's name on the login page.
OIDC_NAME = env.text("OIDC_NAME", "Single sign-on")
# The claim with a person's groups; dots lead into objects, as in `realm_access.roles`.
OIDC_GROUPS_CLAIM = env.text("OIDC_GROUPS_CLAIM", "groups")
# Groups and the roles that their people have, set at each login:
# `ops=operator;admins=administrator`. Several roles of a group are separated by commas; another
# group of the console is named as it is. Nobody without a role gets in.
# By default: none
OIDC_ROLES = env.mapping("OIDC_ROLES")
# Groups and the business systems to which their people are limited, set at each login:
# `shop-team=shop,shop-test;ops=*`; `*` is no limit. People without such a group see no system.
# By default: limits stay as people set them
OIDC_SYSTEMS = env.mapping("OIDC_SYSTEMS")
# The scopes that are asked of the provider: add the one of its groups, if there is one.
# By default: `openid,profile,email`
OIDC_SCOPES = env.words("OIDC_SCOPES", ["openid", "profile", "email"])
# `yes`: the provider asks for a second factor itself; people who come from there are not asked for
# one here at the login, and MFA_ROLES does not hold for them.
OIDC_SECOND_FACTOR = env.flag("OIDC_SECOND_FACTOR", False)
# How long all calls of one sign-in to the provider may take together.
OIDC_TIMEOUT_SECONDS = env.number("OIDC_TIMEOUT_SECONDS", 10, 1, 60)

# An application of Feishu (its App ID): people who have a user here link their Feishu account with
# it, and sign in by it then. Roles stay as people set them.
FEISHU_CLIENT_ID = env.text("FEISHU_CLIENT_ID")
# The App Secret that goes with FEISHU_CLIENT_ID.
FEISHU_CLIENT_SECRET = env.secret("FEISHU_CLIENT_SECRET")
# The same with an application of DingTalk (its AppKey).
DINGTALK_CLIENT_ID = env.text("DINGTALK_CLIENT_ID")
# The AppSecret that goes with DINGTALK_CLIENT_ID.
DINGTALK_CLIENT_SECRET = env.secret("DINGTALK_CLIENT_SECRET")

# -- django-allauth ------------------------------------------------------------------------------
SOCIALACCOUNT_ADAPTER = "msgplatform.company.single_sign_on.adapter.CompanyAccountAdapter"
SOCIALACCOUNT_EMAIL_VERIFICATION = "none"
SOCIALACCOUNT_EMAIL_AUTHENTICATION = False
SOCIALACCOUNT_PROVIDERS: dict[str, Any] = {}
for _id, _name, _client, _secret, _is_on in (
    ("company", OIDC_NAME, OIDC_CLIENT_ID, OIDC_CLIENT_SECRET, bool(OIDC_ISSUER)),
    ("feishu", "飞书 Feishu", FEISHU_CLIENT_ID, FEISHU_CLIENT_SECRET, bool(FEISHU_CLIENT_ID)),
    ("dingtalk", "钉钉 DingTalk", DINGTALK_CLIENT_ID, DINGTALK_CLIENT_SECRET,
     bool(DINGTALK_CLIENT_ID)),
):  # fmt: skip
    if _is_on:
        _app = {"provider_id": _id, "name": _name, "client_id": _client, "secret": _secret}
        SOCIALACCOUNT_PROVIDERS[_id] = {"APPS": [{**_app, "settings": {}}]}
