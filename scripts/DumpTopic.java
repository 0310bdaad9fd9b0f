import java.io.BufferedOutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Writes every visible record of a topic, by Kafka's own client, which shares nothing with the one that is tested:
 *
 * <pre>java -cp 'LIB/*' DumpTopic.java BOOTSTRAP TOPIC</pre>
 *
 * One line a record: partition, offset, timestamp, key, value, then a name and a value for each header, separated by tabs.
 * Bytes are base64, null is "-" (which no base64 text is). It reads up to the end offsets at its start, and fails if it
 * cannot get there.
 */
public class DumpTopic {
    /** The longest wait for progress. */
    private static final Duration PATIENCE = Duration.ofSeconds(60);

    public static void main(String[] args) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", args[0]);
        settings.put("isolation.level", "read_committed");
        settings.put("enable.auto.commit", "false");
        settings.put("auto.offset.reset", "none");
        settings.put("max.poll.records", "10000");
        PrintStream out = new PrintStream(new BufferedOutputStream(System.out, 1 << 20), false, StandardCharsets.US_ASCII);
        try (var consumer = new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            List<TopicPartition> partitions = new ArrayList<>();
            for (PartitionInfo partition : consumer.partitionsFor(args[1])) {
                partitions.add(new TopicPartition(args[1], partition.partition()));
            }
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            // At this isolation level the end is the last stable offset.
            Map<TopicPartition, Long> ends = consumer.endOffsets(partitions);
            StringBuilder line = new StringBuilder();
            long progress = System.nanoTime();
            long passed = -1;
            while (true) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(500))) {
                    if (record.offset() < ends.get(new TopicPartition(record.topic(), record.partition()))) {
                        write(line, record);
                        out.print(line);
                    }
                }
                // The position, unlike the records, passes transaction markers and what compaction took away.
                long position = 0;
                boolean done = true;
                for (TopicPartition partition : partitions) {
                    long at = consumer.position(partition);
                    position += at;
                    done &= at >= ends.get(partition);
                }
                if (done) {
                    break;
                }
                if (position != passed) {
                    passed = position;
                    progress = System.nanoTime();
                } else if (System.nanoTime() - progress > PATIENCE.toNanos()) {
                    throw new IllegalStateException("no progress in " + PATIENCE + " below the end offsets " + ends);
                }
            }
        }
        out.flush();
        if (out.checkError()) {
            throw new IllegalStateException("cannot write to the standard output");
        }
    }

    private static void write(StringBuilder line, ConsumerRecord<byte[], byte[]> record) {
        line.setLength(0);
        line.append(record.partition()).append('\t').append(record.offset()).append('\t').append(record.timestamp());
        append(line, record.key());
        append(line, record.value());
        for (Header header : record.headers()) {
            append(line, header.key().getBytes(StandardCharsets.UTF_8));
            append(line, header.value());
        }
        line.append('\n');
    }

    private static void append(StringBuilder line, byte[] bytes) {
        line.append('\t').append(bytes == null ? "-" : Base64.getEncoder().encodeToString(bytes));
    }
}
