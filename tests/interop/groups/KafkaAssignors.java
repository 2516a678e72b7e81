/*
 * The assignors of Apache Kafka's server, and the regular expressions that it subscribes with, without a server.
 *
 * A line in is a request, a line out its answer. Nothing that a line names has a blank in it.
 *
 *   assign NAME HOMOGENEOUS|HETEROGENEOUS TOPICS MEMBER MEMBER ...   ->  MEMBER=ASSIGNED MEMBER=ASSIGNED ...
 *   match EXPRESSION NAME NAME ...   (in hex, of UTF-8)              ->  a digit for each name, or "refused"
 *
 * TOPICS is ID:COUNT,ID:COUNT with 32 hexadecimal digits for an id; MEMBER is ID/INSTANCE/ID,ID/ASSIGNED, where a dash
 * stands for no instance, no topic or nothing that is assigned; ASSIGNED is ID:PARTITION:PARTITION,ID:PARTITION. Members
 * go through Kafka's assignors in the order of the line, and partitions in theirs.
 */

import com.google.re2j.Pattern;
import com.google.re2j.PatternSyntaxException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeSet;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.coordinator.group.api.assignor.ConsumerGroupPartitionAssignor;
import org.apache.kafka.coordinator.group.api.assignor.SubscribedTopicDescriber;
import org.apache.kafka.coordinator.group.api.assignor.SubscriptionType;
import org.apache.kafka.coordinator.group.assignor.RangeAssignor;
import org.apache.kafka.coordinator.group.assignor.UniformAssignor;
import org.apache.kafka.coordinator.group.modern.Assignment;
import org.apache.kafka.coordinator.group.modern.GroupSpecImpl;
import org.apache.kafka.coordinator.group.modern.MemberSubscriptionAndAssignmentImpl;

public class KafkaAssignors {
    static final Map<String, ConsumerGroupPartitionAssignor> ASSIGNORS =
        Map.of("range", new RangeAssignor(), "uniform", new UniformAssignor());

    record Topics(Map<Uuid, Integer> counts) implements SubscribedTopicDescriber {
        @Override public int numPartitions(Uuid topicId) { return counts.getOrDefault(topicId, -1); }
        @Override public Set<String> racksForPartition(Uuid topicId, int partition) { return Set.of(); }
    }

    static Uuid id(String hex) {
        return new Uuid(Long.parseUnsignedLong(hex.substring(0, 16), 16), Long.parseUnsignedLong(hex.substring(16), 16));
    }

    static String hex(Uuid id) {
        return String.format("%016x%016x", id.getMostSignificantBits(), id.getLeastSignificantBits());
    }

    static List<String> parts(String text) {
        return text.equals("-") ? List.of() : List.of(text.split(","));
    }

    static Map<Uuid, Set<Integer>> assigned(String text) {
        Map<Uuid, Set<Integer>> found = new LinkedHashMap<>();
        for (String topic : parts(text)) {
            String[] words = topic.split(":");
            Set<Integer> partitions = new TreeSet<>();
            for (int i = 1; i < words.length; i++) partitions.add(Integer.parseInt(words[i]));
            found.put(id(words[0]), partitions);
        }
        return Collections.unmodifiableMap(found);
    }

    static String assign(String[] words) {
        Map<Uuid, Integer> counts = new HashMap<>();
        for (String topic : parts(words[3])) counts.put(id(topic.split(":")[0]), Integer.parseInt(topic.split(":")[1]));
        Map<String, MemberSubscriptionAndAssignmentImpl> members = new LinkedHashMap<>();
        Map<Uuid, Map<Integer, String>> holders = new HashMap<>();
        for (int i = 4; i < words.length; i++) {
            String[] member = words[i].split("/");
            Set<Uuid> topics = new LinkedHashSet<>();
            for (String topic : parts(member[2])) topics.add(id(topic));
            Map<Uuid, Set<Integer>> held = assigned(member[3]);
            held.forEach((topic, partitions) -> partitions.forEach(partition ->
                holders.computeIfAbsent(topic, any -> new HashMap<>()).put(partition, member[0])));
            Optional<String> instance = member[1].equals("-") ? Optional.empty() : Optional.of(member[1]);
            members.put(member[0], new MemberSubscriptionAndAssignmentImpl(
                Optional.empty(), instance, topics, new Assignment(held)));
        }
        var group = new GroupSpecImpl(members, SubscriptionType.valueOf(words[2]), holders);
        var result = ASSIGNORS.get(words[1]).assign(group, new Topics(counts)).members();
        List<String> found = new ArrayList<>();
        result.forEach((member, assignment) -> {
            List<String> topics = new ArrayList<>();
            assignment.partitions().forEach((topic, partitions) -> {
                StringBuilder text = new StringBuilder(hex(topic));
                for (int partition : new TreeSet<>(partitions)) text.append(':').append(partition);
                if (!partitions.isEmpty()) topics.add(text.toString());
            });
            found.add(member + "=" + (topics.isEmpty() ? "-" : String.join(",", topics)));
        });
        return String.join(" ", found);
    }

    static String text(String hex) {
        return new String(HexFormat.of().parseHex(hex.equals("-") ? "" : hex), StandardCharsets.UTF_8);
    }

    static String match(String[] words) {
        Pattern pattern;
        try {
            pattern = Pattern.compile(text(words[1]));
        } catch (PatternSyntaxException error) {
            return "refused";
        }
        StringBuilder found = new StringBuilder();
        for (int i = 2; i < words.length; i++) found.append(pattern.matcher(text(words[i])).matches() ? '1' : '0');
        return found.toString();
    }

    public static void main(String[] arguments) throws Exception {
        Lines.answer(words -> words[0].equals("assign") ? assign(words) : match(words));
    }
}
