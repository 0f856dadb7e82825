from django.urls import path

from gateway.api.xmlrpc.endpoint import endpoint

# Both: a POST to the one without the slash cannot be redirected.
# The key is in the body, which no proxy reads: in front of cells it reads the public prefix of the
# key in the address.
urlpatterns = [
    path("rpc/", endpoint, name="rpc"),
    path("rpc", endpoint),
    path("rpc/<slug:key_prefix>/", endpoint, name="rpc-in-cell"),
]
