import com.fasterxml.jackson.databind.ObjectMapper;
import com.rabbitmq.client.AMQP.BasicProperties;
import com.rabbitmq.client.ConnectionFactory;
import com.rabbitmq.client.DefaultConsumer;
import com.rabbitmq.client.Envelope;
import io.cloudevents.CloudEvent;
import io.cloudevents.core.builder.CloudEventBuilder;
import io.cloudevents.core.provider.EventFormatProvider;
import java.io.IOException;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.CountDownLatch;

/**
 * Consumes COUNT messages of a queue, and prints each as a line of JSON.
 *
 * <pre>java -cp 'java/*' ConsumeRabbitMQ.java amqp://guest:guest@localhost:5672 orders 10</pre>
 */
public class ConsumeRabbitMQ {
  public static void main(String[] args) throws Exception {
    var factory = new ConnectionFactory();
    factory.setUri(args[0]);
    var left = new CountDownLatch(Integer.parseInt(args[2]));
    try (var connection = factory.newConnection(); var channel = connection.createChannel()) {
      channel.basicQos(1);
      channel.basicConsume(args[1], new DefaultConsumer(channel) {
        @Override
        public void handleDelivery(String tag, Envelope envelope, BasicProperties properties, byte[] body)
            throws IOException {
          System.out.println(new ObjectMapper().writeValueAsString(read(properties, body)));
          channel.basicAck(envelope.getDeliveryTag(), false); // after the message is handled: a crash repeats it
          left.countDown();
        }
      });
      left.await();
    }
  }

  /** Returns what a message of the outbox carries. Deduplicate by the header event_id. */
  static Map<String, Object> read(BasicProperties properties, byte[] body) {
    var headers = new LinkedHashMap<String, String>();
    properties.getHeaders().forEach((name, value) -> headers.put(name, value.toString())); // a LongString
    var type = properties.getContentType() == null ? "" : properties.getContentType();
    var got = new LinkedHashMap<String, Object>();
    got.put("headers", headers);
    got.put("content_type", type);
    got.put("payload", body); // Jackson writes bytes as base64
    if (type.startsWith("application/cloudevents")) {
      got.put("event", event(EventFormatProvider.getInstance().resolveFormat(type).deserialize(body)));
    } else if (headers.containsKey("cloudEvents:id")) {
      // The SDK knows AMQP 1.0 alone: a client of 0-9-1 reads the attributes itself.
      var builder = CloudEventBuilder.v1().withData(body);
      headers.forEach((name, value) -> {
        if (name.startsWith("cloudEvents:") && !name.equals("cloudEvents:specversion")) {
          builder.withContextAttribute(name.substring("cloudEvents:".length()), value);
        }
      });
      if (!type.isEmpty()) {
        builder.withDataContentType(type);
      }
      got.put("event", event(builder.build()));
    }
    return got;
  }

  static Map<String, Object> event(CloudEvent event) {
    var got = new LinkedHashMap<String, Object>();
    for (String name : event.getAttributeNames()) {
      got.put(name, event.getAttribute(name).toString());
    }
    for (String name : event.getExtensionNames()) {
      got.put(name, event.getExtension(name));
    }
    got.put("data", event.getData() == null ? null : event.getData().toBytes());
    return got;
  }
}
