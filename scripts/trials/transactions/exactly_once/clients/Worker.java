/*
 * The worker of Apache Kafka's own client. Its job, and the lines that it writes, are described in programs.py.
 */

import java.io.BufferedReader;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.AuthorizationException;
import org.apache.kafka.common.errors.InvalidProducerEpochException;
import org.apache.kafka.common.errors.OutOfOrderSequenceException;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.errors.UnsupportedVersionException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

public class Worker {
    static final int RECORDS_MAX = 100;
    static volatile boolean over;

    final String job;
    final String life;
    final String input;
    final String output;
    final String group;
    final long beganMs;
    final FileOutputStream history;
    final KafkaProducer<byte[], byte[]> producer;
    final KafkaConsumer<byte[], byte[]> consumer;
    final Map<Integer, Integer> sequences = new HashMap<>();
    final Set<Integer> onItsWay = new HashSet<>();
    int transactions;
    String name;

    Worker(String job) throws IOException {
        this.job = job;
        life = text("life");
        input = text("input");
        output = text("output");
        group = text("group");
        beganMs = Long.parseLong(value("\"began_ms\": *(\\d+)"));
        history = new FileOutputStream(text("history"), true);
        Properties sending = new Properties();
        sending.put("bootstrap.servers", text("bootstrap"));
        sending.put("transactional.id", text("name"));
        sending.put("transaction.timeout.ms", "10000");
        producer = new KafkaProducer<>(sending, new ByteArraySerializer(), new ByteArraySerializer());
        Properties reading = new Properties();
        reading.put("bootstrap.servers", text("bootstrap"));
        reading.put("group.id", group);
        reading.put("client.id", life);
        reading.put("isolation.level", "read_committed");
        reading.put("enable.auto.commit", "false");
        reading.put("auto.offset.reset", "earliest");
        reading.put("session.timeout.ms", "6000");
        reading.put("heartbeat.interval.ms", "500");
        reading.put("max.poll.records", String.valueOf(RECORDS_MAX));
        consumer = new KafkaConsumer<>(reading, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    String value(String pattern) {
        Matcher found = Pattern.compile(pattern).matcher(job);
        if (!found.find()) throw new IllegalArgumentException(pattern + " is not in " + job);
        return found.group(1);
    }

    String text(String key) {
        return value("\"" + key + "\": *\"([^\"]*)\"");
    }

    /** Writes a line with one write, so that no other process' line comes between. */
    synchronized void tell(String line) throws IOException {
        history.write(("\n" + line + "\n").getBytes(StandardCharsets.UTF_8));
    }

    String at() {
        return ",\"at_ms\":" + (System.currentTimeMillis() - beganMs) + "}";
    }

    void end(String outcome) throws IOException {
        tell("{\"type\":\"ended\",\"transaction\":\"" + name + "\",\"outcome\":\"" + outcome + "\"" + at());
    }

    void ask(boolean commit) throws IOException {
        tell("{\"type\":\"ending\",\"transaction\":\"" + name + "\",\"commit\":" + commit + at());
    }

    record Sent(int partition, int sequence, Future<RecordMetadata> future) {}

    Sent send(ConsumerRecord<byte[], byte[]> record) throws IOException {
        int partition = record.partition();
        if (onItsWay.add(partition)) {
            tell("{\"type\":\"position\",\"consumer\":\"" + life + "\",\"partition\":\"" + input + "-" + partition
                + "\",\"offset\":" + record.offset() + "}");
        }
        String[] words = new String(record.value(), StandardCharsets.ISO_8859_1).split(" ", 3);
        tell("{\"type\":\"consumed\",\"consumer\":\"" + life + "\",\"partition\":\"" + input + "-" + partition
            + "\",\"offset\":" + record.offset() + ",\"producer\":\"" + words[0] + "\",\"sequence\":" + words[1]
            + ",\"transaction\":\"" + name + "\"}");
        int sequence = sequences.merge(partition, 1, Integer::sum) - 1;
        tell("{\"type\":\"invoked\",\"producer\":\"" + life + "\",\"partition\":\"" + output + "-" + partition
            + "\",\"sequence\":" + sequence + ",\"transaction\":\"" + name + "\"}");
        String value = life + " " + sequence + " from " + input + "-" + partition + "@" + record.offset();
        byte[] bytes = value.getBytes(StandardCharsets.UTF_8);
        return new Sent(partition, sequence, producer.send(new ProducerRecord<>(output, partition, null, bytes)));
    }

    /** Works off some records in the transaction that has begun, up to the question for its commit. */
    void copy(ConsumerRecords<byte[], byte[]> records) throws Exception {
        List<Sent> sent = new ArrayList<>();
        for (ConsumerRecord<byte[], byte[]> record : records) sent.add(send(record));
        producer.flush();
        for (Sent one : sent) {
            RecordMetadata found;
            try {
                found = one.future.get();
            } catch (ExecutionException error) {
                throw error.getCause() instanceof KafkaException cause ? cause : error;
            }
            tell("{\"type\":\"acknowledged\",\"producer\":\"" + life + "\",\"partition\":\"" + output + "-"
                + one.partition + "\",\"sequence\":" + one.sequence
                + (found.hasOffset() ? ",\"offset\":" + found.offset() : "") + "}");
        }
        Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
        for (TopicPartition place : records.partitions()) {
            List<ConsumerRecord<byte[], byte[]>> found = records.records(place);
            long start = found.get(0).offset();
            long stop = found.get(found.size() - 1).offset() + 1;
            offsets.put(place, new OffsetAndMetadata(stop));
            tell("{\"type\":\"offset_sent\",\"transaction\":\"" + name + "\",\"group\":\"" + group
                + "\",\"partition\":\"" + input + "-" + place.partition() + "\",\"start\":" + start
                + ",\"offset\":" + stop + "}");
        }
        producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata());
    }

    void commit() throws IOException {
        ask(true);
        while (true) {
            try {
                producer.commitTransaction();
                end("committed");
                return;
            } catch (TimeoutException error) {
                // It may be asked for again, and nothing else may be done.
                System.out.println("again: " + error);
            }
        }
    }

    void abort() throws IOException {
        ask(false);
        while (true) {
            try {
                producer.abortTransaction();
                end("aborted");
                return;
            } catch (TimeoutException error) {
                System.out.println("again: " + error);
            }
        }
    }

    void goToCommitted() {
        Collection<TopicPartition> places = consumer.assignment();
        Map<TopicPartition, OffsetAndMetadata> found = consumer.committed(new HashSet<>(places));
        onItsWay.clear();
        for (TopicPartition place : places) {
            OffsetAndMetadata offset = found.get(place);
            consumer.seek(place, offset == null ? 0 : offset.offset());
        }
    }

    void work() throws Exception {
        producer.initTransactions();
        tell("{\"type\":\"consumer\",\"consumer\":\"" + life + "\",\"read_committed\":true}");
        consumer.subscribe(List.of(input), new ConsumerRebalanceListener() {
            @Override public void onPartitionsRevoked(Collection<TopicPartition> places) { }

            @Override public void onPartitionsAssigned(Collection<TopicPartition> places) {
                for (TopicPartition place : places) onItsWay.remove(place.partition());
            }
        });
        while (!over) {
            ConsumerRecords<byte[], byte[]> records = consumer.poll(Duration.ofMillis(300));
            if (records.isEmpty()) continue;
            name = life + "/" + ++transactions;
            tell("{\"type\":\"begun\",\"transaction\":\"" + name + "\"" + at());
            producer.beginTransaction();
            try {
                copy(records);
                commit();
            } catch (ProducerFencedException | InvalidProducerEpochException | OutOfOrderSequenceException
                     | UnsupportedVersionException | AuthorizationException error) {
                end("fenced");
                throw error;
            } catch (KafkaException error) {
                System.out.println("again: " + error);
                abort();
                goToCommitted();
            }
        }
        consumer.close();
        producer.close();
    }

    public static void main(String[] arguments) throws Exception {
        BufferedReader told = new BufferedReader(new InputStreamReader(System.in));
        Worker worker = new Worker(told.readLine());
        Thread waiting = new Thread(() -> {
            try {
                while (told.readLine() != null) { }
            } catch (IOException error) {
                // The same as the end.
            }
            over = true;
        });
        waiting.setDaemon(true);
        waiting.start();
        try {
            worker.work();
        } catch (Exception error) {
            error.printStackTrace(System.out);
            System.out.println(error);
            System.out.flush();
            Runtime.getRuntime().halt(3);
        }
    }
}
