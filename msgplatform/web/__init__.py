"""The web process: WSGI application, middleware, worker, django-rq's pages."""
