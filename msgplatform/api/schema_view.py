"""The address of the OpenAPI document: anybody may ask for it, so each process makes it once."""

from __future__ import annotations

import threading
from typing import Any

from django.http import HttpResponse
from drf_spectacular.utils import extend_schema
from drf_spectacular.views import SpectacularAPIView
from rest_framework.request import Request

_making = threading.Lock()
_documents: dict[str, str | bytes] = {}  # by media type
_FORMATS = frozenset({"json", "yaml"})


class SchemaView(SpectacularAPIView):
    """In the platform's language; as YAML, or as JSON with `?format=json`. Other query parameters
    are ignored: every language that somebody made up would stay in memory."""

    def get_format_suffix(self, **_address: Any) -> str | None:
        name: str = self.request.query_params.get("format", "")
        return name if name in _FORMATS else None

    @extend_schema(exclude=True)
    def get(self, request: Request, *args: Any, **kwargs: Any) -> HttpResponse:
        renderer = request.accepted_renderer
        kind = renderer.media_type
        with _making:  # callers that come meanwhile wait for the first one's
            if kind not in _documents:
                schema = self.generator_class().get_schema(request=None, public=True)
                _documents[kind] = renderer.render(schema, kind, {})
        name = f'inline; filename="msgplatform.{renderer.format}"'
        return HttpResponse(
            _documents[kind], content_type=kind, headers={"Content-Disposition": name}
        )
