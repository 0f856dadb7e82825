"""Pages about the platform's own release: the reference of the API, which is Swagger UI in the
console's frame; the client libraries, installed from its address; and the documentation, as
`scripts/site.sh` builds it."""

from pathlib import Path

import msgspec
from csp.constants import UNSAFE_INLINE
from csp.decorators import csp_update
from django.conf import settings
from django.http import FileResponse, Http404, HttpRequest, HttpResponse, HttpResponseBase
from django.urls import reverse
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET, require_safe
from django.views.static import serve

from msgplatform import __version__, person_limits
from msgplatform.core import flows
from msgplatform.doors.console.views.page import page
from msgplatform.person_limits import answers_limited_people


@answers_limited_people
@require_GET
def api_docs(request: HttpRequest) -> HttpResponse:
    """The reference, with links to what belongs to it."""
    links = [
        {"title": str(link.title), "address": link.address}
        for flow in flows.all()
        for link in flow.links
        if link.is_reference
        and request.user.has_perms(link.permissions)
        and person_limits.may_open(request, link.address)
    ]
    if request.user.is_active and request.user.is_staff and not person_limits.is_limited(request):
        address = reverse("console:getting-started")
        links.append({"title": _("Getting started"), "address": address})
    links += [
        {"title": _("Client libraries"), "address": reverse("clients")},
        {"title": _("Errors"), "address": reverse("problems")},
        {"title": "OpenAPI", "address": f"{reverse('api-schema')}?format=json"},
    ]
    tags = settings.SPECTACULAR_SETTINGS["TAGS"]
    return page(request, "api_docs.html", _("API documentation"), tags=tags, links=links)


class Package(msgspec.Struct, frozen=True):
    """A file of CLIENTS_DIR, and the commands that install and try it. {url} is the file's address,
    {platform} the platform's."""

    language: str
    name: str
    commands: str = ""

    def install_commands(self) -> str:
        url = f"{settings.PUBLIC_URL}/clients/{self.name}"
        return self.commands.format(url=url, platform=settings.PUBLIC_URL)


PACKAGES = (
    Package(
        "Python", f"msgplatform_client-{__version__}-py3-none-any.whl",
        "pip install 'msgplatform-client[cli] @ {url}'\nmsgp login {platform}\nmsgp whoami",
    ),
    Package("TypeScript", f"msgplatform-client-{__version__}.tgz", "npm install {url}"),
    *(
        Package(language, f"msgplatform-client-{language.lower()}-{__version__}.tar.gz")
        for language in ("Go", "Java", "PHP")
    ),
)  # fmt: skip


def has_documentation() -> bool:
    """True if this release was built with its documentation; a clone is without it at first."""
    return (Path(settings.SITE_DIR) / "index.html").is_file()


@answers_limited_people
@require_safe
def clients(request: HttpRequest) -> HttpResponse:
    """The packages that are there, each with its first commands."""
    packages = [package for package in PACKAGES if _path(package.name).is_file()]
    return page(
        request, "clients.html", _("Client libraries"), packages=packages, version=__version__
    )


@answers_limited_people
@require_safe
def client_package(request: HttpRequest, name: str) -> FileResponse:
    """The file of a package. Raises Http404 for a package of another release."""
    if name not in {package.name for package in PACKAGES} or not _path(name).is_file():
        raise Http404(_("There is no such package; /clients/ lists those of this release."))
    return FileResponse(_path(name).open("rb"), as_attachment=True, filename=name)


def _path(name: str) -> Path:
    return Path(settings.CLIENTS_DIR) / name


@answers_limited_people
@require_safe
@csp_update({"script-src": [UNSAFE_INLINE]})  # mkdocs brings scripts
def documentation(request: HttpRequest, name: str = "index.html") -> HttpResponseBase:
    """A file of the site. Raises Http404 where there is none."""
    if not has_documentation():
        raise Http404(_("There is no documentation in this clone; scripts/site.sh builds it."))
    return serve(request, name, document_root=str(settings.SITE_DIR))
