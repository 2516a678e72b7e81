// One scenario with KafkaJS against a real cluster: `node scenario.js NAME '{"bootstrap": ..., ...}'`.
//
// The result is one line of JSON on standard output, which the Python test beside this file checks; nothing is asserted
// here. Bytes travel as base64. Waiting is by KafkaJS's own events, and every wait has a deadline.

const { Kafka, CompressionCodecs, CompressionTypes, ConfigResourceTypes, logLevel } = require('kafkajs');
const lz4 = require('lz4-napi');
const snappy = require('kafkajs-snappy');
const zstd = require('@bokuweb/zstd-wasm');

const WAIT_LIMIT_MS = 60_000;
const COMPRESSIONS = {
  none: CompressionTypes.None,
  gzip: CompressionTypes.GZIP,
  snappy: CompressionTypes.Snappy,
  lz4: CompressionTypes.LZ4,
  zstd: CompressionTypes.ZSTD,
};

CompressionCodecs[CompressionTypes.Snappy] = snappy;
CompressionCodecs[CompressionTypes.LZ4] = () => ({
  compress: (encoder) => lz4.compressFrame(encoder.buffer),
  decompress: (bytes) => lz4.decompressFrame(bytes),
});
CompressionCodecs[CompressionTypes.ZSTD] = () => ({
  compress: async (encoder) => Buffer.from(zstd.compress(encoder.buffer, 3)),
  decompress: async (bytes) => Buffer.from(zstd.decompress(bytes)),
});

const toBytes = (text) => (text === null ? null : Buffer.from(text, 'base64'));
const toText = (bytes) => (bytes === null || bytes === undefined ? null : bytes.toString('base64'));
// Ask again until it is so; tells whether it still was not at the deadline. A broker may answer from a moment before.
const until = async (condition) => {
  const end = Date.now() + WAIT_LIMIT_MS;
  while (!(await condition())) {
    if (Date.now() > end) return true;
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
  return false;
};
const placeOf = (topic, partition) => `${topic}/${partition}`;

// Something that several callbacks change and one place waits for.
class Watched {
  constructor() {
    this.wakers = [];
  }

  changed() {
    for (const wake of this.wakers.splice(0)) wake();
  }

  async until(condition, what) {
    const end = Date.now() + WAIT_LIMIT_MS;
    while (!condition()) {
      const left = end - Date.now();
      if (left <= 0) throw new Error(`waited ${WAIT_LIMIT_MS / 1000} s for ${what}`);
      let timer;
      await Promise.race([
        new Promise((resolve) => this.wakers.push(resolve)),
        new Promise((resolve) => (timer = setTimeout(resolve, left))),
      ]);
      clearTimeout(timer);
    }
  }
}

// A member of a group that notes what it is assigned and what it receives.
class Member {
  constructor(kafka, watched, groupId, topics, { fromBeginning = true } = {}) {
    this.watched = watched;
    this.assignment = [];
    this.received = [];
    this.failure = null;
    this.topics = topics;
    this.fromBeginning = fromBeginning;
    this.consumer = kafka.consumer({
      groupId,
      heartbeatInterval: 200,
      sessionTimeout: 30_000,
      rebalanceTimeout: 60_000,
      maxWaitTimeInMs: 100,
    });
    this.consumer.on(this.consumer.events.GROUP_JOIN, ({ payload }) => {
      this.assignment = Object.entries(payload.memberAssignment).flatMap(([topic, partitions]) =>
        partitions.map((partition) => placeOf(topic, partition)),
      );
      watched.changed();
    });
    this.consumer.on(this.consumer.events.CRASH, ({ payload }) => {
      this.failure = payload.error;
      watched.changed();
    });
  }

  async start() {
    await this.consumer.connect();
    await this.consumer.subscribe({ topics: this.topics, fromBeginning: this.fromBeginning });
    await this.consumer.run({
      autoCommit: false,
      eachMessage: async ({ topic, partition, message }) => {
        this.received.push({
          topic,
          partition,
          offset: Number(message.offset),
          timestamp: Number(message.timestamp),
          key: toText(message.key),
          value: toText(message.value),
          headers: headerPairs(message.headers),
        });
        this.watched.changed();
      },
    });
    return this;
  }

  async commit() {
    const next = new Map();
    for (const { topic, partition, offset } of this.received) next.set(placeOf(topic, partition), offset + 1);
    await this.consumer.commitOffsets(
      [...next].map(([place, offset]) => {
        const [topic, partition] = place.split('/');
        return { topic, partition: Number(partition), offset: String(offset) };
      }),
    );
  }

  async stop() {
    await this.consumer.disconnect();
  }
}

// KafkaJS keeps headers in an object: a name that comes twice has a list.
const headerPairs = (headers) =>
  Object.entries(headers ?? {}).flatMap(([name, value]) =>
    (Array.isArray(value) ? value : [value]).map((one) => [name, toText(one)]),
  );

const headerObject = (pairs) => {
  const headers = {};
  for (const [name, value] of pairs) {
    if (name in headers) headers[name] = [headers[name], toBytes(value)].flat();
    else headers[name] = toBytes(value);
  }
  return headers;
};

const connected = async (client, work) => {
  await client.connect();
  try {
    return await work(client);
  } finally {
    await client.disconnect();
  }
};

const produce = (kafka, topic, messages, compression = 'none') =>
  connected(kafka.producer({ idempotent: true, maxInFlightRequests: 1 }), async (producer) => {
    const answers = [];
    // A send a record: KafkaJS makes one batch of a call, and the samples together are too much for one.
    for (const { partition, key, value, headers, timestamp } of messages) {
      const message = { partition, key: toBytes(key), value: toBytes(value), headers: headerObject(headers ?? []) };
      if (timestamp !== undefined) message.timestamp = String(timestamp);
      answers.push(
        ...(await producer.send({ topic, acks: -1, compression: COMPRESSIONS[compression], messages: [message] })),
      );
    }
    return answers.map((answer) => Number(answer.baseOffset));
  });

const scenarios = {
  async roundTrip(kafka, { topic, partition, compression, samples, group }) {
    const offsets = await produce(
      kafka,
      topic,
      samples.map((sample) => ({ partition, ...sample })),
      compression,
    );
    const watched = new Watched();
    const member = new Member(kafka, watched, group, [topic]);
    const mine = () => member.received.filter((record) => record.partition === partition);
    await member.start();
    try {
      await watched.until(() => member.failure || mine().length >= samples.length, 'all records');
      if (member.failure) throw member.failure;
      return { offsets, received: mine() };
    } finally {
      await member.stop();
    }
  },

  async rebalance(kafka, { topics, partitions, group }) {
    const places = topics.flatMap((topic) => [...Array(partitions).keys()].map((p) => placeOf(topic, p)));
    const sendAll = async (word) => {
      const value = Buffer.from(word).toString('base64');
      for (const topic of topics) {
        await produce(kafka, topic, [...Array(partitions).keys()].map((partition) => ({ partition, key: null, value })));
      }
    };
    const watched = new Watched();
    const members = [];
    const counts = () => members.reduce((sum, member) => sum + member.received.length, 0);
    const failed = () => members.some((member) => member.failure);
    const until = async (condition, what) => {
      await watched.until(() => failed() || condition(), what);
      for (const member of members) if (member.failure) throw member.failure;
    };
    const join = async () => {
      const member = new Member(kafka, watched, group, topics);
      members.push(member);
      await member.start();
      return member;
    };
    try {
      const first = await join();
      await until(() => first.assignment.length === places.length, 'the first member to own everything');
      await sendAll('alone');
      await until(() => counts() >= places.length, 'what was sent to one member');
      await first.commit();
      const second = await join();
      const whole = () => [...first.assignment, ...second.assignment].sort().join() === [...places].sort().join();
      await until(() => second.assignment.length && whole(), 'both to own a part');
      const split = [[...first.assignment], [...second.assignment]];
      await sendAll('shared');
      await until(() => counts() >= 2 * places.length, 'what was sent to two members');
      await first.commit();
      await second.commit();
      const ofSecond = [...second.received];
      await second.stop();
      await until(() => first.assignment.length === places.length, 'the first member to own everything again');
      await sendAll('alone again');
      await until(() => counts() >= 3 * places.length, 'what was sent after one had left');
      return { split, first: first.received, second: ofSecond };
    } finally {
      await Promise.all(members.map((member) => member.stop()));
    }
  },

  async restart(kafka, { topic, group }) {
    const value = Buffer.from('value').toString('base64');
    const send = (count) => produce(kafka, topic, Array(count).fill({ partition: 0, key: null, value }));
    const watched = new Watched();
    const read = async (count, then) => {
      const member = await new Member(kafka, watched, group, [topic]).start();
      try {
        await watched.until(() => member.failure || member.received.length >= count, `${count} records`);
        if (member.failure) throw member.failure;
        await then(member);
        return member.received.map((record) => record.offset);
      } finally {
        await member.stop();
      }
    };
    await send(5);
    const first = await read(5, async (member) => {
      await member.commit();
      await send(3);
      await watched.until(() => member.received.length >= 8, 'what is not committed');
    });
    const second = await read(3, async () => {});
    return { first, second };
  },

  async transactions(kafka, { topic, group, transactionalId }) {
    const settings = { transactionalId, idempotent: true, maxInFlightRequests: 1 };
    const send = (transaction, value) =>
      transaction.send({ topic, acks: -1, messages: [{ partition: 0, value: Buffer.from(value) }] });
    const offsetsAt = (offset) => ({
      consumerGroupId: group,
      topics: [{ topic, partitions: [{ partition: 0, offset: String(offset) }] }],
    });
    await connected(kafka.producer(settings), async (producer) => {
      const aborted = await producer.transaction();
      await send(aborted, 'aborted');
      await aborted.sendOffsets(offsetsAt(9));
      await aborted.abort();
      const committed = await producer.transaction();
      await send(committed, 'committed');
      await committed.sendOffsets(offsetsAt(5));
      await committed.commit();
    });
    return connected(kafka.admin(), async (admin) => {
      const [found] = await admin.fetchOffsets({ groupId: group, topics: [topic] });
      return Number(found.partitions[0].offset);
    });
  },

  async times(kafka, { topic, group, times, at }) {
    const value = Buffer.from('value').toString('base64');
    await produce(kafka, topic, times.map((timestamp) => ({ partition: 0, key: null, value, timestamp })));
    const offsets = await connected(kafka.admin(), (admin) =>
      Promise.all(at.map(async (time) => Number((await admin.fetchTopicOffsetsByTimestamp(topic, time))[0].offset))),
    );
    const watched = new Watched();
    const member = new Member(kafka, watched, group, [topic]);
    await member.start();
    member.consumer.seek({ topic, partition: 0, offset: String(offsets[0]) });
    try {
      // Records that were on their way before the seek may come first; the seek is what the last ones show.
      await watched.until(() => member.failure || member.received.at(-1)?.offset === times.length - 1, 'the last record');
      return { offsets, received: member.received };
    } finally {
      await member.stop();
    }
  },

  async topics(kafka, { topic, replicas }) {
    return connected(kafka.admin(), async (admin) => {
      const wanted = {
        topic,
        numPartitions: 2,
        replicationFactor: replicas,
        configEntries: [{ name: 'max.message.bytes', value: '2000000' }],
      };
      const created = await admin.createTopics({ topics: [wanted] });
      const createdAgain = await admin.createTopics({ topics: [wanted] });
      const { topics } = await admin.fetchTopicMetadata({ topics: [topic] });
      const configs = await admin.describeConfigs({
        includeSynonyms: false,
        resources: [{ type: ConfigResourceTypes.TOPIC, name: topic, configNames: ['max.message.bytes', 'cleanup.policy'] }],
      });
      await admin.createPartitions({ topicPartitions: [{ topic, count: 5 }] });
      let grown;
      await until(async () => {
        grown = await admin.fetchTopicMetadata({ topics: [topic] });
        return grown.topics[0].partitions.length === 5;
      });
      const value = Buffer.from('value').toString('base64');
      const offsets = await produce(kafka, topic, Array(3).fill({ partition: 1, key: null, value }));
      await admin.deleteTopicRecords({ topic, partitions: [{ partition: 1, offset: '2' }] });
      const ends = (await admin.fetchTopicOffsets(topic)).find(({ partition }) => partition === 1);
      const listed = (await admin.listTopics()).includes(topic);
      await admin.deleteTopics({ topics: [topic] });
      const listedAfter = await until(async () => !(await admin.listTopics()).includes(topic));
      return {
        created,
        createdAgain,
        replicas: topics[0].partitions.map((partition) => partition.replicas.length),
        configs: Object.fromEntries(
          configs.resources[0].configEntries.map(({ configName, configValue }) => [configName, configValue]),
        ),
        grown: grown.topics[0].partitions.length,
        offsets,
        ends: [Number(ends.low), Number(ends.high)],
        listed,
        listedAfter,
      };
    });
  },

  async groups(kafka, { topic, group }) {
    const value = Buffer.from('value').toString('base64');
    await produce(kafka, topic, Array(6).fill({ partition: 0, key: null, value }));
    const watched = new Watched();
    const read = async (count, then) => {
      const member = await new Member(kafka, watched, group, [topic]).start();
      try {
        await watched.until(() => member.failure || member.received.length >= count, `${count} records`);
        if (member.failure) throw member.failure;
        return await then(member);
      } finally {
        await member.stop();
      }
    };
    return connected(kafka.admin(), async (admin) => {
      const committed = async () => {
        const [found] = await admin.fetchOffsets({ groupId: group, topics: [topic] });
        return Number(found.partitions[0].offset);
      };
      const stateOf = async () => (await admin.describeGroups([group])).groups[0];
      const refused = async (work) => work().then(() => null, (error) => error.groups?.[0]?.error?.type ?? error.name);
      const stable = await read(6, async (member) => {
        await member.commit();
        const { state, protocolType, members } = await stateOf();
        return { state, protocolType, members: members.length, deletion: await refused(() => admin.deleteGroups([group])) };
      });
      const afterwards = (await stateOf()).state;
      const listed = (await admin.listGroups()).groups.some(({ groupId }) => groupId === group);
      const offsets = [await committed()];
      // What KafkaJS commits for "the beginning" is -2, as it is in ListOffsets; a broker keeps what it is given.
      await admin.resetOffsets({ groupId: group, topic, earliest: true });
      offsets.push(await committed());
      const received = await read(6, async (member) => member.received.map((record) => record.offset));
      const deleted = (await admin.deleteGroups([group])).map(({ groupId, errorCode }) => [groupId, errorCode]);
      const listedAfter = (await admin.listGroups()).groups.some(({ groupId }) => groupId === group);
      return { stable, afterwards, listed, offsets, received, deleted, listedAfter };
    });
  },
};

const main = async () => {
  const [name, text] = process.argv.slice(2);
  const { bootstrap, ...options } = JSON.parse(text === '-' ? require('fs').readFileSync(0, 'utf8') : text);
  await zstd.init();
  const kafka = new Kafka({
    clientId: 'interop-kafkajs',
    brokers: bootstrap.split(','),
    logLevel: logLevel.NOTHING,
    retry: { initialRetryTime: 50, maxRetryTime: 1000, retries: 10 },
  });
  const result = JSON.stringify(await scenarios[name](kafka, options));
  // Leaving before the pipe has taken everything would cut the line.
  await new Promise((resolve) => process.stdout.write(`${result}\n`, resolve));
};

main().then(
  () => process.exit(0),
  (error) => {
    console.error(error);
    process.exit(1);
  },
);
