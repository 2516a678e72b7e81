/*
 * Apache Kafka's own transaction coordinator, for one transactional id, without a broker around it.
 *
 * A line in is a request, a line out what it was answered: the code, a producer id and epoch, and the record of what
 * is committed, in hex (a dash: none). The log commits at once, and markers are written when the line "mark" says so.
 * What Kafka's classes would do around the decisions, to append and to send, is replaced; their constructors are left
 * out, because they want a whole broker.
 */

import java.lang.reflect.Field;
import java.lang.reflect.Proxy;
import java.nio.ByteBuffer;
import java.util.HashSet;
import java.util.HexFormat;
import java.util.List;
import java.util.Set;
import kafka.coordinator.transaction.TransactionCoordinator;
import kafka.coordinator.transaction.TransactionMarkerChannelManager;
import kafka.coordinator.transaction.TransactionStateManager;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.requests.TransactionResult;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.common.utils.internals.LogContext;
import org.apache.kafka.common.utils.internals.ProducerIdAndEpoch;
import org.apache.kafka.coordinator.transaction.CoordinatorEpochAndTxnMetadata;
import org.apache.kafka.coordinator.transaction.ProducerIdManager;
import org.apache.kafka.coordinator.transaction.TransactionConfig;
import org.apache.kafka.coordinator.transaction.TransactionLog;
import org.apache.kafka.coordinator.transaction.TransactionMetadata;
import org.apache.kafka.coordinator.transaction.TransactionState;
import org.apache.kafka.coordinator.transaction.TransactionalIdAndProducerIdEpoch;
import org.apache.kafka.coordinator.transaction.TxnTransitMetadata;
import org.apache.kafka.server.common.RequestLocal;
import org.apache.kafka.server.common.TransactionVersion;
import scala.Function0;
import scala.Function1;
import scala.Option;
import scala.jdk.javaapi.CollectionConverters;
import scala.runtime.BoxedUnit;
import scala.util.Either;
import scala.util.Right;

public class KafkaCoordinator {
    static final String ID = "t";
    static final int TIMEOUT_MS = 60_000;
    static final long NOW_MS = 1_000;

    static TransactionMetadata metadata;  // null: the transactional id is not known
    static TxnTransitMetadata completing; // what is committed once the markers are written
    static TransactionVersion level;
    static long nextProducerId;
    static String answer;

    public static class States extends TransactionStateManager {
        States() { super(0, null, null, null, null, null, null); }

        @Override public TransactionVersion transactionVersionLevel() { return level; }
        @Override public boolean isTransaction2pcEnabled() { return false; }
        @Override public boolean validateTransactionTimeoutMs(boolean twoPhase, int timeoutMs) { return true; }
        @Override public int partitionFor(String id) { return 0; }

        @Override public Either<Errors, Option<CoordinatorEpochAndTxnMetadata>> getTransactionState(String id) {
            return new Right<>(metadata == null ? Option.empty() : Option.apply(found()));
        }

        @Override public Either<Errors, CoordinatorEpochAndTxnMetadata> putTransactionStateIfNotExists(
                TransactionMetadata created) {
            metadata = created;
            return new Right<>(found());
        }

        @Override public scala.collection.Iterable<TransactionalIdAndProducerIdEpoch> timedOutTransactions() {
            return CollectionConverters.asScala(List.of(
                new TransactionalIdAndProducerIdEpoch(ID, metadata.producerId(), metadata.producerEpoch())));
        }

        @Override public void appendTransactionToLog(String id, int term, TxnTransitMetadata step,
                Function1<Errors, BoxedUnit> done, Function1<Errors, Object> retries, RequestLocal local) {
            metadata.completeTransitionTo(step);
            done.apply(Errors.NONE);
        }

        private CoordinatorEpochAndTxnMetadata found() { return new CoordinatorEpochAndTxnMetadata(1, metadata); }
    }

    public static class Markers extends TransactionMarkerChannelManager {
        Markers() { super(null, null, null, null, null); }

        @Override public void addTxnMarkersToSend(int term, TransactionResult result, TransactionMetadata prepared,
                TxnTransitMetadata complete) {
            completing = complete;
        }
    }

    public static void main(String[] arguments) throws Exception {
        Time time = (Time) Proxy.newProxyInstance(Time.class.getClassLoader(), new Class<?>[] {Time.class},
            (self, method, given) -> method.getName().equals("milliseconds") ? NOW_MS : null);
        ProducerIdManager ids = () -> nextProducerId++;
        Function0<ProducerIdManager> makeIds = () -> ids;
        var settings = new TransactionConfig(1, TIMEOUT_MS, 16, (short) 1, 1, 1, 1, 1, 1, false, 1);
        var coordinator = new TransactionCoordinator(settings, null, makeIds, make(States.class), make(Markers.class),
            time, new LogContext(""));
        Lines.answer(words -> {
            answer = "- -1 -1";
            obey(coordinator, words);
            return answer + " " + committed();
        });
    }

    static void obey(TransactionCoordinator coordinator, String[] words) throws Exception {
        RequestLocal local = RequestLocal.noCaching();
        long id = words.length > 2 ? Long.parseLong(words[1]) : -1;
        short epoch = words.length > 2 ? Short.parseShort(words[2]) : -1;
        switch (words[0]) {
            case "begin" -> begin(id, epoch, Short.parseShort(words[3]));
            case "initialize" -> coordinator.handleInitProducerId(ID, TIMEOUT_MS, false, false,
                id < 0 ? Option.empty() : Option.apply(new ProducerIdAndEpoch(id, epoch)),
                result -> tell(result.error(), result.producerId(), result.producerEpoch()), local);
            case "add" -> coordinator.handleAddPartitionsToTransaction(ID, id, epoch, partitions(words[4]),
                code -> tell(code, -1, (short) -1), version(words[3]), local);
            case "verify" -> coordinator.handleVerifyPartitionsInTransaction(ID, id, epoch, partitions(words[3]),
                result -> tell(Errors.forCode(result.topicResults().iterator().next().resultsByPartition().iterator()
                    .next().partitionErrorCode()), -1, (short) -1));
            case "end" -> coordinator.handleEndTransaction(ID, id, epoch,
                words[4].equals("commit") ? TransactionResult.COMMIT : TransactionResult.ABORT, version(words[3]),
                (code, nextId, nextEpoch) -> tell(code, (Long) nextId, (Short) nextEpoch), local);
            case "time-out" -> coordinator.abortTimedOutTransactions(one -> (code, nextId, nextEpoch) -> BoxedUnit.UNIT);
            case "mark" -> {
                metadata.completeTransitionTo(completing);
                completing = null;
            }
            case "move" -> move();
            default -> throw new IllegalArgumentException(words[0]);
        }
    }

    static void begin(long id, short epoch, short atLevel) {
        level = TransactionVersion.fromFeatureLevel(atLevel);
        nextProducerId = 100;
        completing = null;
        metadata = id < 0 ? null : new TransactionMetadata(ID, id, id, -1, epoch, (short) -1, TIMEOUT_MS,
            TransactionState.EMPTY, new HashSet<>(), -1, NOW_MS, TransactionVersion.TV_0);
    }

    /** Goes on from the record, as a broker does that begins to coordinate. */
    static void move() throws Exception {
        var record = (TransactionLog.TxnRecord) TransactionLog.read(
            ByteBuffer.wrap(TransactionLog.keyToBytes(ID)), ByteBuffer.wrap(record()));
        metadata = record.metadata();
        boolean isPrepared = Set.of(TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)
            .contains(metadata.state());
        completing = isPrepared ? metadata.prepareComplete(NOW_MS) : null;
    }

    static BoxedUnit tell(Errors code, long id, short epoch) {
        answer = code.name() + " " + id + " " + epoch;
        return BoxedUnit.UNIT;
    }

    static String committed() throws Exception {
        return metadata == null || metadata.producerEpoch() < 0 ? "-" : HexFormat.of().formatHex(record());
    }

    static byte[] record() throws Exception {
        Field next = TransactionMetadata.class.getDeclaredField("nextProducerId");
        next.setAccessible(true);
        return TransactionLog.valueToBytes(new TxnTransitMetadata(metadata.producerId(), metadata.prevProducerId(),
            next.getLong(metadata), metadata.producerEpoch(), metadata.lastProducerEpoch(), metadata.txnTimeoutMs(),
            metadata.state(), new HashSet<>(metadata.topicPartitions()), metadata.txnStartTimestamp(),
            metadata.txnLastUpdateTimestamp(), metadata.clientTransactionVersion()), TransactionVersion.TV_2);
    }

    static Set<TopicPartition> partitions(String numbers) {
        Set<TopicPartition> partitions = new HashSet<>();
        for (String number : numbers.split(",")) {
            partitions.add(new TopicPartition("a", Integer.parseInt(number)));
        }
        return partitions;
    }

    static TransactionVersion version(String featureLevel) {
        return TransactionVersion.fromFeatureLevel(Short.parseShort(featureLevel));
    }

    /** Returns an instance of which no constructor has run. */
    static <T> T make(Class<T> kind) throws Exception {
        Field field = sun.misc.Unsafe.class.getDeclaredField("theUnsafe");
        field.setAccessible(true);
        return kind.cast(((sun.misc.Unsafe) field.get(null)).allocateInstance(kind));
    }
}
