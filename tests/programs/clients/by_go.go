// Publishes an event by the Go client, and reads it. Prints its id.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"os"

	msgplatform "msgplatform.example/client/go"
)

func main() {
	configuration := msgplatform.NewConfiguration()
	configuration.Servers = msgplatform.ServerConfigurations{{URL: os.Getenv("MSGPLATFORM_URL")}}
	events := msgplatform.NewAPIClient(configuration).EventsAPI
	key := os.Getenv("MSGPLATFORM_KEY")
	ctx := context.WithValue(context.Background(), msgplatform.ContextAccessToken, key)

	event := *msgplatform.NewPublishRequest("order.paid", map[string]interface{}{"order": 7})
	event.SetIdempotencyKey("order-7-paid")
	sent, _, err := events.MessagesCreate(ctx).PublishRequest(event).Execute()
	if err != nil {
		log.Fatal(err)
	}
	message, _, err := events.MessagesRetrieve(ctx, sent.GetId()).Expand("payload").Execute()
	if err != nil {
		log.Fatal(err)
	}
	page, _, err := events.MessagesList(ctx).EventType("order.paid").Execute()
	if err != nil || len(page.Results) != 1 {
		log.Fatal(err, page)
	}
	if message.Payload.(map[string]interface{})["order"] != 7.0 {
		log.Fatal(message.Payload)
	}
	ofNewerPlatform := []byte(`{"id": "1", "outcome": "created", "new": 1}`)
	if err := json.Unmarshal(ofNewerPlatform, &msgplatform.Accepted{}); err != nil {
		log.Fatal(err)
	}
	fmt.Println(sent.GetId())
}
