package com.github.ormoutbox;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.util.Map;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.connect.connector.ConnectRecord;
import org.apache.kafka.connect.header.ConnectHeaders;
import org.apache.kafka.connect.header.Header;
import org.apache.kafka.connect.header.Headers;
import org.apache.kafka.connect.transforms.Transformation;

/**
 * Makes a header of each member of a JSON object that one header carries, and leaves out headers
 * without a value. It comes after Debezium's EventRouter, which sends the column headers as one
 * header, and an empty column as a header without a value. A header whose text is no JSON object
 * of strings stays as it is: a record is never refused.
 */
public final class ExpandHeaders<R extends ConnectRecord<R>> implements Transformation<R> {
  private static final ObjectMapper JSON = new ObjectMapper();
  private static final ConfigDef CONFIG =
      new ConfigDef()
          .define(
              "header",
              ConfigDef.Type.STRING,
              "headers",
              ConfigDef.Importance.MEDIUM,
              "The header that carries the others, as a JSON object of strings.");

  private String name;

  @Override
  public void configure(Map<String, ?> settings) {
    name = (String) CONFIG.parse(settings).get("header");
  }

  @Override
  public R apply(R record) {
    Headers expanded = new ConnectHeaders();
    for (Header header : record.headers()) {
      if (header.value() == null) {
        continue;
      }
      JsonNode object = header.key().equals(name) ? parse(header.value()) : null;
      if (object == null) {
        expanded.add(header);
        continue;
      }
      object.fieldNames().forEachRemaining(
          member -> expanded.addString(member, object.get(member).textValue()));
    }
    return record.newRecord(
        record.topic(),
        record.kafkaPartition(),
        record.keySchema(),
        record.key(),
        record.valueSchema(),
        record.value(),
        record.timestamp(),
        expanded);
  }

  /** Returns null if the value is no JSON object of strings. */
  private static JsonNode parse(Object value) {
    if (!(value instanceof String)) {
      return null;
    }
    try {
      JsonNode object = JSON.readTree((String) value);
      if (object == null || !object.isObject()) {
        return null;
      }
      for (JsonNode member : object) {
        if (!member.isTextual()) {
          return null;
        }
      }
      return object;
    } catch (JsonProcessingException e) {
      return null;
    }
  }

  @Override
  public ConfigDef config() {
    return CONFIG;
  }

  @Override
  public void close() {}
}
