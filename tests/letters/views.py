"""`GET` and `POST /api/v1/letters`."""

from rest_framework.mixins import CreateModelMixin
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.serializers import BaseSerializer, CharField, ModelSerializer

from msgplatform.doors.api.message_list import MessageListView
from tests.letters.flow import MESSAGES
from tests.letters.models import Letter


class LetterSerializer(ModelSerializer[Letter]):
    id = CharField(read_only=True)

    class Meta:
        model = Letter
        fields = ("id", "text", "delivered")
        read_only_fields = ("delivered",)


class LetterListView(CreateModelMixin, MessageListView):
    """List your letters."""

    store = MESSAGES
    required_scope = {"GET": "letters:read", "POST": "letters:write"}
    serializer_class = LetterSerializer

    def post(self, request: Request) -> Response:
        return self.create(request)

    def perform_create(self, serializer: BaseSerializer[Letter]) -> None:
        serializer.save(biz_id=self.request.user.biz_id)
