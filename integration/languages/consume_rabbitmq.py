"""Consumes COUNT messages of a queue, and prints each as a line of JSON.

    python consume_rabbitmq.py amqp://guest:guest@localhost:5672 orders 10
"""

import base64
import json
import sys

import pika
from cloudevents.core.bindings.amqp import AMQPMessage, from_amqp_event


def text(b):
    return None if b is None else base64.b64encode(b).decode()


def read(properties, body):
    """Returns what a message of the outbox carries. Deduplicate by headers["event_id"]."""
    headers, content_type = properties.headers, properties.content_type or ""
    got = {"headers": headers, "content_type": content_type, "payload": text(body)}
    if "cloudEvents:id" in headers or content_type.startswith("application/cloudevents"):
        known = {"content-type": content_type} if content_type else {}
        got["event"] = cloud_event(from_amqp_event(AMQPMessage(known, headers, body)))
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


def main(url, queue, count):
    connection = pika.BlockingConnection(pika.URLParameters(url))
    channel = connection.channel()
    channel.basic_qos(prefetch_count=1)
    left = int(count)
    for method, properties, body in channel.consume(queue):
        print(json.dumps(read(properties, body)))
        channel.basic_ack(method.delivery_tag)  # after the message is handled: a crash repeats it
        left -= 1
        if left == 0:
            break
    channel.cancel()
    connection.close()


main(*sys.argv[1:])
