"""Uses the client that openapi-generator has made, in `generated`. Prints the id of a message."""

import os

from generated import ApiClient, Configuration, api, models


def client(key: str) -> ApiClient:
    return ApiClient(Configuration(host=os.environ["MSGPLATFORM_URL"], access_token=key))


manager = client(os.environ["MSGPLATFORM_KEY"])
api.BusinessSystemsApi(manager).systems_update("orders", models.SystemRequest(title="Orders"))
api.ConsumersApi(manager).consumers_update(
    "warehouse", models.ConsumerRequest(url="https://warehouse.example/hooks")
)
subscriptions = api.SubscriptionsApi(manager)
wanted = models.SubscriptionRequest(event_types=["order.*"], timeout=5, schedule=[5, 300])
subscription = subscriptions.subscriptions_update("warehouse", "orders", wanted)
assert subscription.name == "orders/warehouse", subscription
types = api.EventTypesApi(manager)
for example in ({"a": 1}, [1, 2], "text", None):
    types.event_types_update("order.paid", models.EventTypeRequest(example=example))
    assert types.event_types_retrieve("order.paid").example == example
keys = api.APIKeysApi(manager)
scopes = ["events:write", "events:read", "feed:write", "feed:read"]
answer = keys.systems_keys_update_with_http_info("app", "orders", models.KeyRequest(scopes=scopes))
orders = client(answer.data.key)

events = api.EventsApi(orders)
sent = models.PublishRequest(event_type="order.paid", payload={"order": 7})
message = events.messages_create(sent)
assert events.messages_retrieve(message.id, expand="payload").payload == {"order": 7}
assert [each.id for each in events.messages_list().results] == [message.id]
feed = api.FeedApi(orders)
post = feed.feed_posts_create(models.NewPostRequest(uid="ann", data="hello"))
feed.feed_posts_partial_update(post.id, models.EditRequest(data="good night"))
feed.feed_timelines_read_create("ben", models.ReadRequest(up_to=post.id))
feed.feed_posts_destroy(post.id)

types.event_types_destroy("order.paid")
subscriptions.subscriptions_destroy("warehouse", "orders")
keys.systems_keys_destroy("app", "orders")
api.BusinessSystemsApi(manager).systems_destroy("orders")
print(message.id)
