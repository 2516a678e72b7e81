/*
 * Apache Kafka's own reader and writer of the offsets topic's records.
 *
 * A line in is a record, its key and its value in hex; a line out is the same record as Kafka writes what it has read.
 */

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.util.HexFormat;
import org.apache.kafka.coordinator.group.GroupCoordinatorRecordSerde;

public class KafkaGroupRecords {
    public static void main(String[] arguments) throws Exception {
        var hex = HexFormat.of();
        var records = new GroupCoordinatorRecordSerde();
        var lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            var words = line.split(" ");
            var key = ByteBuffer.wrap(hex.parseHex(words[0]));
            var value = ByteBuffer.wrap(hex.parseHex(words[1]));
            var record = records.deserialize(key, value);
            var key_again = hex.formatHex(records.serializeKey(record));
            System.out.println(key_again + " " + hex.formatHex(records.serializeValue(record)));
        }
    }
}
