// A Kafka client for tests: one JVM that answers one JSON request a line.
//
// Request  {"op": "...", "bootstrap": "host:port", ...}   on stdin, one line each
// Answer   zero or more result lines, then {"done": true} or {"error": "..."}, on stdout
//
// Bytes travel as base64 strings, null as null. harness.py is the other side.

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

public class KafkaProbe {
    static final ObjectMapper JSON = new ObjectMapper();
    static final PrintStream OUT = System.out;
    static final Map<String, Admin> ADMINS = new HashMap<>();
    static final Map<String, KafkaConsumer<byte[], byte[]>> MEMBERS = new HashMap<>();

    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, "UTF-8"));
        for (String line; (line = in.readLine()) != null; ) {
            ObjectNode last = JSON.createObjectNode();
            try {
                serve(JSON.readTree(line));
                last.put("done", true);
            } catch (Throwable e) {
                Throwable cause = e instanceof java.util.concurrent.ExecutionException ? e.getCause() : e;
                last.put("error", cause.getClass().getSimpleName() + ": " + cause.getMessage());
            }
            OUT.println(last);
            OUT.flush();
        }
    }

    static void serve(JsonNode request) throws Exception {
        String bootstrap = request.get("bootstrap").asText();
        Admin admin = ADMINS.computeIfAbsent(bootstrap, b -> Admin.create(Map.of(
                "bootstrap.servers", b, "default.api.timeout.ms", "20000", "request.timeout.ms", "10000")));
        switch (request.get("op").asText()) {
            case "create-topic" -> createTopic(admin, request);
            case "delete-topic" -> admin.deleteTopics(List.of(request.get("topic").asText())).all().get();
            case "delete-records" -> deleteRecords(admin, request);
            case "offsets" -> offsets(admin, request);
            case "produce" -> produce(bootstrap, request);
            case "consume" -> consume(bootstrap, request);
            case "consume-in-group" -> consumeInGroup(bootstrap, request);
            case "commit" -> commit(admin, request);
            case "committed" -> committed(admin, request);
            default -> throw new IllegalArgumentException("unknown op " + request.get("op"));
        }
    }

    static void createTopic(Admin admin, JsonNode request) throws Exception {
        NewTopic topic = new NewTopic(request.get("topic").asText(), request.get("partitions").asInt(), (short) 1);
        admin.createTopics(List.of(topic.configs(strings(request.get("config"))))).all().get();
    }

    static void deleteRecords(Admin admin, JsonNode request) throws Exception {
        TopicPartition partition = new TopicPartition(request.get("topic").asText(), request.get("partition").asInt());
        admin.deleteRecords(Map.of(partition, RecordsToDelete.beforeOffset(request.get("before").asLong()))).all().get();
    }

    static void offsets(Admin admin, JsonNode request) throws Exception {
        String topic = request.get("topic").asText();
        var description = admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic);
        for (var info : description.partitions()) {
            TopicPartition partition = new TopicPartition(topic, info.partition());
            ObjectNode row = JSON.createObjectNode().put("partition", info.partition());
            row.put("start", admin.listOffsets(Map.of(partition, OffsetSpec.earliest())).partitionResult(partition).get().offset());
            row.put("end", admin.listOffsets(Map.of(partition, OffsetSpec.latest())).partitionResult(partition).get().offset());
            OUT.println(row);
        }
    }

    static void produce(String bootstrap, JsonNode request) throws Exception {
        Properties config = new Properties();
        config.put("bootstrap.servers", bootstrap);
        config.putAll(strings(request.get("config")));
        String topic = request.get("topic").asText();
        String transactional = config.getProperty("transactional.id");
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        try (var producer = new KafkaProducer<byte[], byte[]>(config, new ByteArraySerializer(), new ByteArraySerializer())) {
            if (transactional != null) {
                producer.initTransactions();
                producer.beginTransaction();
            }
            for (JsonNode row : request.get("records")) {
                Integer partition = row.get("partition").isNull() ? null : row.get("partition").asInt();
                Long timestamp = row.get("timestamp").isNull() ? null : row.get("timestamp").asLong();
                List<Header> headers = new ArrayList<>();
                for (JsonNode header : row.get("headers")) {
                    headers.add(new RecordHeader(header.get(0).asText(), bytes(header.get(1))));
                }
                sent.add(producer.send(new ProducerRecord<>(
                        topic, partition, timestamp, bytes(row.get("key")), bytes(row.get("value")), headers)));
            }
            producer.flush();
            for (Future<RecordMetadata> future : sent) {
                RecordMetadata metadata = future.get();
                OUT.println(JSON.createObjectNode().put("partition", metadata.partition())
                        .put("offset", metadata.offset()).put("timestamp", metadata.timestamp()));
            }
            if (transactional != null) {
                switch (request.get("transaction").asText()) {
                    case "commit" -> producer.commitTransaction();
                    case "abort" -> producer.abortTransaction();
                    default -> producer.close(Duration.ZERO);  // leave it open, as a crashed producer does
                }
            }
        }
    }

    static void consume(String bootstrap, JsonNode request) throws Exception {
        Map<String, Object> config = new HashMap<>(strings(request.get("config")));
        config.put("bootstrap.servers", bootstrap);
        config.put("isolation.level", request.get("isolation").asText());
        config.put("enable.auto.commit", "false");
        config.put("default.api.timeout.ms", request.get("timeout_ms").asText());
        String topic = request.get("topic").asText();
        long deadline = System.currentTimeMillis() + request.get("timeout_ms").asLong();
        try (var consumer = new KafkaConsumer<>(config, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            List<TopicPartition> all = new ArrayList<>();
            for (PartitionInfo info : consumer.partitionsFor(topic)) {
                all.add(new TopicPartition(topic, info.partition()));
            }
            Map<TopicPartition, Long> ends = consumer.endOffsets(all);
            consumer.assign(all);
            consumer.seekToBeginning(all);
            Set<TopicPartition> open = new HashSet<>(all);
            while (true) {
                open.removeIf(partition -> consumer.position(partition) >= ends.get(partition));
                if (open.isEmpty()) {
                    return;
                }
                if (System.currentTimeMillis() > deadline) {
                    throw new IllegalStateException("still short of the end: " + open + ", ends " + ends);
                }
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(200))) {
                    if (record.offset() < ends.get(new TopicPartition(topic, record.partition()))) {
                        OUT.println(row(record));
                    }
                }
            }
        }
    }

    /** Polls until `count` records have come, and once more, and commits. The member stays for the next request unless it leaves. */
    static void consumeInGroup(String bootstrap, JsonNode request) throws Exception {
        long deadline = System.currentTimeMillis() + request.get("timeout_ms").asLong();
        String member = request.get("group").asText() + "/" + request.get("member").asText();
        KafkaConsumer<byte[], byte[]> consumer = MEMBERS.computeIfAbsent(member, name -> {
            Map<String, Object> config = new HashMap<>(strings(request.get("config")));
            config.put("bootstrap.servers", bootstrap);
            config.put("group.id", request.get("group").asText());
            config.put("client.id", request.get("member").asText());
            config.put("enable.auto.commit", "false");
            config.put("auto.offset.reset", "earliest");
            var made = new KafkaConsumer<>(config, new ByteArrayDeserializer(), new ByteArrayDeserializer());
            made.subscribe(List.of(request.get("topic").asText()));
            return made;
        });
        for (int left = request.get("count").asInt(), last = 0; last == 0; ) {
            if (System.currentTimeMillis() > deadline) {
                throw new IllegalStateException("still short of " + left + " records, assigned " + consumer.assignment());
            }
            last = left <= 0 ? 1 : 0;
            for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(200))) {
                OUT.println(row(record));
                left--;
            }
        }
        consumer.commitSync();
        if (request.get("leave").asBoolean()) {
            MEMBERS.remove(member).close();
        }
    }

    static void commit(Admin admin, JsonNode request) throws Exception {
        Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
        request.get("offsets").properties().forEach(entry -> offsets.put(
                new TopicPartition(request.get("topic").asText(), Integer.parseInt(entry.getKey())),
                new OffsetAndMetadata(entry.getValue().asLong(), Optional.empty(), "")));
        admin.alterConsumerGroupOffsets(request.get("group").asText(), offsets).all().get();
    }

    static void committed(Admin admin, JsonNode request) throws Exception {
        var offsets = admin.listConsumerGroupOffsets(request.get("group").asText()).partitionsToOffsetAndMetadata().get();
        offsets.forEach((partition, offset) -> OUT.println(JSON.createObjectNode().put("topic", partition.topic())
                .put("partition", partition.partition()).put("offset", offset.offset()).put("metadata", offset.metadata())));
    }

    static ObjectNode row(ConsumerRecord<byte[], byte[]> record) {
        ObjectNode row = JSON.createObjectNode();
        row.put("partition", record.partition()).put("offset", record.offset());
        row.put("timestamp", record.timestamp()).put("timestamp_type", record.timestampType().name);
        row.put("key", text(record.key())).put("value", text(record.value()));
        row.put("leader_epoch", record.leaderEpoch().orElse(null));
        ArrayNode headers = row.putArray("headers");
        for (Header header : record.headers()) {
            headers.addArray().add(header.key()).add(text(header.value()));
        }
        return row;
    }

    static Map<String, String> strings(JsonNode object) {
        Map<String, String> result = new HashMap<>();
        object.properties().forEach(entry -> result.put(entry.getKey(), entry.getValue().asText()));
        return result;
    }

    static byte[] bytes(JsonNode text) {
        return text.isNull() ? null : Base64.getDecoder().decode(text.asText());
    }

    static String text(byte[] bytes) {
        return bytes == null ? null : Base64.getEncoder().encodeToString(bytes);
    }
}
