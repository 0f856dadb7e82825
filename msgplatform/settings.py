"""Django's settings. Every value that an installation changes comes from `env`.

The comment above each is its meaning in `docs/configuration.md`, which `make docs` writes.

MSGPLATFORM_PROFILE=daemon (set by manage.py for run_* commands) leaves out what serves pages.
"""

import os
import secrets
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

from csp.constants import NONCE, NONE, SELF, UNSAFE_EVAL, UNSAFE_INLINE

from msgplatform import __version__, env
from msgplatform.core import logging as platform_logging
from msgplatform.core.http.addresses import bracketed
from msgplatform.core.queues.names import RqQueues

BASE_DIR = env.BASE_DIR
# The folder of this installation's database, sockets, logs and locks.
# By default: `var` in the clone; installed from the wheel, in the folder where a command is run
STATE_DIR = env.state_dir()
DAEMON = os.environ.get("MSGPLATFORM_PROFILE") == "daemon"
# Never on in production: error pages show settings and data.
DEBUG = env.flag("DEBUG", False)

# Signs sessions and forms: 50 characters or more, the same for every web process. Required.
# By default: the file `secret_key` in STATE_DIR, which `up` makes
SECRET_KEY = env.secret("SECRET_KEY", default_file=STATE_DIR / "secret_key")
SECRET_KEY_MISSING = not SECRET_KEY
if SECRET_KEY_MISSING:
    # Lets `check` and `doctor` run; the check E001 stops everything else.
    SECRET_KEY = secrets.token_urlsafe(50)

# Encrypts secrets in the database, the same on every machine. Several, separated by commas: the
# first encrypts, all decrypt. Required; without it stored secrets are lost.
# By default: the file `encryption_key` in STATE_DIR, which `up` makes
ENCRYPTION_KEYS = tuple(
    env.secret("ENCRYPTION_KEY", default_file=STATE_DIR / "encryption_key")
    .replace(",", " ")
    .split()
)

# The address at which people and systems reach the platform; `https://…` switches secure cookies,
# HSTS and the redirect from http on.
# By default: with `make up` this machine, over http; else `https://localhost`
PUBLIC_URL = env.public_url()
PUBLIC_URL_SET = bool(env.secret("PUBLIC_URL"))
_https = PUBLIC_URL.startswith("https://")
_host = urlsplit(PUBLIC_URL).hostname or ""
_public_host = bracketed(_host)  # an IPv6 address is known in brackets
# Consumers and CRMs for trying things out, which keep for an hour what they get; only people with
# the right to set up others can make one. `no`: there are none.
SANDBOX = env.flag("SANDBOX", True)
# Where senders reach a web server of this platform, to deliver to a sandbox, such as
# `http://127.0.0.1:8000`; its address may be private.
# By default: with `make up` its web server; else PUBLIC_URL, whose address must be public
SANDBOX_URL = env.own_url("SANDBOX_URL", PUBLIC_URL)
SANDBOX_URL_SET = bool(env.secret("SANDBOX_URL"))
# Host names that the web server answers to, separated by commas, without https:// and port. On
# Kubernetes also `localhost`, which the probes ask for.
# By default: the host of PUBLIC_URL, and this machine
ALLOWED_HOSTS = env.words("ALLOWED_HOSTS", [_public_host, "localhost", "127.0.0.1", "[::1]"])
if SANDBOX:
    ALLOWED_HOSTS += [bracketed(urlsplit(SANDBOX_URL).hostname or "")]
CSRF_TRUSTED_ORIGINS = [PUBLIC_URL]
# This platform is one of several cells side by side: 3/16 is cell 3 of 16 (0 to 15). The number of
# cells is a power of two up to 256. The database remembers its cell.
# By default: the only one
CELL = env.cell("CELL")
# The consoles of all cells, for links from one to another: `0=https://cell-0.example.com,3=https://…`
# By default: no links
CELL_URLS = env.urls_by_cell("CELL_URLS")

# -- applications --------------------------------------------------------------------------------
# The flows that run: a flow is a folder and its name here, separated by commas. SMS needs Notify.
# By default: `notify,notify.feed,gateway,crmsync`
FLOWS = env.modules("FLOWS", ["notify", "notify.feed", "gateway", "crmsync"], {"gateway": "notify"})
# The features (`core/features.py`). Without the line and the folder of one the others work as
# before; only signing in must be there.
_FEATURES = [
    "msgplatform.company.alerting",
    "msgplatform.company.audit_export",
    "msgplatform.company.person_data",
    "msgplatform.company.signing_in",
    "msgplatform.company.single_sign_on",
    "msgplatform.growth.moving",
    "msgplatform.operation.trace_export",
    "notify.listening",
]
FEATURES = [name for name in _FEATURES if name.startswith(("msgplatform.", *FLOWS))]
# Values for a platform without the feature single sign-on, or without the export of traces.
OIDC_ISSUER, OIDC_NAME, OIDC_SECOND_FACTOR = "", "", False
SOCIALACCOUNT_PROVIDERS: dict[str, Any] = {}
OTEL_EXPORTER_OTLP_ENDPOINT = ""
# Settings of flows and features.
for _package in [*FLOWS, *FEATURES]:
    globals().update(env.capitals(f"{_package}.settings"))
_PAGES = [
    "unfold.apps.BasicAppConfig",
    "msgplatform.doors.admin_site.Config",
    "django.forms",  # its templates, for FORM_RENDERER
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "csp",
    "drf_spectacular",
    "drf_spectacular_sidecar",
    "rest_framework",
    "django_rq",
    # Second factors, sessions, and accounts of a company's provider. Their pages are in
    # `company/signing_in`; allauth's sign-up and its e-mail are not used.
    "allauth",
    "allauth.account",
    "allauth.socialaccount",
    "allauth.mfa",
    "allauth.usersessions",
]
# Folders beside the product, each with a command of its name; an installation may lack them, and
# beside an installed wheel other packages may have such a name.
_BESIDE = [
    name
    for name in ("demo", "bench")
    if (BASE_DIR / name / "management" / "commands" / f"{name}.py").exists()
]
INSTALLED_APPS = [
    "msgplatform",
    "msgplatform.jobs",
    "msgplatform.operation",
    *([] if DAEMON else ["msgplatform.doors", *_PAGES, *_BESIDE]),
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",  # daemons delete those that have expired
    *FLOWS,
    *FEATURES,
]
MIDDLEWARE = [
    "msgplatform.doors.web.middleware.TlsForPrograms",
    "django.middleware.security.SecurityMiddleware",
    "msgplatform.doors.web.middleware.CompressedPages",
    "csp.middleware.CSPMiddleware",
    "msgplatform.doors.web.static_files.StaticFilesMiddleware",
    "msgplatform.doors.web.middleware.NeverStoredMiddleware",
    "msgplatform.doors.web.middleware.RateLimitMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "msgplatform.doors.web.middleware.PreferencesMiddleware",
    "msgplatform.doors.web.middleware.LimitedPeopleMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "msgplatform.doors.web.middleware.EndedSessionMiddleware",
    *(
        []
        if DAEMON
        else [
            "allauth.account.middleware.AccountMiddleware",
            "msgplatform.company.signing_in.middleware.SignInMiddleware",
        ]
    ),
]
# A daemon serves nothing, and its system checks must not import what it does not have.
ROOT_URLCONF = "" if DAEMON else "msgplatform.urls"
WSGI_APPLICATION = "msgplatform.doors.web.wsgi.application"
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [env.FILES_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]
# A template of a field, too, may be replaced by one of ours.
FORM_RENDERER = "django.forms.renderers.TemplatesSetting"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

# -- data ----------------------------------------------------------------------------------------
# `mysql://user:password@host:3306/name`, or `sqlite:////path/to/file`.
# By default: SQLite in STATE_DIR
DATABASES = {"default": env.database("DATABASE_URL", f"sqlite:///{STATE_DIR / 'msgplatform.db'}")}
# The database of Notify's archive, chosen before the first use.
# By default: the same as DATABASE_URL
COLD_DATABASE_URL_SET = bool(env.secret("COLD_DATABASE_URL"))
if COLD_DATABASE_URL_SET:
    DATABASES["cold"] = env.database("COLD_DATABASE_URL", "")
DATABASE_ROUTERS = ["msgplatform.core.archive.router.ColdRouter"]

# The work queues; may be emptied at any moment.
# By default: an embedded server, which `make up` starts
REDIS_URL = env.redis_url("REDIS_URL", "work.sock")
REDIS_EMBEDDED = not env.secret("REDIS_URL")
CACHES = {
    "default": {
        "BACKEND": "msgplatform.doors.web.cache_connections.ForgivingCache",
        "LOCATION": REDIS_URL,
        "KEY_PREFIX": "cache",
        "OPTIONS": {
            "CONNECTION_FACTORY": "msgplatform.doors.web.cache_connections.CacheConnections",
            "IGNORE_EXCEPTIONS": True,
            # The default is pickle, which runs code that somebody wrote into Redis.
            "SERIALIZER": "django_redis.serializers.json.JSONSerializer",
        },
    }
}
RQ_QUEUES = RqQueues()
RQ = {"COMMIT_MODE": "auto"}
RQ_SHOW_ADMIN_LINK = False

# -- people --------------------------------------------------------------------------------------
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": f"django.contrib.auth.password_validation.{name}Validator"}
    for name in ("UserAttributeSimilarity", "MinimumLength", "CommonPassword", "NumericPassword")
]
# Seconds; of the link that `up` prints for the first user, and of invitations.
PASSWORD_RESET_TIMEOUT = 24 * 3600
LOGIN_URL = "admin:login"
LOGIN_REDIRECT_URL = "console:overview"
SESSION_COOKIE_AGE = 12 * 3600
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = _https
ACCOUNT_DEFAULT_HTTP_PROTOCOL = "https" if _https else "http"
# `no`: http is not redirected to https where PUBLIC_URL is https.
SECURE_SSL_REDIRECT = _https and env.flag("SSL_REDIRECT", True)
SECURE_REDIRECT_EXEMPT = [r"^healthz$", r"^readyz$", r"^metrics$", r"^sandbox/"]
SECURE_HSTS_SECONDS = 31_536_000 if _https else 0
# Extends HSTS to every name below the host's: somebody has to want that.
SECURE_HSTS_INCLUDE_SUBDOMAINS = _https and env.flag("HSTS_INCLUDE_SUBDOMAINS", False)
# Asks browsers to know the host as https before they have seen it.
SECURE_HSTS_PRELOAD = _https and env.flag("HSTS_PRELOAD", False)
# `yes` behind a proxy that ends TLS and sets this header itself.
if env.flag("TRUST_X_FORWARDED_PROTO", False):
    SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
# Only the operator knows whether every name below the host's speaks TLS too. Unique constraints
# with a condition, which MariaDB lacks, are allauth's, whose forms look by themselves.
SILENCED_SYSTEM_CHECKS = ["security.W005", "security.W021", "models.W036"]
CONTENT_SECURITY_POLICY = {
    # Answers to programs: nobody renders them.
    "EXCLUDE_URL_PREFIXES": [
        "/api/v1/",
        "/api/schema/",
        "/api/asyncapi.json",
        "/rpc/",
        "/healthz",
        "/readyz",
        "/metrics",
        "/sandbox/",
    ],
    "DIRECTIVES": {
        "default-src": [SELF],
        # The theme's Alpine evaluates the expressions in its templates.
        "script-src": [SELF, NONCE, UNSAFE_EVAL],
        # The theme writes its colours, and charts their sizes, into attributes.
        "style-src": [SELF, UNSAFE_INLINE],
        "img-src": [SELF, "data:"],
        "object-src": [NONE],
        "base-uri": [SELF],
        "form-action": [SELF],
        "frame-ancestors": [NONE],
    },
}
LANGUAGES = [("en", "English"), ("zh-hans", "简体中文")]
# `theme` has the texts of the theme, which brings no translations of its own.
LOCALE_PATHS = [env.FILES_DIR / "locale", env.FILES_DIR / "locale" / "theme"]
FORMAT_MODULE_PATH = ["msgplatform.formats"]
# Of the console and of days in statistics: an IANA name such as `Asia/Shanghai`.
TIME_ZONE = env.time_zone("TIME_ZONE", "UTC")
CSRF_FAILURE_VIEW = "msgplatform.doors.api.problems.error_pages.csrf_failure"
STATIC_URL = "/static/"
# The clients of this release (`scripts/clients.sh`), which the wheel brings along.
CLIENTS_DIR = env.FILES_DIR / "clients" / "dist"
# Its documentation (`scripts/site.sh`).
SITE_DIR = env.FILES_DIR / "site"
# `up` and `demo` collect them here; what was not collected is served straight from the packages.
# A folder for each release: during an update the old one serves its own, and after a way back too.
STATIC_ROOT = STATE_DIR / "static" / __version__
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {"BACKEND": "msgplatform.doors.web.static_files.HashedStaticFiles"},
}
WHITENOISE_USE_FINDERS = True
WHITENOISE_KEEP_ONLY_HASHED_FILES = True
# Bodies: 16 MiB is the largest batch; views with a smaller bound check it themselves.
DATA_UPLOAD_MAX_MEMORY_SIZE = 16 * 1024 * 1024 + 64 * 1024

# -- API -----------------------------------------------------------------------------------------
REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": [
        "msgplatform.doors.api.access.authentication.ApiKeyAuthentication"
    ],
    "DEFAULT_PERMISSION_CLASSES": [
        "msgplatform.doors.api.access.authentication.HasScope",
        "msgplatform.doors.api.access.unknown_parts.HasKnownParts",
    ],
    "DEFAULT_RENDERER_CLASSES": ["msgplatform.doors.api.json.JSONRenderer"],
    "DEFAULT_PARSER_CLASSES": ["msgplatform.doors.api.json.JSONParser"],
    "DEFAULT_CONTENT_NEGOTIATION_CLASS": "msgplatform.doors.api.json.JsonFirst",
    "DEFAULT_THROTTLE_CLASSES": ["msgplatform.doors.api.access.throttling.ApiKeyThrottle"],
    "DEFAULT_THROTTLE_RATES": {
        # Reading requests that one key may make: a number and `/sec`, `/min` or `/hour`; `off`:
        # any.
        "read": env.text("API_RATE_READ", "600/min"),
        # The same for requests that hand something over.
        # By default: no limit
        "write": env.text("API_RATE_WRITE") or None,
        # Wrong API keys that one address may try.
        "failed": env.text("API_RATE_FAILED", "60/min"),
    },
    # How many reverse proxies add to X-Forwarded-For: 1 behind nginx as in `deploy/nginx`; 0: the
    # header is not believed.
    "NUM_PROXIES": env.integer("API_NUM_PROXIES", 0, 0, 10),
    "DATETIME_FORMAT": None,  # the renderer writes UTC with "Z"
    "DEFAULT_METADATA_CLASS": None,  # OPTIONS is answered with 405: the schema says it all
    "DEFAULT_PAGINATION_CLASS": "msgplatform.doors.api.pagination.KeysetPagination",
    "DEFAULT_SCHEMA_CLASS": "msgplatform.doors.api.schema.PlatformSchema",
    "EXCEPTION_HANDLER": "msgplatform.doors.api.problems.handler.handle",
    "UNAUTHENTICATED_USER": None,
    "URL_FORMAT_OVERRIDE": None,  # there is one format, so that ?format= is an unknown parameter
}
# The schema and the documentation of the API are for everybody; `no`: for console users only.
API_DOCS_PUBLIC = env.flag("API_DOCS_PUBLIC", True)
SPECTACULAR_SETTINGS = {
    "TITLE": "msgplatform",
    "DESCRIPTION": "Publish events, send messages, follow what became of them.",
    "VERSION": "1",
    "OAS_VERSION": "3.1.0",
    # A request need not name what only the platform writes.
    "COMPONENT_SPLIT_REQUEST": True,
    "COMPONENT_SPLIT_PATCH": False,
    "POSTPROCESSING_HOOKS": [
        "drf_spectacular.hooks.postprocess_schema_enums",
        "msgplatform.doors.api.schema_document.join_blanks",
        "msgplatform.doors.api.schema_document.close_bodies",
        "msgplatform.doors.api.schema_document.introduce",
        "msgplatform.doors.api.code_samples.add",
    ],
    # Tags of messages in the order of docs/integrate.md, then tags of management.
    "TAGS": [
        {"name": "events", "description": "Publish an event; see who got it, and how."},
        {"name": "sms", "description": "Send texts, see what became of them, read what came in."},
        {"name": "leads", "description": "Hand over leads; CRMs get every version of them."},
        {"name": "sync", "description": "What carries leads to CRMs: policies and their runs."},
        {"name": "feed", "description": "Posts, relations of users, and their timelines."},
        {"name": "listening", "description": "Fetch events on an engineer's own machine."},
        {"name": "business systems", "description": "Management: who may use the platform."},
        {"name": "API keys", "description": "Management: the keys of business systems."},
        {"name": "consumers", "description": "Management: where events are delivered to."},
        {"name": "subscriptions", "description": "Management: which consumer gets which events."},
        {"name": "sandbox", "description": "Management: what a sandbox got, and how it answers."},
        {"name": "held deliveries", "description": "Management: what waits for its subscription."},
        {"name": "event types", "description": "Management: the catalogue, with JSON Schemas."},
        {"name": "SMS gateways", "description": "Management: over which SMG messages go."},
        {"name": "SMS accounts", "description": "Management: the numbers of business systems."},
        {"name": "landing pages", "description": "Management: the forms that take leads."},
        {"name": "CRMs", "description": "Management: the systems that get the leads."},
        {"name": "sources", "description": "Management: the tables whose changes are read."},
        {"name": "policies", "description": "Management: which source is carried to which CRM."},
        {"name": "platform file", "description": "Management: all that is set up, as one file."},
        {"name": "alerts", "description": "Management: what a person should look at."},
        {"name": "alert channels", "description": "Management: where people read alerts."},
        {"name": "alert rules", "description": "Management: which alerts go where, and when."},
        {"name": "failures", "description": "Management: what was given up; send it again."},
        {"name": "audit log", "description": "Management: what people and keys have changed."},
        {"name": "people", "description": "Management: who may use the console, and as what."},
        {"name": "person data", "description": "Management: what is held of a person; erase it."},
        {"name": "test sends", "description": "Management: try it with one message, now."},
        {"name": "bulk jobs", "description": "Management: send many messages again, paced."},
        {"name": "statistics", "description": "Management: the counters of every flow."},
    ],
    "GET_MOCK_REQUEST": "msgplatform.doors.api.schema.mock_request",
    "SCHEMA_PATH_PREFIX": "/api/v1",
    "SERVE_INCLUDE_SCHEMA": False,
    "SERVE_AUTHENTICATION": [],
    # The names of systems and consumers.
    "PATH_CONVERTER_OVERRIDES": {
        "slug": {"type": "string", "pattern": "^[-a-zA-Z0-9_]+$", "maxLength": 64}
    },
    # Every flow has verdicts, so their outcomes cannot be named after one component.
    "ENUM_NAME_OVERRIDES": {
        "SeverityEnum": "msgplatform.models.alerts.Severity",
        "AcceptedOutcomeEnum": ["created", "duplicate"],
        "VerdictOutcomeEnum": ["created", "duplicate", "rejected"],
        "EventStateEnum": ["accepted", "distributed"],
        "DeliveryStatusEnum": [
            "pending",
            "queued",
            "held",
            "delivered",
            "exhausted",
            "poison",
            "skipped",
        ],
    },
}
# The bearer token for `/metrics`. Without it only a local installation answers, to its own machine.
# By default: none
METRICS_TOKEN = env.secret("METRICS_TOKEN")

# -- outbound ------------------------------------------------------------------------------------
# `no` or `off`: nothing leaves the platform, to rehearse a restore. No message goes to a consumer,
# no program logs in at a gateway, calls a CRM or reads a source; messages are taken in and wait.
OUTBOUND = env.flag("OUTBOUND", True)
# Private networks that messages may be delivered to, separated by commas: `10.0.0.0/8`. Cloud
# metadata and link-local addresses stay refused whatever stands here.
# By default: none, public addresses only
OUTBOUND_ALLOW = env.networks("OUTBOUND_ALLOW")
# A file with the certificates to trust for deliveries, a private authority's among them.
# By default: the system's own
OUTBOUND_CA_FILE = env.existing_file("OUTBOUND_CA_FILE")
# A proxy for deliveries; `http_proxy` is ignored. With any scheme but `socks5` it resolves names
# itself, and must refuse internal addresses. Without a port: 443 of https, else 1080.
# By default: none
OUTBOUND_PROXY = env.url("OUTBOUND_PROXY", "", ("http", "https", "socks5", "socks5h")).rstrip("/")
if OUTBOUND_PROXY.startswith("http://") and urlsplit(OUTBOUND_PROXY).port is None:
    OUTBOUND_PROXY += ":1080"  # the library of alerts has another default

# -- alerts --------------------------------------------------------------------------------------
# A program that was seen and sends no heartbeat for so long makes an alert.
ALERT_SILENT_SECONDS = env.number("ALERT_SILENT_SECONDS", 60, 20, 86_400)
# Programs of several releases that run for so long make an alert: an update takes minutes.
ALERT_MIXED_SECONDS = env.number("ALERT_MIXED_SECONDS", 1800, 1, 604_800)
# Work that has been due for so long makes an alert; 0: never.
ALERT_BACKLOG_MINUTES = env.number("ALERT_BACKLOG_MINUTES", 15, 0, 10_080)

# -- traces --------------------------------------------------------------------------------------
# The share of messages that are traced among those whose caller sends no `traceparent`; with one
# its own flag decides.
OTEL_TRACES_SAMPLER_ARG = env.number("OTEL_TRACES_SAMPLER_ARG", 0.01, 0, 1)
# The address of a trace in the tool that shows traces, with `{trace_id}` in it; a message's page
# links to it.
# By default: no link
TRACE_URL = env.trace_url("TRACE_URL")
# For so long after its acceptance a message remembers which trace it belongs to.
TRACE_DAYS = env.integer("TRACE_DAYS", 30, 1, 400)

# -- statistics ----------------------------------------------------------------------------------
# How long statistics by the minute and by the hour are kept.
MINUTE_COUNTER_DAYS = env.integer("MINUTE_COUNTER_DAYS", 14, 2, 400)
# How long statistics by the day are kept.
DAY_COUNTER_DAYS = env.integer("DAY_COUNTER_DAYS", 1100, 31, 36500)

# -- one person's data ---------------------------------------------------------------------------
# How long an erasure keeps, encrypted, what is needed to repeat it after a restore: longer than
# the oldest backup that may be restored.
PERSON_ERASURE_DAYS = env.integer("PERSON_ERASURE_DAYS", 400, 1, 36500)

# -- logs ----------------------------------------------------------------------------------------
# DEBUG, INFO, WARNING or ERROR.
LOG_LEVEL = env.choice("LOG_LEVEL", "INFO", ("DEBUG", "INFO", "WARNING", "ERROR"))
# A log line for each request: method, path, status, milliseconds, address, request id.
ACCESS_LOG = env.flag("ACCESS_LOG", False)
LOGGING_CONFIG = None
# Lines as JSON, one object each.
# By default: yes, unless DEBUG is on
platform_logging.configure(
    level=LOG_LEVEL, as_json=env.flag("LOG_JSON", not DEBUG), cell=CELL.label
)


def _static(name: str) -> Callable[[Any], str]:
    """A file of the console, as the theme asks for it."""

    def address(_request: Any) -> str:
        from django.templatetags.static import static  # daemons need no templates

        return static(f"console/{name}")

    return address


UNFOLD = {
    "SITE_TITLE": "msgplatform",
    "SITE_HEADER": "msgplatform",
    "SITE_URL": "/",
    "SHOW_HISTORY": True,
    "SITE_ICON": _static("favicon.svg"),
    # The one accent of the theme and of the console's own pages: indigo.
    "COLORS": {
        "primary": {
            "50": "#eef2ff",
            "100": "#e0e7ff",
            "200": "#c7d2fe",
            "300": "#a5b4fc",
            "400": "#818cf8",
            "500": "#6366f1",
            "600": "#4f46e5",
            "700": "#4338ca",
            "800": "#3730a3",
            "900": "#312e81",
            "950": "#1e1b4b",
        }
    },
    "LOGIN": {"form": "msgplatform.company.signing_in.login.LoginForm"},
    "SITE_FAVICONS": [
        {
            "rel": "icon",
            "type": "image/svg+xml",
            "href": _static("favicon.svg"),
        }
    ],
    "ENVIRONMENT": "msgplatform.doors.console.navigation.environment",
    "STYLES": [_static("console.css"), _static("theme.css")],
    # session.js tells people when their session has ended, and sends a double click's form once.
    # accessible.js gives names to unnamed parts of the theme, for people who listen to a page.
    "SCRIPTS": [_static("session.js"), _static("accessible.js")],
    "ACCOUNT": {"navigation": "msgplatform.doors.console.navigation.account"},
    # The box at the top finds messages; pages of models are found with Ctrl+K.
    "SIDEBAR": {"show_search": False, "navigation": "msgplatform.doors.console.navigation.sidebar"},
}
