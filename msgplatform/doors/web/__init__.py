"""The web process: `python -m msgplatform.doors.web`.

__main__      its command line, the server and its bounds
stopping      workers learn that the server stops, or was killed
asgi, wsgi    the ASGI application of a worker; Django's WSGI application
application   one request, from its first byte to its last; its route, for metrics
bodies        bodies of requests and answers in the event loop, bounded in size and time
fast_intake   answers the usual publish without Django
long_polls    requests that wait in the event loop
django_app    Django's WSGI application, in threads
middleware    language and zone of a person, sessions that end, headers of answers
queue_pages   django-rq's pages
static_files, cache_connections    the storage of static files; the connections of Django's cache
"""
