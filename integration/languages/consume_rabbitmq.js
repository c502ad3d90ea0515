// Consumes COUNT messages of a queue, and prints each as a line of JSON.
//
//     node consume_rabbitmq.js amqp://guest:guest@localhost:5672 orders 10

const amqp = require('amqplib');
const { HTTP } = require('cloudevents');

const text = (b) => b.toString('base64');

// read returns what a message of the outbox carries. Deduplicate by headers.event_id.
function read({ properties, content }) {
  const { headers, contentType } = properties;
  const got = { headers, content_type: contentType ?? '', payload: text(content) };
  const structured = (contentType ?? '').startsWith('application/cloudevents');
  if (structured || headers['cloudEvents:id']) {
    // The SDK knows no AMQP: its names of HTTP are the same attributes.
    const named = contentType ? { 'content-type': contentType } : {};
    for (const [name, value] of Object.entries(headers)) {
      if (name.startsWith('cloudEvents:')) named[name.replace('cloudEvents:', 'ce-')] = value;
    }
    const body = structured || (contentType ?? '').includes('json') ? content.toString() : content;
    got.event = cloudEvent(HTTP.toEvent({ headers: named, body: content.length > 0 ? body : undefined }));
  }
  return got;
}

function cloudEvent(event) {
  const { data, data_base64: base64, ...attributes } = event; // JSON comes as a value, other data as bytes
  if (base64 !== undefined) return { ...attributes, data: base64 };
  return { ...attributes, data: data == null ? null : text(Buffer.from(JSON.stringify(data))) };
}

async function main(url, queue, count) {
  const connection = await amqp.connect(url);
  const channel = await connection.createChannel();
  await channel.prefetch(1);
  let left = Number(count);
  await new Promise((resolve, reject) => {
    channel.on('error', reject);
    channel.consume(queue, (message) => {
      try {
        console.log(JSON.stringify(read(message)));
        channel.ack(message); // after the message is handled: a crash repeats it
      } catch (error) {
        reject(error);
      }
      if (--left === 0) resolve();
    }).catch(reject);
  });
  await channel.close(); // sends the last acknowledgement
  await connection.close();
}

main(...process.argv.slice(2)).catch((error) => {
  console.error(error);
  process.exit(1);
});
