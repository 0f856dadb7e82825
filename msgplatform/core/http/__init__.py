"""Outbound HTTP over libcurl; the only package that imports pycurl.

engine            the public module: Engine, Request, Response; a window of transfers
transfer          one libcurl handle and its callbacks
admission         which job gets a slot, and which is refused before
jobs              requests in flight: lines, pins, proxy
messages          Request and Response; the common part of many requests, checked once
response          the headers of an answer that are kept, Retry-After, the body for readers
readiness         epoll for libcurl's sockets, and the wake-up
resolver          names to addresses in threads, cached briefly
destinations      reading a URL strictly
addresses         the guard: which addresses may be called
environment       the limit of open files, and the system's certificates
"""
