"""The platform on one machine, under supervisord.

platform  which programs, and what must hold before they start
config    supervisord's configuration, pure text
run       supervisord as a child: lock, start, pids, stop
"""
