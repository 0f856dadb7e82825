"""Refuses a request with a part that its operation does not know: a query parameter, an
Idempotency-Key, or a precondition (RFC 9110, 13.1). Ignoring one would do what the caller has ruled
out: a job would start instead of being counted, a repeat would be a second message, and a change of
somebody else would be lost.

A view names what it knows:

- `parameter_names`: the query parameters of its GET (`api/query.py`)
- `write_parameters`: those of its other methods; None: whatever is sent
- `accepts_idempotency_key`: True if its POST takes the header
- `preconditions`: method → the headers that it takes
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from rest_framework.permissions import SAFE_METHODS, BasePermission
from rest_framework.request import Request

from msgplatform.core.errors import InvalidInput

if TYPE_CHECKING:  # rest_framework.views imports this module
    from rest_framework.views import APIView


class HasKnownParts(BasePermission):
    """Stands behind the permission that asks who the caller is: nobody else learns of an
    operation's parameters. Raises InvalidInput naming the part."""

    def has_permission(self, request: Request, view: APIView) -> bool:
        method = request.method or ""
        if method == "OPTIONS" or method not in view.allowed_methods:
            return True  # answered with 405
        if method in SAFE_METHODS:
            _check_parameters(request, getattr(view, "parameter_names", ()))
            return True
        write_parameters = getattr(view, "write_parameters", ())
        if write_parameters is not None:
            _check_parameters(request, write_parameters)
        takes_key = getattr(view, "accepts_idempotency_key", False)
        if method == "POST" and "Idempotency-Key" in request.headers and not takes_key:
            raise InvalidInput(
                "This operation takes no such header. In a batch of items with keys, give each its "
                "own idempotency_key.",
                "idempotency_key",
            )
        known_headers = getattr(view, "preconditions", {}).get(method, ())
        for header in ("If-Match", "If-None-Match"):
            if header in request.headers and header not in known_headers:
                raise InvalidInput("This operation takes no such header: leave it out.", header)
        return True


def _check_parameters(request: Request, parameter_names: Collection[str]) -> None:
    sent_values = request.query_params
    for name in sent_values:
        if name not in parameter_names:
            names = ", ".join(parameter_names) or "none"
            raise InvalidInput(f"There is no such parameter. Use: {names}.", name)
        if len(sent_values.getlist(name)) > 1:
            raise InvalidInput("Give this parameter only once.", name)
