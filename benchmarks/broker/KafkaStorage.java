import java.io.BufferedReader;
import java.io.File;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.util.Map;
import java.util.Optional;
import java.util.Random;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.FileRecords;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MemoryRecordsBuilder;
import org.apache.kafka.common.record.internal.MutableRecordBatch;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.storage.log.FetchIsolation;
import org.apache.kafka.server.util.KafkaScheduler;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

/**
 * Kafka's storage module alone, in one JVM: no broker, no network. For each line of its input, which is the directory of a
 * partition that does not exist yet, it appends records to a new log there, reads them again, and prints both times in seconds.
 *
 * Arguments: how many records. Each has a key of 8 bytes and a value of 100; they are in memory before the time begins.
 */
public final class KafkaStorage {
    private static final int BATCH_BYTES = 128 * 1024;
    private static final int FETCH_BYTES = 1024 * 1024; // a consumer's max.partition.fetch.bytes
    private static final int DISTINCT = 100_000; // values that take turns
    private static final long FIRST_TIMESTAMP = 1_700_000_000_000L;

    private final byte[][] keys = new byte[DISTINCT][8];
    private final byte[][] values = new byte[DISTINCT][100];
    private final KafkaScheduler scheduler = new KafkaScheduler(1);
    private final ByteBuffer batch = ByteBuffer.allocate(BATCH_BYTES);

    private KafkaStorage() {
        Random random = new Random(0);
        for (int number = 0; number < DISTINCT; number++) {
            random.nextBytes(keys[number]);
            random.nextBytes(values[number]);
        }
        scheduler.startup();
    }

    public static void main(String[] arguments) throws Exception {
        int count = Integer.parseInt(arguments[0]);
        KafkaStorage storage = new KafkaStorage();
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        System.out.println("ready");
        for (String directory = input.readLine(); directory != null; directory = input.readLine()) {
            UnifiedLog log = storage.open(new File(directory));
            long began = System.nanoTime();
            storage.append(log, count);
            long appended = System.nanoTime();
            long found = storage.scan(log);
            long scanned = System.nanoTime();
            log.close();
            if (found != count) {
                throw new IllegalStateException("appended " + count + ", found " + found);
            }
            System.out.println((appended - began) / 1e9 + " " + (scanned - appended) / 1e9);
        }
        storage.scheduler.shutdown();
    }

    private UnifiedLog open(File directory) throws IOException {
        if (!directory.mkdirs()) {
            throw new IOException("cannot make " + directory);
        }
        return UnifiedLog.create(directory, new LogConfig(Map.of()), 0, 0, scheduler, new BrokerTopicStats(), Time.SYSTEM,
            15 * 60 * 1000, new ProducerStateManagerConfig(86_400_000, false), 600_000, new LogDirFailureChannel(1), true,
            Optional.empty());
    }

    /** Builds batches as a producer does, and appends each as a leader does: checked, numbered, indexed, not flushed. */
    private void append(UnifiedLog log, int count) throws IOException {
        int number = 0;
        while (number < count) {
            batch.clear();
            MemoryRecordsBuilder builder =
                MemoryRecords.builder(batch, Compression.NONE, TimestampType.CREATE_TIME, 0);
            while (number < count) {
                byte[] key = keys[number % DISTINCT];
                byte[] value = values[number % DISTINCT];
                if (!builder.hasRoomFor(FIRST_TIMESTAMP + number, key, value, Record.EMPTY_HEADERS)) {
                    break;
                }
                builder.append(FIRST_TIMESTAMP + number, key, value);
                number++;
            }
            log.appendAsLeader(builder.build(), 0);
        }
    }

    /** Reads as a consumer does: fetches, checks each batch, takes key, value, offset and timestamp of each record. */
    private long scan(UnifiedLog log) throws IOException {
        ByteBuffer buffer = ByteBuffer.allocate(FETCH_BYTES + BATCH_BYTES);
        long offset = 0;
        long count = 0;
        long sum = 0;
        while (offset < log.logEndOffset()) {
            FileRecords fetched = (FileRecords) log.read(offset, FETCH_BYTES, FetchIsolation.LOG_END, true).records;
            buffer.clear();
            fetched.readInto(buffer, 0);
            for (MutableRecordBatch records : MemoryRecords.readableRecords(buffer).batches()) {
                records.ensureValid();
                for (Record record : records) {
                    byte[] key = new byte[record.keySize()];
                    byte[] value = new byte[record.valueSize()];
                    record.key().get(key);
                    record.value().get(value);
                    sum += record.offset() + record.timestamp() + key[0] + value[0];
                    count++;
                }
                offset = records.nextOffset();
            }
        }
        if (sum == 0) {
            throw new IllegalStateException("nothing was read"); // and nothing may be optimised away
        }
        return count;
    }
}
