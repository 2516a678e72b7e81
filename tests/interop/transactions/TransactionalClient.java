/*
 * Apache Kafka's transactional producer and consumer of committed records, told by lines what to do.
 *
 * A line in is a command; a line out is "ok" and what was asked for, or "fenced" or "error" and the exception. A
 * producer goes by the name that "open" gives it.
 */

import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.InvalidProducerEpochException;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

public class TransactionalClient {
    static final Map<String, KafkaProducer<String, String>> producers = new HashMap<>();
    static String bootstrap;

    public static void main(String[] arguments) throws Exception {
        bootstrap = arguments[0];
        Lines.obey(TransactionalClient::obey, problem -> isFenced(problem) ? "fenced" : "error");
    }

    static boolean isFenced(Throwable problem) {
        return problem instanceof ProducerFencedException || problem instanceof InvalidProducerEpochException
            || (problem != null && isFenced(problem.getCause()));
    }

    static String obey(String[] words) throws Exception {
        var producer = words.length > 1 ? producers.get(words[1]) : null;
        switch (words[0]) {
            case "open" -> {
                producer = open(words[2]);
                producers.put(words[1], producer);
            }
            case "begin" -> producer.beginTransaction();
            case "send" -> {
                var sent = producer.send(new ProducerRecord<>(words[2], 0, null, words[3]));
                producer.flush();
                sent.get();
            }
            case "commit" -> producer.commitTransaction();
            case "abort" -> producer.abortTransaction();
            case "close" -> producers.remove(words[1]).close(Duration.ZERO);
            case "copy" -> copy(words[1], words[2], words[3], words[4], Integer.parseInt(words[5]));
            case "read" -> {
                return read(words[1], Integer.parseInt(words[2]));
            }
            default -> throw new IllegalArgumentException(words[0]);
        }
        return "";
    }

    static KafkaProducer<String, String> open(String transactionalId) {
        var producer = new KafkaProducer<String, String>(
            Map.of("bootstrap.servers", bootstrap, "transactional.id", transactionalId, "linger.ms", 0),
            new StringSerializer(), new StringSerializer());
        producer.initTransactions();
        return producer;
    }

    static KafkaConsumer<String, String> consumer(Map<String, Object> more) {
        var settings = new HashMap<String, Object>(Map.of("bootstrap.servers", bootstrap, "isolation.level",
            "read_committed", "enable.auto.commit", false, "auto.offset.reset", "earliest", "max.poll.records", 4));
        settings.putAll(more);
        return new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
    }

    /** Copies in capitals: each answer of poll in a transaction, of which the first is aborted. */
    static void copy(String transactionalId, String group, String source, String target, int count) throws Exception {
        boolean hasAborted = false;
        try (var producer = open(transactionalId); var consumer = consumer(Map.of("group.id", group))) {
            consumer.subscribe(List.of(source));
            for (int copied = 0; copied < count; ) {
                var records = consumer.poll(Duration.ofMillis(500));
                if (records.isEmpty()) {
                    continue;
                }
                producer.beginTransaction();
                long next = 0;
                for (ConsumerRecord<String, String> record : records) {
                    producer.send(new ProducerRecord<>(target, 0, null, record.value().toUpperCase()));
                    next = record.offset() + 1;
                }
                producer.sendOffsetsToTransaction(
                    Map.of(new TopicPartition(source, 0), new OffsetAndMetadata(next)), consumer.groupMetadata());
                if (hasAborted) {
                    producer.commitTransaction();
                    copied += records.count();
                } else {
                    producer.flush();
                    producer.abortTransaction();
                    consumer.seekToBeginning(consumer.assignment());
                    hasAborted = true;
                }
            }
        }
    }

    static String read(String topic, int count) {
        List<String> values = new ArrayList<>();
        try (var consumer = consumer(Map.of())) {
            consumer.assign(List.of(new TopicPartition(topic, 0)));
            consumer.seekToBeginning(consumer.assignment());
            while (values.size() < count) {
                consumer.poll(Duration.ofMillis(500)).forEach(record -> values.add(record.value()));
            }
        }
        return String.join(" ", values);
    }
}
