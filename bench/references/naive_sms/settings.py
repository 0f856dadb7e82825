"""A lean API: what `drf_orm` has when it is tuned."""

from bench.references.drf_orm.tuned_settings import *  # noqa: F403

ROOT_URLCONF = "bench.references.naive_sms.urls"
# A request that fails says why.
LOGGING = {
    "version": 1,
    "handlers": {"console": {"class": "logging.StreamHandler"}},
    "loggers": {"django.request": {"handlers": ["console"], "level": "ERROR", "propagate": False}},
}
