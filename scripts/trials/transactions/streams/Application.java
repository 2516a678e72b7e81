/*
 * A Kafka Streams application: two topics in, tumbling, hopping and session windows, totals and a join out of them.
 *
 * Each argument is a setting, name=value, and goes to Kafka Streams. It runs until SIGTERM; any error that Kafka
 * Streams does not deal with by itself ends the process with status 1. Its lines: "state" and the state it is in,
 * "restored", a state store and how many records of its changelog came back.
 *
 * An order is a record of a customer, its value "id item amount serial"; a payment one of an order's id, "serial". Orders
 * of the customers end-0, end-1, ... only move the time on.
 */

import java.time.Duration;
import java.util.Properties;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.SessionWindows;
import org.apache.kafka.streams.kstream.StreamJoined;
import org.apache.kafka.streams.kstream.Suppressed;
import org.apache.kafka.streams.kstream.Suppressed.BufferConfig;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.processor.StateRestoreListener;
import org.apache.kafka.streams.state.WindowStore;

public class Application {
    static final Duration LATE = Duration.ofMinutes(1); // of one partition, whose order is known
    static final Duration ANY_TIME = Duration.ofDays(1); // of what several partitions brought, in any order

    public static void main(String[] arguments) {
        var settings = new Properties();
        for (String argument : arguments) {
            String[] parts = argument.split("=", 2);
            settings.put(parts[0], parts[1]);
        }
        settings.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        settings.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        var builder = new StreamsBuilder();
        build(builder);
        var streams = new KafkaStreams(builder.build(), settings);
        streams.setStateListener((now, before) -> say("state", now));
        streams.setGlobalStateRestoreListener(new Restored());
        streams.setUncaughtExceptionHandler(error -> {
            error.printStackTrace();
            Runtime.getRuntime().halt(1);
            return StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
        });
        Runtime.getRuntime().addShutdownHook(new Thread(streams::close));
        streams.start();
    }

    static void build(StreamsBuilder builder) {
        KStream<String, String> all = builder.stream("orders");
        KStream<String, String> payments = builder.stream("payments");
        KStream<String, String> orders = all.filter((customer, order) -> !customer.startsWith("end-"));

        // A result for each window, once it is over.
        publish("tumbling", all.groupByKey()
            .windowedBy(TimeWindows.ofSizeAndGrace(Duration.ofSeconds(10), LATE))
            .aggregate(Application::nothing, Application::add,
                Materialized.<String, String, WindowStore<Bytes, byte[]>>as("tumbling")
                    .withKeySerde(Serdes.String()).withValueSerde(Serdes.String()))
            .suppress(Suppressed.untilWindowCloses(BufferConfig.unbounded()).withName("tumbling-until-over")));
        // A result for each record: caches are off.
        publish("hopping", orders.groupBy((customer, order) -> word(order, 1), Grouped.as("by-item"))
            .windowedBy(TimeWindows.ofSizeAndGrace(Duration.ofSeconds(30), ANY_TIME).advanceBy(Duration.ofSeconds(10)))
            .aggregate(Application::nothing, Application::add, Materialized.as("hopping")));
        orders.groupByKey()
            .windowedBy(SessionWindows.ofInactivityGapAndGrace(Duration.ofSeconds(5), ANY_TIME))
            .aggregate(Application::nothing, Application::add, Application::merge, Materialized.as("sessions"))
            .toStream((session, state) ->
                session.key() + "@" + session.window().start() + "-" + session.window().end())
            .to("sessions");
        orders.groupByKey().aggregate(Application::nothing, Application::add, Materialized.as("totals"))
            .toStream().to("totals");
        orders.selectKey((customer, order) -> word(order, 0))
            .join(payments, (order, payment) -> word(order, 3) + " " + payment,
                JoinWindows.ofTimeDifferenceAndGrace(Duration.ofSeconds(30), ANY_TIME),
                StreamJoined.<String, String, String>as("joined").withName("by-order"))
            .to("joined");
    }

    static void publish(String topic, KTable<Windowed<String>, String> results) {
        results.toStream((window, state) -> window.key() + "@" + window.window().start()).to(topic);
    }

    // The state: how many orders, and the sum of their amounts.

    static String nothing() {
        return "0 0";
    }

    static String add(String key, String order, String state) {
        return merge(key, "1 " + word(order, 2), state);
    }

    static String merge(String key, String one, String other) {
        long count = Long.parseLong(word(one, 0)) + Long.parseLong(word(other, 0));
        long sum = Long.parseLong(word(one, 1)) + Long.parseLong(word(other, 1));
        return count + " " + sum;
    }

    static String word(String text, int number) {
        return text.split(" ")[number];
    }

    static synchronized void say(Object... words) {
        var line = new StringBuilder();
        for (Object word : words) {
            line.append(word).append(' ');
        }
        System.out.println(line.toString().strip());
        System.out.flush();
    }

    static class Restored implements StateRestoreListener {
        @Override public void onRestoreStart(TopicPartition changelog, String store, long from, long to) {}

        @Override public void onBatchRestored(TopicPartition changelog, String store, long to, long count) {}

        @Override public void onRestoreEnd(TopicPartition changelog, String store, long count) {
            say("restored", store, count);
        }
    }
}
