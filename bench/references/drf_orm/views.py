"""The endpoint: authenticate, validate, save, answer."""

import hashlib
import hmac
import json

from django.conf import settings
from django.core.cache import cache
from django.db import IntegrityError, transaction
from rest_framework import serializers, status
from rest_framework.authentication import BaseAuthentication
from rest_framework.exceptions import AuthenticationFailed
from rest_framework.generics import CreateAPIView
from rest_framework.permissions import BasePermission
from rest_framework.response import Response

from bench.references.drf_orm.table import Message
from msgplatform.models import ApiKey

MAX_PAYLOAD_BYTES = 256 * 1024
KEY_CACHE_SECONDS = 30


class MessageSerializer(serializers.ModelSerializer):
    event_type = serializers.RegexField(r"^[A-Za-z0-9_]+(\.[A-Za-z0-9_]+)*$", max_length=128)
    channel = serializers.RegexField(
        r"^[A-Za-z0-9_.:-]*$", max_length=64, required=False, allow_blank=True
    )
    idempotency_key = serializers.RegexField(r"^[\x21-\x7e]+$", max_length=128)

    class Meta:
        model = Message
        fields = ["event_type", "channel", "payload", "idempotency_key"]

    def validate(self, attrs):
        text = json.dumps(attrs["payload"], separators=(",", ":"), ensure_ascii=False).encode()
        if len(text) > MAX_PAYLOAD_BYTES:
            raise serializers.ValidationError({"payload": "It is too long."})
        parts = (attrs["event_type"].encode(), attrs.get("channel", "").encode(), text)
        attrs["payload_hash"] = hashlib.sha256(b"\n".join(parts)).hexdigest()
        return attrs


class KeyAuthentication(BaseAuthentication):
    """`Authorization: Bearer mp_<prefix>_<secret>`."""

    def authenticate(self, request):
        scheme, _, plain = request.META.get("HTTP_AUTHORIZATION", "").partition(" ")
        if scheme.lower() != "bearer":
            return None
        digest = hashlib.sha256(plain.encode()).hexdigest()
        key = self.find(plain, digest)
        if key is None or not hmac.compare_digest(key.hash, digest):
            raise AuthenticationFailed
        return key.biz, key

    def find(self, plain, digest):
        if not settings.BENCH_CACHED_KEY:
            return self.read(plain)
        key = cache.get(digest)
        if key is None:
            key = self.read(plain)
            cache.set(digest, key, KEY_CACHE_SECONDS)
        return key

    def read(self, plain):
        prefix = plain.split("_")[1]
        keys = ApiKey.objects.select_related("biz")
        return keys.filter(prefix=prefix, revoked_at=None, biz__enabled=True).first()


class MayPublish(BasePermission):
    def has_permission(self, request, view):
        return request.auth is not None and "events:write" in request.auth.scopes


class MessageView(CreateAPIView):
    serializer_class = MessageSerializer
    authentication_classes = [KeyAuthentication]
    permission_classes = [MayPublish]

    def create(self, request, *args, **kwargs):
        serializer = self.get_serializer(data=request.data)
        serializer.is_valid(raise_exception=True)
        try:
            message = self.save(serializer, request.user)
        except IntegrityError:
            return self.repeated(serializer.validated_data, request.user)
        return Response(
            {"id": str(message.pk), "outcome": "created"}, status=status.HTTP_202_ACCEPTED
        )

    def save(self, serializer, biz):
        if not settings.BENCH_ATOMIC:
            return serializer.save(biz=biz)
        with transaction.atomic():
            return serializer.save(biz=biz)

    def repeated(self, data, biz):
        first = Message.objects.get(biz=biz, idempotency_key=data["idempotency_key"])
        if first.payload_hash != data["payload_hash"]:
            return Response({"detail": "Another payload."}, status=status.HTTP_409_CONFLICT)
        return Response({"id": str(first.pk), "outcome": "duplicate"})
