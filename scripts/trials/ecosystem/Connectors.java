/*
 * Two connectors for Kafka Connect: a source that counts, and goes on where its offsets say, and a sink that prints.
 */

import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.connect.connector.Task;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.sink.SinkConnector;
import org.apache.kafka.connect.sink.SinkRecord;
import org.apache.kafka.connect.sink.SinkTask;
import org.apache.kafka.connect.source.ExactlyOnceSupport;
import org.apache.kafka.connect.source.SourceConnector;
import org.apache.kafka.connect.source.SourceRecord;
import org.apache.kafka.connect.source.SourceTask;

public class Connectors {
    static final int BATCH = 10;
    static final long PAUSE_MS = 50;
    static final Map<String, String> PARTITION = Map.of("source", "count");

    public static class Source extends SourceConnector {
        private Map<String, String> settings;

        @Override
        public void start(Map<String, String> settings) {
            this.settings = settings;
        }

        @Override
        public Class<? extends Task> taskClass() {
            return Counting.class;
        }

        @Override
        public List<Map<String, String>> taskConfigs(int tasks) {
            return List.of(settings);
        }

        @Override
        public ExactlyOnceSupport exactlyOnceSupport(Map<String, String> settings) {
            return ExactlyOnceSupport.SUPPORTED;
        }

        @Override
        public void stop() {
        }

        @Override
        public ConfigDef config() {
            return new ConfigDef();
        }

        @Override
        public String version() {
            return "1";
        }
    }

    public static class Counting extends SourceTask {
        private String topic;
        private long next;

        @Override
        public void start(Map<String, String> settings) {
            topic = settings.get("topic");
            var offset = context.offsetStorageReader().offset(PARTITION);
            next = offset == null ? 0 : (Long) offset.get("next");
        }

        @Override
        public List<SourceRecord> poll() throws InterruptedException {
            Thread.sleep(PAUSE_MS);
            var records = new ArrayList<SourceRecord>();
            for (int count = 0; count < BATCH; count++, next++) {
                records.add(new SourceRecord(PARTITION, Map.of("next", next + 1), topic, 0, Schema.INT64_SCHEMA, next));
            }
            return records;
        }

        @Override
        public void stop() {
        }

        @Override
        public String version() {
            return "1";
        }
    }

    public static class Sink extends SinkConnector {
        private Map<String, String> settings;

        @Override
        public void start(Map<String, String> settings) {
            this.settings = settings;
        }

        @Override
        public Class<? extends Task> taskClass() {
            return Printing.class;
        }

        @Override
        public List<Map<String, String>> taskConfigs(int tasks) {
            return List.of(settings);
        }

        @Override
        public void stop() {
        }

        @Override
        public ConfigDef config() {
            return new ConfigDef();
        }

        @Override
        public String version() {
            return "1";
        }
    }

    public static class Printing extends SinkTask {
        @Override
        public void start(Map<String, String> settings) {
        }

        @Override
        public void put(Collection<SinkRecord> records) {
            records.forEach(record -> System.out.println("{\"sunk\": " + record.value() + "}"));
        }

        @Override
        public void stop() {
        }

        @Override
        public String version() {
            return "1";
        }
    }
}
