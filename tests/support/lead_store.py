"""A CRM with a REST interface of its own, and the settings with which the adapter speaks it."""

from typing import Any

from tests.support.json_stub import Answer, Asked


class LeadStore:
    """A CRM with PUT, GET and DELETE on /leads/<key>."""

    def __init__(self) -> None:
        self.leads: dict[str, Any] = {}

    def __call__(self, request: Asked) -> Answer:
        if request.headers.get("authorization") != "Bearer hush-hush":
            return Answer({"message": "who are you"}, 401)
        key = request.path.removeprefix("/leads/")
        if request.method == "PUT":
            created = key not in self.leads
            self.leads[key] = request.body
            return Answer({"data": {"id": f"r-{key}", "created": created}}, 201 if created else 200)
        if key not in self.leads:
            return Answer({"message": "no such lead"}, 404)
        if request.method == "DELETE":
            del self.leads[key]
            return Answer(status=204)
        return Answer({"data": {"id": f"r-{key}", "lead": self.leads[key]}})


REST = {
    "method": "PUT",
    "is_upsert": True,
    "headers": {"Authorization": "Bearer {secret.token}"},
    "body": {"name": "{field.name}", "phone": "{field.phone}", "v": "{version}", "by": "lp-{key}"},
    "answer": {"remote_id": "data.id", "created": "data.created"},
}


def rest(url: str) -> dict[str, Any]:
    return {
        **REST,
        "delete": {"method": "DELETE", "url": f"{url}/{{key}}"},
        "read": {
            "url": f"{url}/{{key}}", "record": "data.lead", "remote_id": "data.id",
            "version": "data.lead.v",
        },
    }  # fmt: skip
