"""The endpoint: authenticate, validate, store each message, answer."""

import hashlib
import json
import os
import re
import time

from django.core.cache import cache
from rest_framework import serializers
from rest_framework.permissions import BasePermission
from rest_framework.response import Response
from rest_framework.views import APIView

from bench.references.drf_orm.views import KEY_CACHE_SECONDS, KeyAuthentication
from bench.references.naive_sms import table
from bench.references.naive_sms.account import Account
from gateway import sgip

GATEWAY = os.environ["BENCH_GATEWAY"]
MAX_ITEMS = 1000
CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")

client = table.connect()


class SmsSerializer(serializers.Serializer):
    to = serializers.RegexField(r"^\+?[0-9 -]{5,24}$")
    text = serializers.CharField(min_length=1, max_length=2000, trim_whitespace=False)
    priority = serializers.IntegerField(min_value=0, max_value=9, default=0)
    reference = serializers.RegexField(r"^[\x20-\x7e]{0,64}$", default="", allow_blank=True)
    idempotency_key = serializers.RegexField(r"^[\x21-\x7e]{1,128}$", required=False)

    def validate_to(self, value):
        return sgip.international(value)

    def validate_text(self, value):
        if CONTROL.search(value):
            raise serializers.ValidationError("It holds a control character.")
        return value


class BatchSerializer(serializers.Serializer):
    messages = SmsSerializer(many=True, min_length=1, max_length=MAX_ITEMS)


class MaySend(BasePermission):
    def has_permission(self, request, view):
        return request.auth is not None and "sms:write" in request.auth.scopes


class BatchView(APIView):
    authentication_classes = [KeyAuthentication]
    permission_classes = [MaySend]

    def post(self, request):
        serializer = BatchSerializer(data=request.data)
        serializer.is_valid(raise_exception=True)
        account = self.account(request.user.pk)
        results = [self.store(account, data) for data in serializer.validated_data["messages"]]
        return Response({"results": results})

    def account(self, biz):
        name = f"account-{biz}"
        account = cache.get(name)
        if account is None:
            rows = Account.objects.filter(biz_id=biz, enabled=True, is_default=True)
            account = rows.values().get()
            cache.set(name, account, KEY_CACHE_SECONDS)
        return account

    def store(self, account, data):
        try:
            sgip.split(data["text"], 0, sgip.SplitOptions(signature=account["signature"]))
        except sgip.TextError as error:
            return {"outcome": "rejected", "code": "invalid", "field": "text", "detail": str(error)}
        message = client.incr(table.COUNT)
        key = data.get("idempotency_key", "")
        if key and (first := self.first(account, data, key, message)):
            return first
        client.hset(
            table.mt(message),
            mapping={
                "biz": account["biz_id"], "account": account["id"], "gateway": GATEWAY,
                "user_number": data["to"], "text": data["text"], "sp_number": account["sp_number"],
                "corp_id": account["corp_id"], "service_type": account["service_type"],
                "charge_number": account["charge_number"], "priority": data["priority"],
                "reference": data["reference"], "key": key, "state": "pending",
                "accepted_at": time.time(),
            },
        )  # fmt: skip
        client.rpush(table.pending(GATEWAY), message)
        return {"outcome": "created", "ids": [str(message)]}

    def first(self, account, data, key, message):
        """The answer to a repeat; None for a new key, which is this message's now."""
        digest = hashlib.sha256(f"{account['biz_id']}:{key}".encode()).hexdigest()
        payload = hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()
        name = f"{table.PREFIX}idempotency:{digest}"
        value = f"{payload}:{message}"
        if client.set(name, value, nx=True, ex=table.IDEMPOTENCY_SECONDS):
            return None
        before, _, id = client.get(name).partition(":")
        if before != payload:
            return {"outcome": "rejected", "code": "conflict", "field": "idempotency_key"}
        return {"outcome": "duplicate", "ids": [id]}
