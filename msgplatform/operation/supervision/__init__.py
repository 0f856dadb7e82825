"""The platform on one machine, under supervisord.

platform    which programs run, and what must hold before they start
address     where the web server listens, and the address that people open
config      supervisord's configuration, pure text
run         supervisord as a child: lock, start, pids, stop; programs that crash again and again
"""
