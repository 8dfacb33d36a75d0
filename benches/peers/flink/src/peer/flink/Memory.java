package peer.flink;

import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.nio.file.Path;

import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.runtime.state.KeyedStateBackend;
import org.apache.flink.runtime.state.VoidNamespace;
import org.apache.flink.runtime.state.VoidNamespaceSerializer;

/** What a value for each key takes: on the Java heap, and of the resident set, in bytes. */
final class Memory {
    private Memory() {}

    static String measure(FlinkEnvironment flink, KeyedStateBackend<Long> backend)
            throws Exception {
        ValueState<Long> state =
                backend.getPartitionedState(
                        VoidNamespace.INSTANCE,
                        VoidNamespaceSerializer.INSTANCE,
                        new ValueStateDescriptor<>("v", Long.class));
        // The workload's own numbers are there before.
        Inputs.key(0);
        settle();
        long heap = used();
        long resident = resident();
        for (long key = 0; key < Inputs.KEYS; key++) {
            backend.setCurrentKey(key);
            state.update(Inputs.number(key));
            if ((key & 1023) == 0) {
                flink.mails();
            }
        }
        settle();
        heap = used() - heap;
        resident = resident() - resident;
        backend.setCurrentKey(5L);
        if (state.value() != Inputs.number(5)) {
            throw new IllegalStateException("the state is not there any more");
        }
        return Math.max(0, heap) + " " + Math.max(0, resident);
    }

    private static void settle() throws Exception {
        for (int i = 0; i < 3; i++) {
            System.gc();
            Thread.sleep(200);
        }
    }

    private static long used() {
        return ManagementFactory.getMemoryMXBean().getHeapMemoryUsage().getUsed();
    }

    private static long resident() throws Exception {
        for (String line : Files.readAllLines(Path.of("/proc/self/status"))) {
            if (line.startsWith("VmRSS:")) {
                return Long.parseLong(line.replaceAll("[^0-9]", "")) * 1024;
            }
        }
        throw new IllegalStateException("the resident set is known on Linux only");
    }
}
