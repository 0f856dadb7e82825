"""`POST /api/v1/letters`."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers
from rest_framework.generics import ListCreateAPIView
from rest_framework.serializers import BaseSerializer

from tests.letters.models import Letter


class LetterSerializer(serializers.ModelSerializer[Letter]):
    id = serializers.CharField(read_only=True)

    class Meta:
        model = Letter
        fields = ("id", "text", "delivered")
        read_only_fields = ("delivered",)


class LetterListView(ListCreateAPIView):
    required_scope = {"GET": "letters:read", "POST": "letters:write"}
    serializer_class = LetterSerializer

    def get_queryset(self) -> Any:
        return Letter.objects.filter(biz_id=self.request.user.biz_id)

    def perform_create(self, serializer: BaseSerializer[Any]) -> None:
        serializer.save(biz_id=self.request.user.biz_id)
