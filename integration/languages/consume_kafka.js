// Consumes COUNT messages of a topic, and prints each as a line of JSON.
//
//     node consume_kafka.js localhost:9092 orders billing 10

const { Kafka: CloudEvents } = require('cloudevents');
const { Kafka, logLevel } = require('kafkajs');

const text = (b) => (b === null ? null : b.toString('base64'));

// read returns what a message of the outbox carries. Deduplicate by headers.event_id.
function read(message) {
  const headers = {};
  for (const [name, value] of Object.entries(message.headers)) headers[name] = value.toString();
  const got = { key: text(message.key), headers, payload: text(message.value) };
  // The SDK takes text for headers and key. It fails at an empty value of a JSON type, such as that
  // of an event whose data were erased.
  const empty = message.value.length === 0 && (headers['content-type'] ?? '').includes('json');
  const carried = { headers, key: message.key?.toString(), value: empty ? 'null' : message.value };
  if (CloudEvents.isEvent(carried)) got.event = cloudEvent(CloudEvents.toEvent(carried));
  return got;
}

function cloudEvent(event) {
  const { data, data_base64: base64, ...attributes } = event; // JSON comes as a value, other data as bytes
  if (base64 !== undefined) return { ...attributes, data: base64 };
  return { ...attributes, data: data == null ? null : text(Buffer.from(JSON.stringify(data))) };
}

async function main(servers, topic, groupId, count) {
  const kafka = new Kafka({ brokers: servers.split(','), logLevel: logLevel.ERROR });
  const consumer = kafka.consumer({ groupId });
  await consumer.connect();
  await consumer.subscribe({ topic, fromBeginning: true });
  let left = Number(count);
  await new Promise((resolve, reject) => {
    consumer.on(consumer.events.CRASH, (e) => reject(e.payload.error));
    consumer.run({ // the offset is committed after the message is handled: a crash repeats it
      eachMessage: async ({ message }) => {
        console.log(JSON.stringify(read(message)));
        if (--left === 0) resolve();
      },
    }).catch(reject);
  });
  await consumer.disconnect();
}

main(...process.argv.slice(2)).catch((error) => {
  console.error(error);
  process.exit(1);
});
