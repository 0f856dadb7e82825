"""The documentation of the platform's own release, as `scripts/site.sh` builds it."""

from __future__ import annotations

from pathlib import Path

from csp.constants import UNSAFE_INLINE
from csp.decorators import csp_update
from django.conf import settings
from django.http import Http404, HttpRequest, HttpResponseBase
from django.utils.translation import gettext as _
from django.views.decorators.http import require_safe
from django.views.static import serve

from msgplatform.person_limits import answers_limited_people


def is_there() -> bool:
    """True if this release was built with its documentation; a clone is without it at first."""
    return (Path(settings.SITE_DIR) / "index.html").is_file()


@answers_limited_people
@require_safe
@csp_update({"script-src": [UNSAFE_INLINE]})  # type: ignore[untyped-decorator]  # scripts of mkdocs
def documentation(request: HttpRequest, name: str = "index.html") -> HttpResponseBase:
    """A file of the site. Raises Http404 where there is none."""
    if not is_there():
        raise Http404(_("There is no documentation in this clone; scripts/site.sh builds it."))
    return serve(request, name, document_root=str(settings.SITE_DIR))
