"""The application; a worker of granian must not outlive the bench."""

from bench.references.drf_orm.wsgi import application

__all__ = ["application"]
