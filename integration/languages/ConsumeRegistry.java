import com.fasterxml.jackson.databind.ObjectMapper;
import com.google.protobuf.CodedInputStream;
import com.google.protobuf.DoubleValue;
import com.google.protobuf.StringValue;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse.BodyHandlers;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.avro.Schema;
import org.apache.avro.generic.GenericDatumReader;
import org.apache.avro.io.DecoderFactory;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Consumes COUNT messages in the wire format of a schema registry, without Confluent's libraries,
 * and prints each as a line of JSON.
 *
 * <pre>java -cp 'java/*' ConsumeRegistry.java localhost:9092 orders billing 4 http://localhost:8081</pre>
 */
public class ConsumeRegistry {
  static final ObjectMapper json = new ObjectMapper();
  static final HttpClient http = HttpClient.newHttpClient();
  static final Map<Integer, Map<?, ?>> schemas = new HashMap<>();

  public static void main(String[] args) throws Exception {
    Map<String, Object> config = Map.of(
        "bootstrap.servers", args[0], "group.id", args[2], "auto.offset.reset", "earliest",
        "enable.auto.commit", false, "max.poll.records", 1);
    var bytes = new ByteArrayDeserializer();
    try (var consumer = new KafkaConsumer<>(config, bytes, bytes)) {
      consumer.subscribe(List.of(args[1]));
      for (int left = Integer.parseInt(args[3]); left > 0; ) {
        for (var record : consumer.poll(Duration.ofSeconds(1))) {
          var headers = new LinkedHashMap<String, String>();
          record.headers().forEach(h -> headers.put(h.key(), new String(h.value(), StandardCharsets.UTF_8)));
          System.out.println(json.writeValueAsString(
              Map.of("headers", headers, "value", read(args[4], headers.get("event_type"), record.value()))));
          left--;
        }
        consumer.commitSync();
      }
    }
  }

  static Object read(String registry, String event, byte[] value) throws Exception {
    var message = ByteBuffer.wrap(value);
    if (message.get() != 0) {
      throw new IllegalArgumentException("not the wire format of a schema registry");
    }
    int id = message.getInt(); // big-endian
    if (!schemas.containsKey(id)) {
      var request = HttpRequest.newBuilder(URI.create(registry + "/schemas/ids/" + id)).build();
      schemas.put(id, json.readValue(http.send(request, BodyHandlers.ofString()).body(), Map.class));
    }
    var body = new byte[message.remaining()];
    message.get(body);
    var schema = schemas.get(id);
    var type = schema.get("schemaType");
    if ("JSON".equals(type)) {
      return json.readTree(body);
    }
    if ("PROTOBUF".equals(type)) {
      var in = CodedInputStream.newInstance(body);
      for (int left = in.readSInt32(); left > 0; left--) {
        in.readSInt32(); // the message's place in its file: the generated class knows it
      }
      return event.equals("order.named") ? StringValue.parseFrom(in).getValue() : DoubleValue.parseFrom(in).getValue();
    }
    var avro = new Schema.Parser().parse((String) schema.get("schema")); // Avro has no schemaType
    var record = new GenericDatumReader<>(avro).read(null, DecoderFactory.get().binaryDecoder(body, null));
    return json.readTree(record.toString());
  }
}
