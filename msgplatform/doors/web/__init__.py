"""The web process: `python -m msgplatform.doors.web`.

__main__      its command line, the server and its bounds
asgi, wsgi    the ASGI application of a worker; Django's WSGI application
application   one request, from its first byte to its last; its route, for metrics
bodies        bodies of requests and answers in the event loop, bounded in size and time
fast_intake   answers the usual publish without Django
django_app    Django's WSGI application, in threads
queue_pages   django-rq's pages
middleware/   language and zone of a person, sessions that end, headers of answers
"""
