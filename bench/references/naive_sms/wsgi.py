"""The application, as that of `drf_orm`."""

from bench.references.drf_orm.wsgi import application

__all__ = ["application"]
