import java.util.Map;
import msgplatform.client.ApiClient;
import msgplatform.client.api.EventsApi;
import msgplatform.client.model.Accepted;
import msgplatform.client.model.MessageDetail;
import msgplatform.client.model.PublishRequest;

/** Publishes an event by the Java client, and reads it. Prints its id. */
public final class ByJava {
    public static void main(String[] arguments) throws Exception {
        String authorization = "Bearer " + System.getenv("MSGPLATFORM_KEY");
        ApiClient client = new ApiClient();
        client.updateBaseUri(System.getenv("MSGPLATFORM_URL"));
        client.setRequestInterceptor(request -> request.header("Authorization", authorization));
        EventsApi events = new EventsApi(client);

        PublishRequest event = new PublishRequest().eventType("order.paid").payload(Map.of("order", 7));
        Accepted sent = events.messagesCreate(event.idempotencyKey("order-7-paid"), null);
        MessageDetail message = events.messagesRetrieve(sent.getId(), "payload");
        if (!message.getPayload().equals(Map.of("order", 7))) {
            throw new IllegalStateException(message.toString());
        }
        System.out.println(sent.getId());
    }
}
