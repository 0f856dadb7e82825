"""Uses the client that openapi-python-client has made, in `generated`. Prints a message's id."""

import os

from generated import AuthenticatedClient, models
from generated.api.api_keys import systems_keys_destroy, systems_keys_update
from generated.api.business_systems import systems_destroy, systems_update
from generated.api.consumers import consumers_update
from generated.api.event_types import (
    event_types_destroy,
    event_types_retrieve,
    event_types_update,
)
from generated.api.events import messages_create, messages_list, messages_retrieve
from generated.api.feed import (
    feed_posts_create,
    feed_posts_destroy,
    feed_posts_partial_update,
    feed_timelines_read_create,
)
from generated.api.subscriptions import subscriptions_destroy, subscriptions_update


def client(key: str) -> AuthenticatedClient:
    return AuthenticatedClient(base_url=os.environ["MSGPLATFORM_URL"], token=key)


manager = client(os.environ["MSGPLATFORM_KEY"])
systems_update.sync("orders", client=manager, body=models.SystemRequest(title="Orders"))
consumer = models.ConsumerRequest(url="https://warehouse.example/hooks")
consumers_update.sync("warehouse", client=manager, body=consumer)
wanted = models.SubscriptionRequest(event_types=["order.*"], timeout=5, schedule=[5, 300])
subscription = subscriptions_update.sync("orders", "warehouse", client=manager, body=wanted)
assert isinstance(subscription, models.Subscription), subscription
assert subscription.name == "orders/warehouse"
for example in ({"a": 1}, [1, 2], "text", None):
    body = models.EventTypeRequest(example=example)
    event_types_update.sync("order.paid", client=manager, body=body)
    stored = event_types_retrieve.sync("order.paid", client=manager)
    assert isinstance(stored, models.EventType), stored
    assert stored.example == example
scopes = ["events:write", "events:read", "feed:write", "feed:read"]
key = systems_keys_update.sync(
    "orders", "app", client=manager, body=models.KeyRequest(scopes=scopes)
)
assert isinstance(key, models.CreatedKey), key
orders = client(key.key)

sent = models.PublishRequest(event_type="order.paid", payload={"order": 7})
message = messages_create.sync(client=orders, body=sent)
assert isinstance(message, models.Accepted), message
shown = messages_retrieve.sync(
    message.id, client=orders, expand=models.MessagesRetrieveExpand.PAYLOAD
)
assert isinstance(shown, models.MessageDetail), shown
assert shown.payload == {"order": 7}
listed = messages_list.sync(client=orders)
assert isinstance(listed, models.PaginatedMessageList), listed
assert [each.id for each in listed.results] == [message.id]
post = feed_posts_create.sync(client=orders, body=models.NewPostRequest(uid="ann", data="hello"))
assert isinstance(post, models.Accepted), post
edit = models.EditRequest(data="good night")
feed_posts_partial_update.sync(post.id, client=orders, body=edit)
read = models.ReadRequest(up_to=post.id)
bodiless = [
    feed_timelines_read_create.sync_detailed("ben", client=orders, body=read),
    feed_posts_destroy.sync_detailed(post.id, client=orders),
    event_types_destroy.sync_detailed("order.paid", client=manager),
    subscriptions_destroy.sync_detailed("orders", "warehouse", client=manager),
    systems_keys_destroy.sync_detailed("orders", "app", client=manager),
    systems_destroy.sync_detailed("orders", client=manager),
]
assert [answer.status_code for answer in bodiless] == [204] * len(bodiless), bodiless
print(message.id)
