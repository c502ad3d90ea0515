"""Consumes COUNT messages in the wire format of a schema registry, and prints each as a line of JSON.

    python consume_registry.py localhost:9092 orders billing 4 http://localhost:8081
"""

import json
import sys

from confluent_kafka import Consumer
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf.json_format import MessageToDict
from google.protobuf.wrappers_pb2 import DoubleValue, StringValue


def main(servers, topic, group, count, url):
    registry = SchemaRegistryClient({"url": url})
    current = {"use.deprecated.format": False}
    deserializers = {  # by the event's type
        "order.placed": JSONDeserializer(None, schema_registry_client=registry),
        "order.paid": AvroDeserializer(registry),
        "order.named": ProtobufDeserializer(StringValue, current, registry),
        "order.weighed": ProtobufDeserializer(DoubleValue, current, registry),
    }
    consumer = Consumer(
        {"bootstrap.servers": servers, "group.id": group, "auto.offset.reset": "earliest", "enable.auto.commit": False}
    )
    consumer.subscribe([topic])
    left = int(count)
    while left > 0:
        message = consumer.poll(1)
        if message is None:
            continue
        if message.error():
            raise SystemExit(str(message.error()))
        headers = {name: value.decode() for name, value in message.headers()}
        context = SerializationContext(topic, MessageField.VALUE, message.headers())
        value = deserializers[headers["event_type"]](message.value(), context)
        if not isinstance(value, dict):
            value = MessageToDict(value)
        print(json.dumps({"headers": headers, "value": value}))
        consumer.commit(message, asynchronous=False)
        left -= 1
    consumer.close()


main(*sys.argv[1:])
