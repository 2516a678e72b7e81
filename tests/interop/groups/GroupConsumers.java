/*
 * Apache Kafka's consumers in groups, told by lines what to do.
 *
 * A line in is a command and the name of a consumer; a line out is "ok" and what was asked for in JSON, or "error" and
 * the exception. The first argument is where the brokers are.
 */

import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;
import java.util.stream.StreamSupport;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.SubscriptionPattern;
import org.apache.kafka.common.serialization.StringDeserializer;

public class GroupConsumers {
    static final Map<String, KafkaConsumer<String, String>> consumers = new HashMap<>();
    static String bootstrap;

    public static void main(String[] arguments) throws Exception {
        bootstrap = arguments[0];
        Lines.obey(GroupConsumers::obey, problem -> "error");
    }

    static String obey(String[] words) {
        var consumer = consumers.get(words[1]);
        switch (words[0]) {
            case "open" -> consumers.put(words[1], open(words[2], words[3], words[4], words[5]));
            case "poll" -> {
                var found = consumer.poll(Duration.ofMillis(Long.parseLong(words[2])));
                return StreamSupport.stream(found.spliterator(), false)
                    .map(one -> "[\"%s\", %d, %d, %d, \"%s\"]".formatted(
                        one.topic(), one.partition(), one.offset(), one.timestamp(), one.value()))
                    .collect(Collectors.joining(", ", "[", "]"));
            }
            case "assignment" -> {
                return consumer.assignment().stream()
                    .map(one -> "[\"%s\", %d]".formatted(one.topic(), one.partition()))
                    .collect(Collectors.joining(", ", "[", "]"));
            }
            case "commit" -> consumer.commitSync();
            case "close" -> consumers.remove(words[1]).close();
            default -> throw new IllegalArgumentException(words[0]);
        }
        return "null";
    }

    /** Makes a consumer. `kind` is "names", or "pattern" if what it reads is an expression. */
    static KafkaConsumer<String, String> open(String group, String protocol, String kind, String topics) {
        Map<String, Object> settings = new HashMap<>(Map.of("bootstrap.servers", bootstrap, "group.id", group,
            "group.protocol", protocol, "enable.auto.commit", false, "auto.offset.reset", "earliest",
            "fetch.max.wait.ms", 100));
        if (protocol.equals("classic")) {
            settings.put("heartbeat.interval.ms", 200);
        }
        var consumer = new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
        if (kind.equals("pattern")) {
            consumer.subscribe(new SubscriptionPattern(topics));
        } else {
            consumer.subscribe(List.of(topics.split(",")));
        }
        return consumer;
    }
}
