"""A person, made from identifiers, and the keyed hashes that prove an erasure."""

from collections.abc import Iterable, Mapping, Sequence

from django.utils.crypto import salted_hmac
from django.utils.translation import gettext as _

from msgplatform.core.errors import InvalidInput
from msgplatform.core.person import identity
from msgplatform.core.person.identity import Person
from msgplatform.models import AuditLog, Biz

_SALT = "msgplatform.company.person_data"


def person_of(identifiers: Mapping[str, Iterable[str]]) -> Person:
    """The person with these identifiers (kind → texts). Raises InvalidInput, naming the kind."""
    clean_identifiers = identity.clean(identifiers)
    pairs = [text.partition("/") for text in clean_identifiers.get("users", ())]
    names = {system for system, _slash, _uid in pairs}
    systems = dict(Biz.objects.filter(name__in=names).values_list("name", "id"))
    for system in sorted(names - systems.keys()):
        raise InvalidInput(_("There is no business system %s.") % system[:64], "users")
    return _person(clean_identifiers, systems)


def kept_person(identifiers: Mapping[str, Sequence[str]]) -> Person:
    """As `person_of`, for the identifiers of an erasure: a business system may be gone."""
    names = [text.partition("/")[0] for text in identifiers.get("users", ())]
    systems = dict(Biz.objects.filter(name__in=names).values_list("name", "id"))
    return _person(identifiers, systems)


def _person(identifiers: Mapping[str, Sequence[str]], systems: Mapping[str, int]) -> Person:
    pairs = [text.partition("/") for text in identifiers.get("users", ())]
    return Person(
        phones=frozenset(identifiers.get("phones", ())),
        emails=frozenset(identifiers.get("emails", ())),
        users=frozenset((systems[name], uid) for name, _slash, uid in pairs if name in systems),
        leads=frozenset(int(lead) for lead in identifiers.get("leads", ())),
        identifiers=identifiers,
    )


def record(actor: str, action: str, person: Person) -> None:
    """Store in the audit log that somebody has looked at a person's data."""
    AuditLog.record(actor, action, "person data", hashes=hashes(person.identifiers))


def hashes(identifiers: Mapping[str, Sequence[str]]) -> list[str]:
    """A hash of each identifier, keyed by SECRET_KEY: only with the key can anybody test whether an
    identifier is the one."""
    return [
        f"{kind[:-1]}:{salted_hmac(_SALT, f'{kind}:{value}', algorithm='sha256').hexdigest()}"
        for kind in identity.KINDS
        for value in identifiers.get(kind, ())
    ]
