/*
 * A job of Flink that copies a topic into another in transactions: `Copy BROKERS FROM TO GROUP FOLDER STRATEGY`. It
 * begins with the newest checkpoint that a killed one has left in the folder, and puts a record into the partition of
 * the number that it is.
 */

import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Comparator;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.serialization.SimpleStringSchema;
import org.apache.flink.configuration.CheckpointingOptions;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.configuration.ExternalizedCheckpointRetention;
import org.apache.flink.configuration.RestartStrategyOptions;
import org.apache.flink.configuration.StateRecoveryOptions;
import org.apache.flink.connector.base.DeliveryGuarantee;
import org.apache.flink.connector.kafka.sink.KafkaPartitioner;
import org.apache.flink.connector.kafka.sink.KafkaRecordSerializationSchema;
import org.apache.flink.connector.kafka.sink.KafkaSink;
import org.apache.flink.connector.kafka.sink.TransactionNamingStrategy;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;

public class Copy {
    static final int PARALLELISM = 2;
    static final Duration CHECKPOINTS = Duration.ofMillis(500);
    static final Duration TRANSACTIONS = Duration.ofMinutes(10);

    public static void main(String[] words) throws Exception {
        var settings = new Configuration();
        settings.set(CheckpointingOptions.CHECKPOINTING_INTERVAL, CHECKPOINTS);
        settings.set(CheckpointingOptions.CHECKPOINTS_DIRECTORY, Path.of(words[4]).toUri().toString());
        settings.set(
                CheckpointingOptions.EXTERNALIZED_CHECKPOINT_RETENTION,
                ExternalizedCheckpointRetention.RETAIN_ON_CANCELLATION);
        settings.set(RestartStrategyOptions.RESTART_STRATEGY, "fixed-delay");
        settings.set(RestartStrategyOptions.RESTART_STRATEGY_FIXED_DELAY_ATTEMPTS, 100);
        settings.set(RestartStrategyOptions.RESTART_STRATEGY_FIXED_DELAY_DELAY, Duration.ofSeconds(1));
        String newest = newest(Path.of(words[4]));
        System.out.println("begins with " + newest);
        if (newest != null) {
            settings.set(StateRecoveryOptions.SAVEPOINT_PATH, newest);
        }
        var environment = StreamExecutionEnvironment.createLocalEnvironment(PARALLELISM, settings);
        var source = KafkaSource.<String>builder()
                .setBootstrapServers(words[0])
                .setTopics(words[1])
                .setGroupId(words[3])
                .setStartingOffsets(OffsetsInitializer.earliest())
                .setProperty("isolation.level", "read_committed")
                .setValueOnlyDeserializer(new SimpleStringSchema())
                .build();
        KafkaPartitioner<String> remainder =
                (number, key, value, topic, partitions) -> partitions[Integer.parseInt(number) % partitions.length];
        var records = KafkaRecordSerializationSchema.<String>builder()
                .setTopic(words[2])
                .setPartitioner(remainder)
                .setValueSerializationSchema(new SimpleStringSchema())
                .build();
        var sink = KafkaSink.<String>builder()
                .setBootstrapServers(words[0])
                .setDeliveryGuarantee(DeliveryGuarantee.EXACTLY_ONCE)
                .setTransactionalIdPrefix(words[3])
                .setTransactionNamingStrategy(TransactionNamingStrategy.valueOf(words[5]))
                .setProperty("transaction.timeout.ms", Long.toString(TRANSACTIONS.toMillis()))
                .setRecordSerializer(records)
                .build();
        environment.fromSource(source, WatermarkStrategy.noWatermarks(), "source").sinkTo(sink);
        environment.execute("copy");
    }

    static String newest(Path folder) throws Exception {
        try (var files = Files.walk(folder)) {
            return files.filter(file -> file.endsWith("_metadata"))
                    .max(Comparator.comparing(file -> file.toFile().lastModified()))
                    .map(file -> file.getParent().toUri().toString())
                    .orElse(null);
        }
    }
}
