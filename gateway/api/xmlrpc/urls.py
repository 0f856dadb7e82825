from django.urls import path

from gateway.api.xmlrpc.endpoint import endpoint

# Both: a POST to the one without the slash cannot be redirected.
urlpatterns = [path("rpc/", endpoint, name="rpc"), path("rpc", endpoint)]
