// Consumes COUNT messages in the wire format of a schema registry, and prints each as a line of
// JSON.
//
//     node consume_registry.js localhost:9092 orders billing 4 http://localhost:8081

const { Kafka, logLevel } = require('kafkajs');
const {
  AvroDeserializer, JsonDeserializer, ProtobufDeserializer, SchemaRegistryClient, SerdeType,
} = require('@confluentinc/schemaregistry');

async function main(servers, topic, groupId, count, url) {
  const registry = new SchemaRegistryClient({ baseURLs: [url] });
  const protobuf = new ProtobufDeserializer(registry, SerdeType.VALUE, {});
  const deserializers = { // by the event's type
    'order.placed': new JsonDeserializer(registry, SerdeType.VALUE, {}),
    'order.paid': new AvroDeserializer(registry, SerdeType.VALUE, {}),
    'order.named': protobuf,
    'order.weighed': protobuf,
  };
  const consumer = new Kafka({ brokers: servers.split(','), logLevel: logLevel.ERROR }).consumer({
    groupId, retry: { retries: 0 },
  });
  await consumer.connect();
  await consumer.subscribe({ topic, fromBeginning: true });
  let left = Number(count);
  await new Promise((resolve, reject) => {
    consumer.on(consumer.events.CRASH, (e) => reject(e.payload.error));
    consumer.run({
      eachMessage: async ({ message }) => {
        const headers = {};
        for (const [name, value] of Object.entries(message.headers)) headers[name] = value.toString();
        const value = await deserializers[headers.event_type].deserialize(topic, message.value);
        delete value.$typeName; // of Protobuf
        console.log(JSON.stringify({ headers, value: value.value === undefined ? value : value.value }));
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
