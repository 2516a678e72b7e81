/*
 * Apache Kafka's own reader and writer of the offsets topic's records.
 *
 * A line in is a record, its key and its value in hex; a line out is the same record as Kafka writes what it has read.
 */

import java.nio.ByteBuffer;
import java.util.HexFormat;
import org.apache.kafka.coordinator.group.GroupCoordinatorRecordSerde;

public class KafkaGroupRecords {
    public static void main(String[] arguments) throws Exception {
        var hex = HexFormat.of();
        var records = new GroupCoordinatorRecordSerde();
        Lines.answer(words -> {
            var key = ByteBuffer.wrap(hex.parseHex(words[0]));
            var value = ByteBuffer.wrap(hex.parseHex(words[1]));
            var record = records.deserialize(key, value);
            var key_again = hex.formatHex(records.serializeKey(record));
            return key_again + " " + hex.formatHex(records.serializeValue(record));
        });
    }
}
