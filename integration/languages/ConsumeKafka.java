import com.fasterxml.jackson.databind.ObjectMapper;
import io.cloudevents.CloudEvent;
import io.cloudevents.kafka.KafkaMessageFactory;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Consumes COUNT messages of a topic, and prints each as a line of JSON.
 *
 * <pre>java -cp 'java/*' ConsumeKafka.java localhost:9092 orders billing 10</pre>
 */
public class ConsumeKafka {
  public static void main(String[] args) throws Exception {
    Map<String, Object> config = Map.of(
        "bootstrap.servers", args[0], "group.id", args[2], "auto.offset.reset", "earliest",
        "enable.auto.commit", false, "max.poll.records", 1);
    var bytes = new ByteArrayDeserializer();
    try (var consumer = new KafkaConsumer<>(config, bytes, bytes)) {
      consumer.subscribe(List.of(args[1]));
      for (int left = Integer.parseInt(args[3]); left > 0; ) {
        for (var record : consumer.poll(Duration.ofSeconds(1))) {
          System.out.println(new ObjectMapper().writeValueAsString(read(record)));
          left--;
        }
        consumer.commitSync(); // after the message is handled: a crash repeats it
      }
    }
  }

  /** Returns what a message of the outbox carries. Deduplicate by the header event_id. */
  static Map<String, Object> read(ConsumerRecord<byte[], byte[]> record) {
    var headers = new LinkedHashMap<String, String>();
    record.headers().forEach(h -> headers.put(h.key(), new String(h.value(), StandardCharsets.UTF_8)));
    var got = new LinkedHashMap<String, Object>();
    got.put("key", record.key()); // Jackson writes bytes as base64
    got.put("headers", headers);
    got.put("payload", record.value());
    var type = headers.getOrDefault("content-type", "");
    if (headers.containsKey("ce_id") || type.startsWith("application/cloudevents")) {
      got.put("event", event(KafkaMessageFactory.createReader(record).toEvent()));
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
