/*
 * A member of Apache Kafka's own client. Its job, and the lines that it writes, are described in worker.py.
 */

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

public class Member implements ConsumerRebalanceListener {
    static final Duration POLL = Duration.ofMillis(100);
    static final Duration COMMIT_LIMIT = Duration.ofSeconds(30);
    static volatile boolean over;

    final String job;
    final String name;
    final String group;
    final KafkaConsumer<byte[], byte[]> consumer;

    Member(String job) {
        this.job = job;
        Matcher who = Pattern.compile("\"members\": *\\[\\[\"([^\"]*)\", *\"([^\"]*)\"\\]\\]").matcher(job);
        if (!who.find()) throw new IllegalArgumentException("one member, and not " + job);
        name = who.group(1);
        group = who.group(2);
        boolean isClassic = text("protocol").equals("classic");
        Properties reading = new Properties();
        reading.put("bootstrap.servers", text("bootstrap"));
        reading.put("group.id", group);
        reading.put("client.id", name);
        reading.put("group.protocol", text("protocol"));
        reading.put("enable.auto.commit", "false");
        reading.put("auto.offset.reset", "earliest");
        reading.put("request.timeout.ms", "5000");
        reading.put("reconnect.backoff.max.ms", "500");
        if (isClassic) {
            reading.put("session.timeout.ms", millis("session_timeout_s"));
            reading.put("heartbeat.interval.ms", millis("heartbeat_interval_s"));
            reading.put("partition.assignment.strategy", "org.apache.kafka.clients.consumer.RangeAssignor");
        }
        consumer = new KafkaConsumer<>(reading, new ByteArrayDeserializer(), new ByteArrayDeserializer());
        consumer.subscribe(List.of(text("topic")), this);
    }

    String value(String pattern) {
        Matcher found = Pattern.compile(pattern).matcher(job);
        if (!found.find()) throw new IllegalArgumentException(pattern + " is not in " + job);
        return found.group(1);
    }

    String text(String key) {
        return value("\"" + key + "\": *\"([^\"]*)\"");
    }

    String millis(String key) {
        return String.valueOf((long) (1_000 * Double.parseDouble(value("\"" + key + "\": *([0-9.]+)"))));
    }

    static double now() {
        return System.nanoTime() / 1e9;
    }

    synchronized void say(String what, String rest) {
        System.out.print("{\"what\": \"" + what + "\", \"member\": \"" + name + "\", \"group\": \"" + group
            + "\", \"at\": " + now() + rest + "}\n");
        System.out.flush();
    }

    void tell(String what, Collection<TopicPartition> places) {
        List<Integer> numbers = places.stream().map(TopicPartition::partition).sorted().toList();
        say(what, ", \"partitions\": " + numbers);
    }

    @Override
    public void onPartitionsAssigned(Collection<TopicPartition> places) {
        tell("assigned", places);
    }

    @Override
    public void onPartitionsRevoked(Collection<TopicPartition> places) {
        tell("revoked", places);
    }

    @Override
    public void onPartitionsLost(Collection<TopicPartition> places) {
        tell("lost", places);
    }

    int generation() {
        return consumer.groupMetadata().generationId();
    }

    void work() {
        ConsumerRecords<byte[], byte[]> found = consumer.poll(POLL);
        List<String> handed = new ArrayList<>();
        for (TopicPartition place : found.partitions()) {
            List<ConsumerRecord<byte[], byte[]>> records = found.records(place);
            long last = records.get(records.size() - 1).offset();
            handed.add("\"" + place.partition() + "\": [" + records.get(0).offset() + ", " + last + "]");
        }
        if (!handed.isEmpty()) {
            say("handed", ", \"generation\": " + generation() + ", \"handed\": {" + String.join(", ", handed) + "}");
        }
        Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
        for (TopicPartition place : consumer.assignment()) {
            offsets.put(place, new OffsetAndMetadata(consumer.position(place)));
        }
        if (!offsets.isEmpty()) commit(offsets);
    }

    void commit(Map<TopicPartition, OffsetAndMetadata> offsets) {
        String line = ", \"generation\": " + generation() + ", \"began\": " + now();
        try {
            consumer.commitSync(offsets, COMMIT_LIMIT);
        } catch (KafkaException error) {
            say("refused", line + ", \"error\": \"" + error.getClass().getSimpleName() + "\"");
            return;
        }
        String rows = offsets.entrySet().stream()
            .map(one -> "\"" + one.getKey().partition() + "\": " + one.getValue().offset())
            .collect(Collectors.joining(", "));
        say("committed", line + ", \"committed\": {" + rows + "}");
    }

    public static void main(String[] none) throws IOException {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        Member member = new Member(in.readLine());
        Thread waiter = new Thread(() -> {
            try {
                while (in.read() >= 0) { }
            } catch (IOException error) {
                // It is over all the same.
            }
            over = true;
        });
        waiter.setDaemon(true);
        waiter.start();
        while (!over) {
            try {
                member.work();
            } catch (KafkaException error) {
                member.say("failed", ", \"error\": \"" + error.getClass().getSimpleName() + "\"");
            }
        }
        member.consumer.close();
    }
}
