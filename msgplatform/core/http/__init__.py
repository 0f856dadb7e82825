"""Outbound HTTP over libcurl; the only package that imports pycurl.

engine            the public module: Engine, Request, Response; a window of transfers
transfer          one libcurl handle and its callbacks
idle              handles between two transfers, by destination
admission         which job gets a slot, and what is refused before
jobs              a request on its way: lines, pins, proxy
messages          Request and Response
outlines          what many requests have in common, checked once
response_headers  what is kept of an answer's headers; Retry-After
readiness         epoll for libcurl's sockets, and the wake-up
resolver          names to addresses in threads, cached briefly
destinations      reading a URL strictly
addresses         the guard: which addresses may be called
environment       what the process and the system give: open files, certificates
"""
