"""Consumes COUNT messages of a topic, and prints each as a line of JSON.

    python consume_kafka.py localhost:9092 orders billing 10
"""

import base64
import json
import sys

from cloudevents.core.bindings.kafka import KafkaMessage, from_kafka_event
from kafka import KafkaConsumer


def text(b):
    return None if b is None else base64.b64encode(b).decode()


def read(record):
    """Returns what a message of the outbox carries. Deduplicate by headers["event_id"]."""
    headers = {name: value.decode() for name, value in record.headers}
    got = {"key": text(record.key), "headers": headers, "payload": text(record.value)}
    if "ce_id" in headers or headers.get("content-type", "").startswith("application/cloudevents"):
        message = KafkaMessage(headers=dict(record.headers), key=record.key, value=record.value)
        got["event"] = cloud_event(from_kafka_event(message))
    return got


def cloud_event(event):
    attributes = event.get_attributes()
    data = event.get_data()  # JSON comes as a value, other data as str or bytes, and no data as None
    if data is not None and "json" in attributes.get("datacontenttype", ""):
        data = json.dumps(data).encode()
    elif isinstance(data, str):
        data = data.encode()
    attributes["time"] = attributes["time"].isoformat()
    return {**attributes, "data": text(data)}


def main(servers, topic, group, count):
    consumer = KafkaConsumer(
        topic, bootstrap_servers=servers, group_id=group, auto_offset_reset="earliest", enable_auto_commit=False
    )
    for _ in range(int(count)):
        print(json.dumps(read(next(consumer))))
        consumer.commit()  # after the message is handled: a crash repeats it
    consumer.close()


main(*sys.argv[1:])
